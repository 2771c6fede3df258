"""Who calls, and what the caller may do. Values only: no engine, no I/O."""
