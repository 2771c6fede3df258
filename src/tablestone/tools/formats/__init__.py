"""Files of entities: JSON lines, CSV with types, Parquet, and files of older tools. Sends no requests."""
