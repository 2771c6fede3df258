"""Tablestone: the Azure Table service as software anyone can run."""

from __future__ import annotations

__version__ = "0.1.0"
