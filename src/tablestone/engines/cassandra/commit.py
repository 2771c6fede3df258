"""A write set as one conditional batch in one partition: conditions, versions, and what became of a time-out.

The first attempt is blind: it gives the clock's version `v` to every row and is applied if the partition's mark is less
than `v` and each expectation holds as a condition; one round for everything. If it is not applied, the answer says what
was found, at one moment; then there is a conflict, or an attempt whose only condition is that the mark is still that
one. So an expectation is always judged at one moment of the partition, and a version is never given twice.
Decided in docs/decisions/0009-cassandra-versions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from tablestone.clock import Clock
from tablestone.engines.cassandra.connection import (
    Attempts,
    Call,
    Connection,
    OutcomeInDoubt,
    Statement,
)
from tablestone.engines.cassandra.layout import ROWS
from tablestone.engines.cassandra.read import Widths
from tablestone.engines.cassandra.session import Answer
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    PRESENT,
    Change,
    Committed,
    Conflict,
    EngineBusy,
    EngineUnavailable,
    OutcomeUnknown,
    Put,
    WriteSet,
    expectation_holds,
)

COMMIT_SECONDS_MAX: Final = 20.0
"""How long a write set may wait and be tried again, if the time of its request allows that (`request_time`)."""
FORGOTTEN_SECONDS: Final = 2 * 24 * 60 * 60
"""The time for which the state of an empty partition is kept. A clock that is off by a quarter of it is refused."""
DOUBT_SECONDS_MIN: Final = 4.0
"""How long an outcome in doubt is asked for at least. The attempt, a pause, this time and the last two questions take
14 s, with `REQUEST_SECONDS_MAX` for each: that is what is left of a request's 30 s after `STORAGE_SECONDS_MAX`."""
OVERTAKEN_PAUSE_SECONDS_MAX: Final = 0.2
WRITER_SECONDS: Final = 3600
"""How long the number of an engine's last commit stays in a partition. After half of it, its absence proves nothing."""


class State(NamedTuple):
    """The static columns of a partition; 0 where there is none."""

    mark: int = 0
    floor: int = 0
    listed: int = 0


class Found(NamedTuple):
    """A partition at one moment: its state, and the versions of those of the rows asked for that are there."""

    state: State
    versions: dict[bytes, int]


class Listing(Protocol):
    """The directory, as far as a commit needs it."""

    async def enlist(self, partition: bytes, listed: int) -> int:
        """See to it that the partition is in the directory; the epoch that `listed` is to have then."""


_FAST: Final = "mark < ? AND listed > 0 AND floor >= 0"
_SAME: Final = "mark = ? AND floor = ? AND listed = ?"
_ANY_VERSION: Final = "version != -1"
"""Always true. A batch that is not applied tells of the rows that its conditions name: this names the row."""
_CONDITIONS: Final = {ABSENT: "version = null", PRESENT: "version != null", ANY: _ANY_VERSION}


class _Statements:
    """Everything a commit sends."""

    def __init__(self, connection: Connection) -> None:
        def prepare(text: str) -> Statement:
            return connection.prepare(text)

        update = f"UPDATE {ROWS} SET"
        self.fast = prepare(f"{update} mark = ? WHERE partition = ? IF {_FAST}")
        self.fast_deleting = prepare(f"{update} mark = ?, floor = ? WHERE partition = ? IF {_FAST}")
        self.same = prepare(
            f"{update} mark = ?, floor = ?, listed = ? WHERE partition = ? IF {_SAME}"
        )
        self.writer = prepare(
            f"UPDATE {ROWS} USING TTL {WRITER_SECONDS} SET writers[?] = ? WHERE partition = ?"
        )
        self.change = prepare(
            f"UPDATE {ROWS} USING TTL ? SET mark = ?, floor = ?, listed = ? WHERE partition = ? IF {_SAME}"
        )
        put = f"{update} version = ?, value = ? WHERE partition = ? AND row = ?"
        delete = f"DELETE FROM {ROWS} WHERE partition = ? AND row = ?"
        self.put = {kind: prepare(f"{put} IF {text}") for kind, text in _CONDITIONS.items()}
        self.delete = {kind: prepare(f"{delete} IF {text}") for kind, text in _CONDITIONS.items()}
        self.put_version = prepare(f"{put} IF version = ?")
        self.delete_version = prepare(f"{delete} IF version = ?")
        self.state = connection.prepare(
            f"SELECT mark, floor, listed, writers[?] FROM {ROWS} WHERE partition = ? LIMIT 1",
            serial=True,
        )
        # At QUORUM: it contains every commit that was acknowledged, and asks fewer nodes for less.
        self.moment = connection.prepare(f"SELECT DISTINCT mark FROM {ROWS} WHERE partition = ?")
        self.versions = connection.prepare(
            f"SELECT row, version, mark, floor, listed FROM {ROWS} WHERE partition = ? AND row IN ?",
            serial=True,
        )


class Commits:
    """Commits write sets of any partition, one at a time of each. `writer` is a number no other engine has."""

    def __init__(
        self,
        connection: Connection,
        listing: Listing,
        clock: Clock,
        seconds: Callable[[], float],
        writer: int,
        widths: Widths,
    ) -> None:
        self._connection = connection
        self._widths = widths
        self._listing = listing
        self._clock = clock
        self._seconds = seconds
        self._writer = writer
        self._attempts = 0
        self.in_doubt = 0
        self.overtaken = 0
        self._statements = _Statements(connection)

    async def commit(self, write_set: WriteSet, attempts: Attempts) -> Committed | Conflict:
        """Apply the write set; to be called again for a partition when the last call for it has ended."""
        partition, changes, _ = write_set
        found: Found | None = None
        if any(change.mutation is None for change in changes):
            # A batch has nothing to hang such a condition on.
            found = await self._find(partition, changes, attempts)
        while True:
            if found is not None:
                outcome = _judge(changes, found)
                if outcome is not None:
                    return outcome
                attempt = await self._attempt_on(partition, changes, found)
            else:
                attempt = self._blind_attempt(partition, changes)
            try:
                found = await self._send(partition, attempt, attempts)
            except EngineUnavailable:
                if attempts.are_over:
                    raise
                await attempts.pause()
                continue
            if found is None:
                return Committed(attempt.versions)
            if not attempt.is_blind:  # another server was first
                self.overtaken += 1
                if attempts.are_over:
                    raise EngineBusy("Other servers keep writing to the same partition.")
                await attempts.pause(OVERTAKEN_PAUSE_SECONDS_MAX)

    async def state(self, partition: bytes) -> State:
        """The state of a partition after every commit that was answered."""
        return (await self._state(partition, self._connection.attempts()))[0]

    async def moment(self, partition: bytes, attempts: Attempts | None = None) -> int:
        """The mark of a partition, as `leases.MomentOf`; 0 if it has no rows."""
        answer = await self._connection.read(self._statements.moment, (partition,), attempts)
        return answer[0][0] or 0 if answer else 0

    async def change_state(
        self, partition: bytes, before: State, after: State, seconds: int = 0
    ) -> bool:
        """Replace the state if it is still that one. With `seconds` it is forgotten after that time.

        Raises `OutcomeInDoubt` if that is not known.
        """
        bound = (seconds, *after, partition, *_state_or_nulls(before))
        return await self._connection.write_if([(self._statements.change, bound)]) is None

    def _blind_attempt(self, partition: bytes, changes: Sequence[Change]) -> _Attempt:
        version = self._clock()
        statements = self._statements
        versions = [0] * len(changes)
        rows: list[Call] = []
        longest = 0
        deletes = False
        for index, (row, expectation, mutation) in enumerate(changes):
            if isinstance(mutation, Put):
                versions[index] = version
                value = mutation.render(version)
                longest = max(longest, len(value))
                bound = (version, value, partition, row)
                rows.append(
                    (statements.put_version, (*bound, expectation))
                    if expectation > 0
                    else (statements.put[expectation], bound)
                )
            else:
                deletes = True
                rows.append(
                    (statements.delete_version, (partition, row, expectation))
                    if expectation > 0
                    else (statements.delete[expectation], (partition, row))
                )
        state: Call = (
            (statements.fast_deleting, (version, version, partition, version))
            if deletes
            else (statements.fast, (version, partition, version))
        )
        return _Attempt([state, *rows], versions, version, is_blind=True, longest=longest)

    async def _attempt_on(
        self, partition: bytes, changes: Sequence[Change], found: Found
    ) -> _Attempt:
        """The changes on what was found, under the one condition that it is still so."""
        now = self._clock()
        statements = self._statements
        state = found.state
        listed = state.listed
        if listed <= 0:
            listed = await self._listing.enlist(partition, listed)
        versions = [0] * len(changes)
        rows: list[Call] = []
        longest = 0
        floor = state.floor
        for index, (row, _, mutation) in enumerate(changes):
            before = found.versions.get(row, ABSENT)
            if isinstance(mutation, Put):
                # A missing row may have existed: the rows that were deleted in this partition had versions up to floor.
                versions[index] = version = max(now, (before or state.floor) + 1)
                value = mutation.render(version)
                longest = max(longest, len(value))
                rows.append((statements.put[ANY], (version, value, partition, row)))
            elif mutation is not None and before != ABSENT:
                floor = max(floor, before)
                rows.append((statements.delete[ANY], (partition, row)))
        mark = max(state.mark + 1, *versions)
        change: Call = (
            statements.same,
            (mark, floor, listed, partition, *_state_or_nulls(state)),
        )
        return _Attempt([change, *rows], versions, mark, is_blind=False, longest=longest)

    async def _send(self, partition: bytes, attempt: _Attempt, attempts: Attempts) -> Found | None:
        """None if the attempt was applied, else what it found; `EngineUnavailable` if it never can be any more."""
        await self._widths.note(partition, attempt.longest)
        self._attempts += 1
        number = self._attempts
        began = self._seconds()
        writer: Call = (self._statements.writer, (self._writer, number, partition))
        try:
            answer = await self._connection.write_if([attempt.calls[0], writer, *attempt.calls[1:]])
        except OutcomeInDoubt as doubt:
            self.in_doubt += 1
            until = attempts.with_at_least(DOUBT_SECONDS_MIN)
            if await self._was_applied(partition, number, attempt.mark, began, until):
                return None
            raise EngineBusy(f"The cluster did not take a write in time: {doubt}.") from doubt
        return None if answer is None else _found(answer)

    async def _was_applied(
        self, partition: bytes, number: int, mark: int, began: float, attempts: Attempts
    ) -> bool:
        """Whether an attempt of that moment, without an answer, was applied. Afterwards this cannot change any more.

        Reading at SERIAL finishes or ends every write that a node has begun. One that is still on its way to a node may
        begin later: therefore the mark is moved to where the attempt's condition can never hold.
        """
        while True:
            try:
                state, last = await self._state(partition, attempts)
                if last == number and await self._is_at_quorum(partition, state, mark, attempts):
                    return True
            except EngineUnavailable as error:
                raise OutcomeUnknown(
                    f"A write may have been applied, or not: {error.sentence}"
                ) from error
            if last != number:
                if self._seconds() - began > WRITER_SECONDS / 2:
                    # The process stood still for so long that the number may have been there, and have expired.
                    raise OutcomeUnknown(
                        "A write may have been applied, or not: that was too long ago."
                    )
                if state.mark >= mark:
                    return False
                fenced = state._replace(mark=mark)
                # A partition that was never written to, or is cleaned, has a state for a time only.
                seconds = 0 if state.listed > 0 else FORGOTTEN_SECONDS
                with suppress(OutcomeInDoubt, EngineUnavailable):  # then the next look tells
                    if await self.change_state(partition, state, fenced, seconds):
                        return False
            if attempts.are_over:
                raise OutcomeUnknown(
                    "A write may have been applied, or not: the cluster does not say so in time."
                )
            await attempts.pause()

    async def _is_at_quorum(
        self, partition: bytes, state: State, mark: int, attempts: Attempts
    ) -> bool:
        """Whether a commit that left this mark, and that a read at SERIAL has shown, is in every read at QUORUM.

        One node with the commit may answer a read at SERIAL; the moments of partitions are read at QUORUM.
        """
        if await self.moment(partition, attempts) >= mark:
            return True
        # A conditional write brings what was decided before it to a quorum first. This one changes nothing.
        with suppress(OutcomeInDoubt, EngineUnavailable):
            return await self.change_state(partition, state, state)
        return False

    async def _find(self, partition: bytes, changes: Sequence[Change], attempts: Attempts) -> Found:
        """The present versions. The state is read first: if it is the same at the commit, so are the versions."""
        state, _ = await self._state(partition, attempts)
        rows = [change.row for change in changes]
        answer = await self._connection.read(self._statements.versions, (partition, rows), attempts)
        return Found(state, {row: version for row, version, *_ in answer if version is not None})

    async def _state(self, partition: bytes, attempts: Attempts) -> tuple[State, int | None]:
        asked = (self._writer, partition)
        answer = await self._connection.read(self._statements.state, asked, attempts)
        if not answer:
            return State(), None
        mark, floor, listed, last = answer[0]
        return State(mark or 0, floor or 0, listed or 0), last


class _Attempt(NamedTuple):
    """The calls of a commit, the condition on the state first; the versions that it gives, and the mark it leaves."""

    calls: Sequence[Call]
    versions: list[int]
    mark: int
    is_blind: bool
    longest: int
    """Bytes of its longest value."""


def _judge(changes: Sequence[Change], found: Found) -> Committed | Conflict | None:
    """The outcome that what was found has already; None if there is something to write."""
    writes = False
    for index, (row, expectation, mutation) in enumerate(changes):
        version = found.versions.get(row, ABSENT)
        if not expectation_holds(expectation, version):
            return Conflict(index, version)
        writes = writes or isinstance(mutation, Put) or (mutation is not None and version != ABSENT)
    return None if writes else Committed([0] * len(changes))


def _state_or_nulls(state: State) -> tuple[int | None, int | None, int | None]:
    """A state as a condition has it: a partition that nothing was written to has nulls."""
    return state if state.mark else (None, None, None)


def _found(answer: Answer) -> Found:
    """The rows that the conditions of a batch found: a line for each row that exists, or one line without a row."""
    place = {name: index for index, name in enumerate(answer.names)}
    if "mark" not in place:
        return Found(State(), {})
    mark, floor, listed = (answer[0][place[name]] or 0 for name in ("mark", "floor", "listed"))
    versions: dict[bytes, int] = {}
    if "version" in place:
        row, version = place["row"], place["version"]
        versions = {line[row]: line[version] for line in answer if line[version] is not None}
    return Found(State(mark, floor, listed), versions)
