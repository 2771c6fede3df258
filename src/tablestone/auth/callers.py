"""A caller: the result of authentication. It says which operations the request may execute.

Every operation, alone or in a batch, is checked with `Caller.permit`. Knows no HTTP.
"""

from __future__ import annotations

from typing import Final, Protocol

from tablestone.model.operations import Operation


class Caller(Protocol):
    """An authenticated sender of requests, with known permissions."""

    def permit(self, operation: Operation) -> Operation:
        """The operation that this caller may execute, possibly narrower than the one requested.

        Raises the service's error if the caller may not execute it.
        """
        ...


class _Owner:
    """The holder of a key of the account, who may do everything (auth 1)."""

    def permit(self, operation: Operation) -> Operation:
        return operation


OWNER: Final[Caller] = _Owner()
