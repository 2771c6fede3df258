"""The state of a partition, and the outcome of a conditional write that was not answered.

Such a write may have been applied, may be half-way through Paxos, or may still be on its way to a node. Each commit
leaves its number in the partition, under its engine. A read at SERIAL finishes every write that a node has begun; then
the number says whether the commit was applied. If it was not, move the mark, so that its condition can never hold.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from tablestone.engines.cassandra.connection import Attempts, Call, Connection, OutcomeInDoubt
from tablestone.engines.cassandra.layout import ROWS
from tablestone.engines.contract import EngineUnavailable, OutcomeUnknown

FORGOTTEN_SECONDS: Final = 2 * 24 * 60 * 60
"""The state of an empty partition expires after this time. A clock that is off by a quarter of it is refused."""
WRITER_SECONDS: Final = 3600
"""The number of an engine's last commit expires after this time. After half of it, a missing number proves nothing."""
SAME: Final = "mark = ? AND floor = ? AND listed = ?"
"""The condition that the state is still the same."""


class State(NamedTuple):
    """The static columns of a partition; 0 for null."""

    mark: int = 0
    floor: int = 0
    listed: int = 0


def state_or_nulls(state: State) -> tuple[int | None, int | None, int | None]:
    """For a condition: a partition that was never written to has nulls."""
    return state if state.mark else (None, None, None)


class Outcomes:
    """States of partitions, and outcomes of this engine's commits. No two engines have the same `writer`."""

    def __init__(self, connection: Connection, seconds: Callable[[], float], writer: int) -> None:
        self._connection = connection
        self._seconds = seconds
        self._writer = writer
        self._note = connection.prepare(
            f"UPDATE {ROWS} USING TTL {WRITER_SECONDS} SET writers[?] = ? WHERE partition = ?"
        )
        self._change = connection.prepare(
            f"UPDATE {ROWS} USING TTL ? SET mark = ?, floor = ?, listed = ? WHERE partition = ? IF {SAME}"
        )
        self._state = connection.prepare(
            f"SELECT mark, floor, listed, writers[?] FROM {ROWS} WHERE partition = ? LIMIT 1",
            serial=True,
        )
        # At QUORUM, which shows every acknowledged commit and asks fewer nodes for less.
        self._mark = connection.prepare(f"SELECT DISTINCT mark FROM {ROWS} WHERE partition = ?")

    def noted(self, partition: bytes, number: int) -> Call:
        """The statement that leaves a commit's number."""
        return self._note, (self._writer, number, partition)

    async def state(
        self, partition: bytes, attempts: Attempts | None = None
    ) -> tuple[State, int | None]:
        """The state of a partition after every answered commit, and the number of this engine's last one."""
        answer = await self._connection.read(self._state, (self._writer, partition), attempts)
        if not answer:
            return State(), None
        mark, floor, listed, last = answer[0]
        return State(mark or 0, floor or 0, listed or 0), last

    async def mark_of(self, partition: bytes, attempts: Attempts | None = None) -> int:
        """The mark of a partition, as `leases.LastChangeOf`; 0 if it has no rows."""
        answer = await self._connection.read(self._mark, (partition,), attempts)
        return answer[0][0] or 0 if answer else 0

    async def change_state(
        self, partition: bytes, before: State, after: State, seconds: int = 0
    ) -> bool:
        """Replace the state if it is still `before`, for this time (0: for ever); True if it was replaced.

        Raises `OutcomeInDoubt` if that is not known.
        """
        bound = (seconds, *after, partition, *state_or_nulls(before))
        return await self._connection.write_if([(self._change, bound)]) is None

    async def was_applied(
        self, partition: bytes, number: int, mark: int, began: float, attempts: Attempts
    ) -> bool:
        """Whether an unanswered attempt that began then was applied. Afterwards this cannot change.

        A read at SERIAL finishes or ends every write that a node has begun. One that is still on its way to a node may
        begin later, so the mark moves to where the attempt's condition can never hold.
        """
        while True:
            try:
                state, last = await self.state(partition, attempts)
                if last == number and await self._is_at_quorum(partition, state, mark, attempts):
                    return True
            except EngineUnavailable as error:
                raise OutcomeUnknown(
                    f"A write may have been applied, or not: {error.sentence}"
                ) from error
            if last != number:
                if self._seconds() - began > WRITER_SECONDS / 2:
                    # The process stood still, and the number may have expired.
                    raise OutcomeUnknown(
                        "A write may have been applied, or not: that was too long ago."
                    )
                if state.mark >= mark:
                    return False
                fenced = state._replace(mark=mark)
                # The state of a partition that is not in the directory expires.
                seconds = 0 if state.listed > 0 else FORGOTTEN_SECONDS
                with suppress(OutcomeInDoubt, EngineUnavailable):  # the next read shows it
                    if await self.change_state(partition, state, fenced, seconds):
                        return False
            await attempts.pause(
                OutcomeUnknown(
                    "A write may have been applied, or not: the cluster does not say so in time."
                )
            )

    async def _is_at_quorum(
        self, partition: bytes, state: State, mark: int, attempts: Attempts
    ) -> bool:
        """Whether every read at QUORUM shows a commit that left this mark, as a read at SERIAL did.

        One node with the commit may answer a read at SERIAL, but `mark_of` reads at QUORUM.
        """
        if await self.mark_of(partition, attempts) >= mark:
            return True
        # A conditional write first brings earlier decisions to a quorum. This one changes nothing.
        with suppress(OutcomeInDoubt, EngineUnavailable):
            return await self.change_state(partition, state, state)
        return False
