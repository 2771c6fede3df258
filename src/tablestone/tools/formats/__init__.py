"""Files of entities: JSON lines, CSV with types, Parquet, and what older tools wrote. Nothing here talks to an
endpoint.
"""
