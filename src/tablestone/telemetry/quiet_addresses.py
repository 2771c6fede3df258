"""The client addresses that the log has told of lately, in memory that all processes of a server share.

So an address is told of once for the server and not once for each worker. An address has a place by its digest; a
process that takes a place tells of the address, and later of the failures that were only counted there. Two processes
that take a place at the same moment may both tell, or lose a count: there is no lock. Made before the fork.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from typing import Final, NamedTuple

PLACES: Final = 1024
"""Addresses that are remembered at once. For one more, the one that is forgotten soonest is forgotten now."""
_TRIES: Final = 8
"""Places at which an address may be."""
_PLACE: Final = struct.Struct("QdQ")
"""The digest of an address, the moment (`monotonic_seconds`) until which it is quiet, and the failures since."""


class Taken(NamedTuple):
    """A place that was taken for an address. `counted` is the number of its earlier failures that were not told yet."""

    place: int
    counted: int


class QuietAddresses:
    """The addresses of one server."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, PLACES * _PLACE.size)

    def take(self, address: str, now: float, until: float) -> Taken | None:
        """Take a place for an address, quiet `until` then; None if it is quiet already: then the failure is counted."""
        digest = _digest(address)
        places = [(digest + number) % PLACES for number in range(_TRIES)]
        for place in places:
            found, quiet_until, counted = self._read(place)
            if found != digest:
                continue
            if quiet_until > now:
                self._write(place, digest, quiet_until, counted + 1)
                return None
            self._write(place, digest, until, 0)
            return Taken(place, counted)
        soonest = min(places, key=lambda place: self._read(place)[1])
        self._write(soonest, digest, until, 0)
        return Taken(soonest, 0)

    def leave(self, place: int, address: str, until: float) -> int:
        """Forget an address whose place was taken until then. Returns the number of failures that were counted.

        0 if another process has taken the place since: it tells of them.
        """
        digest, quiet_until, counted = self._read(place)
        if digest != _digest(address) or quiet_until != until:
            return 0
        self._write(place, 0, 0.0, 0)
        return counted

    def _read(self, place: int) -> tuple[int, float, int]:
        found: tuple[int, float, int] = _PLACE.unpack_from(self._memory, place * _PLACE.size)
        return found

    def _write(self, place: int, digest: int, until: float, counted: int) -> None:
        _PLACE.pack_into(self._memory, place * _PLACE.size, digest, until, counted)


def _digest(address: str) -> int:
    return int.from_bytes(hashlib.blake2b(address.encode(), digest_size=8).digest()) or 1
