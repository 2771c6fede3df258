"""Redaction of a client's text before it is logged: the log gets no signature, also if a client put one elsewhere."""

from __future__ import annotations

import re
from typing import Final

_ENCODED_QUERY: Final = re.compile(r"%(?:25)*3f.*", re.IGNORECASE | re.DOTALL)
_SIGNATURE: Final = re.compile(r"(sig(?:=|%(?:25)*3d))[^&\s'\"]+", re.IGNORECASE)


def loggable_path(raw_path: bytes) -> str:
    """A path up to an encoded question mark, because the client meant the rest as a query string."""
    return without_signatures(_ENCODED_QUERY.sub("%3F...", raw_path.decode("latin-1")))


def without_signatures(text: str) -> str:
    """A text without the values of parameters that have the name of a signature in a URL."""
    return _SIGNATURE.sub(r"\1...", text)
