"""Commits a write set as one conditional batch in one partition.

The first attempt is blind: it gives the clock's version `v` to every row, if the partition's mark is less than `v` and
each expectation holds. If it is not applied, the answer says what was found at one moment. That is a conflict, or the
next attempt's only condition is that the state has not changed. So all expectations are judged at one moment, and no
version is given twice (docs/decisions/0009-cassandra-versions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tablestone.clock import Clock
from tablestone.engines.cassandra.connection import Attempts, Call, Connection, OutcomeInDoubt
from tablestone.engines.cassandra.directory import Directory
from tablestone.engines.cassandra.layout import ROWS
from tablestone.engines.cassandra.read import Widths
from tablestone.engines.cassandra.session import Answer
from tablestone.engines.cassandra.unknown_outcome import SAME, Outcomes, State, state_or_nulls
from tablestone.engines.contract import (
    ABSENT,
    ANY,
    PRESENT,
    Change,
    Committed,
    Conflict,
    EngineBusy,
    EngineUnavailable,
    Put,
    WriteSet,
    expectation_holds,
)

COMMIT_SECONDS_MAX: Final = 20.0
"""How long a write set may wait and be tried again, within the time of its request (`request_time`)."""
DOUBT_SECONDS_MIN: Final = 4.0
"""Look for an outcome in doubt for this long at least. The attempt, a pause, this time and the last two questions take
14 s, with `REQUEST_SECONDS_MAX` for each: what `STORAGE_SECONDS_MAX` leaves of a request's 30 s."""
OVERTAKEN_PAUSE_SECONDS_MAX: Final = 0.2


class Found(NamedTuple):
    """A partition at one moment."""

    state: State
    versions: dict[bytes, int]
    """Of the rows that were asked for, if they exist."""


_FAST: Final = "mark < ? AND listed > 0 AND floor >= 0"
_GIVEN: Final = 1
"""Stands for any version."""
_CONDITIONS: Final = {
    ABSENT: "version = null",
    PRESENT: "version != null",
    # Always true: a refused batch answers with the rows that its conditions name, so this names the row.
    ANY: "version != -1",
    _GIVEN: "version = ?",
}


class _Statements:
    def __init__(self, connection: Connection) -> None:
        prepare = connection.prepare
        update = f"UPDATE {ROWS} SET"
        self.fast = prepare(f"{update} mark = ? WHERE partition = ? IF {_FAST}")
        self.fast_deleting = prepare(f"{update} mark = ?, floor = ? WHERE partition = ? IF {_FAST}")
        self.same = prepare(
            f"{update} mark = ?, floor = ?, listed = ? WHERE partition = ? IF {SAME}"
        )
        put = f"{update} version = ?, value = ? WHERE partition = ? AND row = ?"
        delete = f"DELETE FROM {ROWS} WHERE partition = ? AND row = ?"
        self.put = {kind: prepare(f"{put} IF {text}") for kind, text in _CONDITIONS.items()}
        self.delete = {kind: prepare(f"{delete} IF {text}") for kind, text in _CONDITIONS.items()}
        self.versions = prepare(
            f"SELECT row, version, mark, floor, listed FROM {ROWS} WHERE partition = ? AND row IN ?",
            serial=True,
        )


@dataclass(eq=False)
class Commits:
    """Commits write sets, one at a time in each partition."""

    _connection: Connection
    _directory: Directory
    _clock: Clock
    _seconds: Callable[[], float]
    _outcomes: Outcomes
    _widths: Widths
    _attempts: int = 0
    in_doubt: int = 0
    overtaken: int = 0

    def __post_init__(self) -> None:
        self._statements = _Statements(self._connection)

    async def commit(self, write_set: WriteSet, attempts: Attempts) -> Committed | Conflict:
        """Make one call at a time for a partition."""
        partition, changes, *_ = write_set
        found: Found | None = None
        if any(change.mutation is None for change in changes):
            # No statement of a batch only checks a condition.
            found = await self._find(partition, changes, attempts)
        while True:
            is_blind, listed = found is None, 0
            if found is not None:
                outcome = _judge(changes, found)
                if outcome is not None:
                    return outcome
                listed = found.state.listed
                if listed <= 0:
                    listed = await self._directory.enlist(partition, listed)
            attempt = self._attempt(partition, changes, found, listed)
            self._connection.require_takable(attempt.calls)
            try:
                found = await self._send(partition, attempt, attempts)
            except EngineUnavailable as error:
                await attempts.pause(error)
                continue
            if found is None:
                return Committed(attempt.versions)
            if not is_blind:  # another server was first
                self.overtaken += 1
                overtaken = EngineBusy("Other servers keep writing to the same partition.")
                await attempts.pause(overtaken, OVERTAKEN_PAUSE_SECONDS_MAX)

    def _attempt(
        self, partition: bytes, changes: Sequence[Change], found: Found | None, listed: int
    ) -> _Attempt:
        """The changes, each under its expectation; if a state was found, the only condition is that it is the same.

        `listed` is then the epoch of the partition's entry in the directory.
        """
        now = self._clock()
        statements = self._statements
        state, before = found or Found(State(), {})
        versions = [0] * len(changes)
        rows: list[Call] = []
        longest = 0
        floor = state.floor
        for index, (row, expectation, mutation) in enumerate(changes):
            kind, given = (_GIVEN, (expectation,)) if expectation > 0 else (expectation, ())
            if found is not None:
                kind, given = ANY, ()
            version_before = before.get(row, ABSENT)
            if isinstance(mutation, Put):
                # A missing row may have been deleted, with a version up to the floor.
                versions[index] = version = max(now, (version_before or state.floor) + 1)
                value = mutation.render(version)
                longest = max(longest, len(value))
                rows.append((statements.put[kind], (version, value, partition, row, *given)))
            elif found is None or (mutation is not None and version_before != ABSENT):
                floor = max(floor, now if found is None else version_before)
                rows.append((statements.delete[kind], (partition, row, *given)))
        if found is not None:
            mark = max(state.mark + 1, *versions)
            bound = (mark, floor, listed, partition, *state_or_nulls(state))
            return _Attempt([(statements.same, bound), *rows], versions, mark, longest)
        change: Call = (statements.fast, (now, partition, now))
        if floor:
            change = (statements.fast_deleting, (now, floor, partition, now))
        return _Attempt([change, *rows], versions, now, longest)

    async def _send(self, partition: bytes, attempt: _Attempt, attempts: Attempts) -> Found | None:
        """None if it was applied, else what it found; `EngineUnavailable` if it never will be."""
        await self._widths.note(partition, attempt.longest)
        self._attempts += 1
        number = self._attempts
        began = self._seconds()
        writer = self._outcomes.noted(partition, number)
        try:
            answer = await self._connection.write_if([attempt.calls[0], writer, *attempt.calls[1:]])
        except OutcomeInDoubt as doubt:
            self.in_doubt += 1
            until = attempts.with_at_least(DOUBT_SECONDS_MIN)
            if await self._outcomes.was_applied(partition, number, attempt.mark, began, until):
                return None
            raise EngineBusy(f"The cluster did not take a write in time: {doubt}.") from doubt
        return None if answer is None else _found(answer)

    async def _find(self, partition: bytes, changes: Sequence[Change], attempts: Attempts) -> Found:
        """Read the state, then the versions: if the state is the same at the commit, so are they."""
        state, _ = await self._outcomes.state(partition, attempts)
        rows = [change.row for change in changes]
        answer = await self._connection.read(self._statements.versions, (partition, rows), attempts)
        return Found(state, {row: version for row, version, *_ in answer if version is not None})


class _Attempt(NamedTuple):
    calls: Sequence[Call]
    """First the one on the state."""
    versions: list[int]
    mark: int
    """The mark that it leaves."""
    longest: int
    """Bytes of its longest value."""


def _judge(changes: Sequence[Change], found: Found) -> Committed | Conflict | None:
    """The outcome; None if there is something to write."""
    writes = False
    for index, (row, expectation, mutation) in enumerate(changes):
        version = found.versions.get(row, ABSENT)
        if not expectation_holds(expectation, version):
            return Conflict(index, version)
        writes = writes or isinstance(mutation, Put) or (mutation is not None and version != ABSENT)
    return None if writes else Committed([0] * len(changes))


def _found(answer: Answer) -> Found:
    """From the answer to a refused batch: a line for each row that exists, or one line without a row."""
    place = {name: index for index, name in enumerate(answer.names)}
    if "mark" not in place:
        return Found(State(), {})
    mark, floor, listed = (answer[0][place[name]] or 0 for name in ("mark", "floor", "listed"))
    versions: dict[bytes, int] = {}
    if "version" in place:
        row, version = place["row"], place["version"]
        versions = {line[row]: line[version] for line in answer if line[version] is not None}
    return Found(State(mark, floor, listed), versions)
