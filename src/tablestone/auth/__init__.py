"""The caller of a request and the caller's permissions: values only, no engine, no I/O."""
