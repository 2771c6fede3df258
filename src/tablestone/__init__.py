"""Tablestone: the Azure Table service as software anyone can run."""

__version__ = "0.1.0"
