"""Bytes that come inside a body and are none of it: trailer fields, and the extensions of chunks.

They do not count as the body, and the parser keeps a field until its end, so they need a limit of their own. Knows no
connection and no parser.
"""

from __future__ import annotations

from tablestone import limits


class BytesBesideBody:
    """Counts the bytes since the last part of a body. A whole piece that brings a part of the body does not count."""

    def __init__(self) -> None:
        self.has_body_come = False
        """Set when a part of the body has come."""
        self._bytes = 0

    def is_too_much(self, number: int) -> bool:
        """Count so many bytes, which the parser has read; True if there are more now than a head may have."""
        if self.has_body_come:
            self.has_body_come, self._bytes = False, 0
        else:
            self._bytes += number
        return self._bytes > limits.REQUEST_HEAD_BYTES_MAX
