"""What may be logged of what a client sent: no signature, also where a client put one in the wrong place, and no line
that looks as if it were the server's own.
"""

from __future__ import annotations

import logging
import re
import textwrap
from typing import Any, Final

_ENCODED_QUERY: Final = re.compile(r"%(?:25)*3f.*", re.IGNORECASE | re.DOTALL)
_SIGNATURE: Final = re.compile(r"(sig(?:=|%(?:25)*3d))[^&\s'\"]+", re.IGNORECASE)


def loggable_path(raw_path: bytes) -> str:
    """A path without what follows an encoded question mark, which is a query string to who wrote it."""
    return without_signatures(_ENCODED_QUERY.sub("%3F...", raw_path.decode("latin-1")))


def without_signatures(text: str) -> str:
    """A text without the values of what is named as a signature in a URL is."""
    return _SIGNATURE.sub(r"\1...", text)


class LineFormatter(logging.Formatter):
    """Every message is one line, and every line of a traceback is indented, whatever text of a client's is in them."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s [%(process)d] %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        return on_one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's own name
        return textwrap.indent(super().formatException(ei), "    ")


def on_one_line(text: str) -> str:
    """A text with whatever cannot be seen in it, line feeds too, as escapes."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )
