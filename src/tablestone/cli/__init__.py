"""The command line: what a person types, and the sentences they are answered with."""

from __future__ import annotations
