"""Bytes to operations, and results to bytes. Knows HTTP and the forms of OData; no I/O, no engine, no semantics."""
