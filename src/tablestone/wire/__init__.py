"""Bytes to operations, and results to bytes. Knows HTTP and OData; does no I/O, knows no engine, executes nothing."""
