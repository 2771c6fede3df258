"""A caller: who asks, as far as it matters, which is what they may have carried out.

Authentication ends in a caller; every operation, alone or in a batch, is then put before it. Knows no HTTP.
"""

from __future__ import annotations

from typing import Final, Protocol

from tablestone.operations import Operation


class Caller(Protocol):
    """Somebody whose right to ask was checked, and whose rights are known."""

    def permit(self, operation: Operation) -> Operation:
        """The operation as this caller may have it carried out, which may be narrower than it was asked for.

        Raises the service's error if the caller may not.
        """
        ...


class _Owner:
    """Who holds a key of the account may do everything (auth 1)."""

    def permit(self, operation: Operation) -> Operation:
        return operation


OWNER: Final[Caller] = _Owner()
