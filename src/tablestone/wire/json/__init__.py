"""Entities and tables in JSON, at every metadata level: reading and writing."""
