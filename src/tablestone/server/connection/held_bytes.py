"""The bytes of one connection that the process has in memory: of a head or body that arrives, of an answer that leaves.

They count as the client's part of a limit (`Admission.buffers`). Data that arrives in one piece is not counted,
because it is soon gone. Knows no HTTP.
"""

from __future__ import annotations

from tablestone.model.errors import RETRY_AFTER, StorageError
from tablestone.server.connection.admission import REASONS, Admission, Limit


class HeldBytes:
    """The counted bytes of one connection. `address` is the client's; behind a proxy each request may change it."""

    __slots__ = ("_admission", "_arrived", "_unsent", "address")

    def __init__(self, admission: Admission, address: str) -> None:
        self.address = address
        self._admission = admission
        self._arrived: tuple[str, int] | None = None
        self._unsent: tuple[str, int] | None = None

    def has_room(self, number: int) -> bool:
        """Count bytes that have arrived; False if there is no room for them."""
        if self._arrived is None:
            address, before = self.address, 0
        else:
            address, before = self._arrived
        if not self._admission.buffers.take(address, number):
            self._admission.count_refused(Limit.BUFFERS, address)
            return False
        self._arrived = address, before + number
        return True

    def require_room(self, number: int) -> None:
        """Count bytes of a body. Raises `ServerBusy` if there is no room for them."""
        if number and not self.has_room(number):
            reason = REASONS[Limit.BUFFERS]
            raise StorageError("ServerBusy", reason=reason, headers=RETRY_AFTER)

    def forget_arrived(self) -> None:
        """Count what has arrived no more: it is answered."""
        if self._arrived is not None:
            arrived, self._arrived = self._arrived, None
            self._admission.buffers.give_back(*arrived)

    def note_unsent(self, number: int) -> None:
        """Count the bytes of an answer that waits for its reader, whether there is room or not."""
        self.forget_unsent()
        if number:
            self._unsent = self.address, number
            self._admission.buffers.add(*self._unsent)

    def forget_unsent(self) -> None:
        """Count no such answer any more."""
        if self._unsent is not None:
            unsent, self._unsent = self._unsent, None
            self._admission.buffers.give_back(*unsent)
