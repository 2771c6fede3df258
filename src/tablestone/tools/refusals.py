"""The two ways in which a data tool ends without success; each carries the one sentence that a person reads.

Knows no exit status (`cli.main` does) and imports nothing, so that the command line can name these without loading
the tools. A sentence never holds a key, a signature or a connection string.
"""

from __future__ import annotations


class TransferRefused(Exception):
    """The tool was asked for something it cannot begin: bad input, a wrong option. Nothing was written."""


class TransferFailed(Exception):
    """The tool began and could not finish, or found a difference. The sentence says how to go on where one can."""
