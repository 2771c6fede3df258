"""The engine in PostgreSQL: `kind` is imported first, and alone until an engine is opened."""
