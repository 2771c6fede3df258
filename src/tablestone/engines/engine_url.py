"""The URL of an engine: a scheme, which names the kind of engine, and a place, which only that kind can read.

`memory:`, `sqlite:DIRECTORY`, `cassandra://HOST,HOST/KEYSPACE`. This module is the only one that takes the text apart
or puts it together. The registry knows what a scheme can do.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class EngineUrl(NamedTuple):
    """An engine's URL, taken apart."""

    scheme: str
    place: str | None
    """The text after the colon; None without a colon."""

    @classmethod
    def parse(cls, text: str) -> EngineUrl:
        """The parts of any text."""
        scheme, colon, place = text.partition(":")
        return cls(scheme, place if colon else None)

    def __str__(self) -> str:
        """The whole URL. It may hold a password: not for messages and logs."""
        return self.scheme if self.place is None else f"{self.scheme}:{self.place}"

    @property
    def shown(self) -> str:
        """The URL for messages and logs: without a password, and without what follows a question mark.

        A password may have any character, so everything up to the last `@` may belong to it.
        """
        if self.place is None or not self.place.startswith("//"):
            return str(self)
        place = _PASSWORD.sub("//***@", self.place)
        return f"{self.scheme}:{_REST.sub('', place)}"


_PASSWORD: Final = re.compile(r"^//.*@", re.DOTALL)
_REST: Final = re.compile(r"[?#].*", re.DOTALL)
