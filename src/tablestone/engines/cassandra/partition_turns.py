"""One commit at a time of each partition, in the order in which they were asked for. Knows no rows, no statements."""

from __future__ import annotations

import asyncio

from tablestone.engines.contract import EngineBusy


class _Turn:
    """The queue of one partition, and how many hold or want a place in it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


class PartitionTurns:
    """The queues of those partitions in which a commit is under way."""

    def __init__(self) -> None:
        self._turns: dict[bytes, _Turn] = {}

    async def begin(self, partition: bytes, seconds_max: float) -> None:
        """Wait until every earlier commit of the partition has ended; `EngineBusy` if that takes longer than this.

        After a return, `end` has to be called.
        """
        turn = self._turns.get(partition)
        if turn is None:
            turn = self._turns[partition] = _Turn()
        turn.wanted += 1
        try:
            if turn.wanted == 1:
                await turn.lock.acquire()  # at once
            else:
                async with asyncio.timeout(seconds_max):
                    await turn.lock.acquire()
        except BaseException as error:
            self._leave(partition, turn)
            if isinstance(error, TimeoutError):
                raise EngineBusy("Earlier writes to the same partition take too long.") from error
            raise

    def end(self, partition: bytes) -> None:
        """Let the next commit of the partition have its turn."""
        turn = self._turns[partition]
        turn.lock.release()
        self._leave(partition, turn)

    def _leave(self, partition: bytes, turn: _Turn) -> None:
        turn.wanted -= 1
        if not turn.wanted:
            del self._turns[partition]
