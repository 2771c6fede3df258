"""The embedded engine: one SQLite database in a data directory, durable group commit, several worker processes."""
