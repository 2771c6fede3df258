"""Places of one kind that clients share, so that no client address can take all of them.

An address gets another place while it has fewer than are free. So one address alone gets half of the places, two get a
third each, and there is always room for an address that has none. This is the rule of dynamic thresholds, by which
switches share the memory of their ports (Choudhury and Hahne, 1998). Knows neither what a place is nor what an address
means.
"""

from __future__ import annotations

from typing import Final

ALL: Final = 100
"""The percentage with which an address may take every place: places are then not shared by address."""


class FairShares:
    """`places` in all, of which one address may take `percent` at most, and never more than are free.

    With `percent` 100, any address may take any place. `is_tight` is false while no request for one place could be
    refused, so that a caller need not ask.
    """

    def __init__(self, places: int, percent: int) -> None:
        self._places = places
        self._is_shared = percent < ALL
        self._each = max(1, places * percent // ALL)
        self._tight_from = min(self._each, places // 2) if self._is_shared else places
        self._taken: dict[str, int] = {}
        self.taken = 0
        """Places of all addresses together."""
        self.is_tight = self._tight_from <= 0

    def has_room(self, address: str, number: int = 1) -> bool:
        """Whether the address may have so many more places."""
        free = self._places - self.taken
        most = min(self._each, free) if self._is_shared else self._places
        return number <= free and self._taken.get(address, 0) + number <= most

    def take(self, address: str, number: int = 1) -> bool:
        """Give the address so many places, or none; True if it got them."""
        if not self.has_room(address, number):
            return False
        self.add(address, number)
        return True

    def add(self, address: str, number: int = 1) -> None:
        """Count places that the address has already, even beyond its share."""
        self._taken[address] = self._taken.get(address, 0) + number
        self.taken += number
        self.is_tight = self.taken >= self._tight_from

    def give_back(self, address: str, number: int = 1) -> None:
        """Free so many places of the address."""
        left = self._taken[address] - number
        if left:
            self._taken[address] = left
        else:
            del self._taken[address]
        self.taken -= number
        self.is_tight = self.taken >= self._tight_from
