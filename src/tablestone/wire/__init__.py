"""Bytes to operations and results to bytes. Knows HTTP and OData forms; no I/O, no engine, no semantics of tables."""
