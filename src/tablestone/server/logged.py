"""What may be logged of what a client sent: no signature, also where a client put one in the wrong place."""

from __future__ import annotations

import re
from typing import Final

_ENCODED_QUERY: Final = re.compile(r"%(?:25)*3f.*", re.IGNORECASE | re.DOTALL)
_SIGNATURE: Final = re.compile(r"(sig(?:=|%(?:25)*3d))[^&\s'\"]+", re.IGNORECASE)


def loggable_path(raw_path: bytes) -> str:
    """A path without what follows an encoded question mark, which is a query string to who wrote it."""
    return without_signatures(_ENCODED_QUERY.sub("%3F...", raw_path.decode("latin-1")))


def without_signatures(text: str) -> str:
    """A text without the values of what is named as a signature in a URL is."""
    return _SIGNATURE.sub(r"\1...", text)
