"""Commits: one call of `commit_rows` each, after a read if the write set decides by what is stored."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from typing import TYPE_CHECKING, Final

import asyncpg

from tablestone.clock import monotonic_seconds
from tablestone.engines.contract import (
    ABSENT,
    DELETE,
    OUTDATED,
    Change,
    Committed,
    Conflict,
    EngineBusy,
    EngineRefused,
    EngineUnavailable,
    OutcomeUnknown,
    Put,
    Reindex,
    Update,
    decide_updates,
)
from tablestone.engines.postgresql.connections import DRIVER_ERRORS, Connections
from tablestone.engines.postgresql.schema import StoredKey, stored_key
from tablestone.engines.request_time import WriteQueues, left

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestone.clock import Clock
    from tablestone.engines.contract import StorageId, WriteSet

log = logging.getLogger(__name__)

COMMIT_SECONDS_MAX: Final = 12.0
"""After so long without an answer, a commit's connection is given up and its outcome looked up. Longer than a commit
waits for a lock (`connections.SETTINGS`)."""
OUTCOME_SECONDS_MAX: Final = 10.0
"""Seconds to find out what became of a commit: a failover takes some."""
PAUSE_SECONDS: Final = 0.1
LOCKS_MAX: Final = 64
"""Of a commit: PostgreSQL has room for so many of each connection (max_locks_per_transaction). Two are enough."""
APPLIED, CONFLICT, OUTDATED_ROWS, LOW_VERSION, NO_SESSION = b"a", b"c", b"o", b"v", b"s"
"""The answers of `commit_rows`."""
NOT_CARRIED_OUT: Final = b"n"
"""No answer of `commit_rows` came, and what became of the commit is known."""
DEADLOCK: Final = b"d"
"""Only with locks that others have taken by hand: `commit_rows` takes its own in one order."""

COMMIT: Final = f"SELECT * FROM commit_rows({', '.join(f'${n}' for n in range(1, 21))})"
FOUND: Final = """
SELECT r.version, CASE WHEN w.whole THEN r.value END AS value
FROM unnest($1::bytea[], $2::bytea[], $3::boolean[]) WITH ORDINALITY AS w (head, digest, whole, n)
LEFT JOIN rows AS r ON r.head = w.head AND r.digest = w.digest ORDER BY w.n
"""
BEGIN_SESSION: Final = "INSERT INTO sessions (id) VALUES ($1)"
END_SESSION: Final = "UPDATE sessions SET ended = true WHERE id = $1 RETURNING last"
"""May be repeated: its own answer can get lost too."""
NO_ANSWER: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    EOFError,
    TimeoutError,
)
"""Errors after which a commit may have been applied. After any other, PostgreSQL has answered that it was not."""


class Commits:
    def __init__(self, connections: Connections, clock: Clock, storage: StorageId) -> None:
        self._connections = connections
        self._clock = clock
        self._storage = storage
        self._queues: WriteQueues[bytes] = WriteQueues("partition")
        self.repeated = 0
        self.in_doubt = 0
        self.lock_wait_seconds = 0.0

    async def commit(self, write_set: WriteSet) -> Committed | Conflict:
        """Commits of one partition follow each other: else all connections would wait for its lock."""
        if not write_set.changes:
            return Committed([])
        began = monotonic_seconds()
        await self._queues.begin(write_set.partition, left())
        self.lock_wait_seconds += monotonic_seconds() - began
        try:
            if write_set.entries_of is not None or any(
                isinstance(change.mutation, Update) for change in write_set.changes
            ):
                return await self._decided(write_set)
            outcome = await self._apply(write_set, {})
            assert outcome is not None
            return outcome
        finally:
            self._queues.end(write_set.partition)

    async def _decided(self, write_set: WriteSet) -> Committed | Conflict:
        """Read the rows, decide, and commit if they are still the same; else begin again."""
        while True:
            found = await self._found(write_set)
            if found is None:
                return OUTDATED
            decided = decide_updates(write_set, found)
            if isinstance(decided, Conflict):
                return decided
            as_found = [
                change._replace(expectation=found.get(change.row, (ABSENT, b""))[0])
                for change in decided.changes
            ]
            outcome = await self._apply(decided._replace(changes=as_found), found)
            if outcome is OUTDATED or isinstance(outcome, Committed):
                return outcome
            self.repeated += 1
            if left() <= 0:
                raise EngineBusy("Other servers keep writing to the same rows.")

    async def _found(self, write_set: WriteSet) -> dict[bytes, tuple[int, bytes]] | None:
        """The versions and values of the rows at one moment; None if a relied row was another then."""
        relied = [] if write_set.relies_on is None else write_set.relies_on.rows
        keys = [stored_key(write_set.partition, change.row) for change in write_set.changes]
        keys += [stored_key(*key) for key, _version in relied]
        whole = [True] * len(write_set.changes) + [False] * len(relied)
        async with self._connections.one() as connection:
            rows = await connection.fetch(
                FOUND, [key.head for key in keys], [key.digest for key in keys], whole
            )
        count = len(write_set.changes)
        for (_key, version), (present, _value) in zip(relied, rows[count:], strict=True):
            if (present or ABSENT) != version:
                return None
        return {
            change.row: (version, value)
            for change, (version, value) in zip(write_set.changes, rows, strict=False)
            if version is not None
        }

    async def _apply(
        self, write_set: WriteSet, found: dict[bytes, tuple[int, bytes]]
    ) -> Committed | Conflict:
        """Commit by what was `found`; a conflict if an expectation does not hold."""
        versions_found = [found.get(change.row, (ABSENT, b""))[0] for change in write_set.changes]
        for index, change in enumerate(write_set.changes):
            versions_found[index] = max(versions_found[index], change.expectation, ABSENT)
        was_lost = False
        while True:
            now = self._clock()
            versions = [
                max(now, version + 1) if isinstance(change.mutation, Put) else ABSENT
                for change, version in zip(write_set.changes, versions_found, strict=True)
            ]
            outcome, index, stored = await self._call(write_set, versions, found)
            if outcome == APPLIED:
                return Committed(versions)
            if outcome == CONFLICT:
                return Conflict(index, stored[index])
            if outcome == OUTDATED_ROWS:
                return OUTDATED
            if outcome == NOT_CARRIED_OUT:
                if was_lost:  # perhaps this commit ends the connection each time
                    raise EngineBusy("PostgreSQL did not carry out the commit.")
                was_lost = True
            if outcome == LOW_VERSION:
                versions_found = stored
            self.repeated += 1
            if left() <= 0:
                raise EngineBusy("Other servers keep writing to the same rows.")

    async def _call(
        self, write_set: WriteSet, versions: list[int], found: dict[bytes, tuple[int, bytes]]
    ) -> tuple[bytes, int, list[int]]:
        values = self._arguments(write_set, versions, found)
        async with self._connections.one() as connection:
            session = connection.session
            if session is None:
                session = uuid.uuid4()
                async with asyncio.timeout(COMMIT_SECONDS_MAX):
                    await connection.fetch(BEGIN_SESSION, session)
                connection.session, connection.number = session, 0
            connection.number = number = connection.number + 1
            connection.in_doubt, began = False, monotonic_seconds()
            # Not cancelled: PostgreSQL would no longer wait for the standby, and show what it may lose.
            given_up = asyncio.get_running_loop().call_later(
                COMMIT_SECONDS_MAX, connection.driver.terminate
            )
            try:
                row = await connection.driver.fetchrow(COMMIT, session, number, *values)
            except asyncpg.DeadlockDetectedError:
                return DEADLOCK, 0, []
            except NO_ANSWER as error:
                log.info("a commit was not answered: %s", error)
                connection.driver.terminate()
                row = None
            finally:
                given_up.cancel()
            if row is not None and not connection.in_doubt:
                self.lock_wait_seconds += row["waited"]
                connection.request_seconds.add(monotonic_seconds() - began)
                if row["outcome"] == NO_SESSION:
                    connection.session = None
                return row["outcome"], row["at_index"], row["present"]
            connection.session = None
        self.in_doubt += 1
        return (APPLIED if await self._was_applied(session, number) else NOT_CARRIED_OUT), 0, []

    async def _was_applied(self, session: uuid.UUID, number: int) -> bool:
        """What became of a commit that was not answered.

        Its transaction changes the row of its session, and so does this: so this waits until the transaction has
        ended, or comes first and keeps it from committing. Since this writes, its answer is as durable.
        """
        until = monotonic_seconds() + OUTCOME_SECONDS_MAX
        while monotonic_seconds() < until:
            try:
                async with (
                    asyncio.timeout(until - monotonic_seconds()),
                    self._connections.aside() as connection,
                ):
                    last = await connection.driver.fetchval(END_SESSION, session)
                    if not connection.in_doubt:
                        return last is not None and last >= number
            except (*DRIVER_ERRORS, EngineRefused) as error:
                log.info("the outcome of a commit is not known yet: %s", error)
            await asyncio.sleep(PAUSE_SECONDS)
        raise OutcomeUnknown("PostgreSQL did not say what became of a commit.")

    def _arguments(
        self, write_set: WriteSet, versions: list[int], found: dict[bytes, tuple[int, bytes]]
    ) -> list[object]:
        """The arguments of `commit_rows`, from `locks` on."""
        partition, changes, relies_on = write_set.partition, write_set.changes, write_set.relies_on
        own_lock = self.lock_of(partition)
        relied = [] if relies_on is None else relies_on.rows
        shared = {self.lock_of(key.partition) for key, _version in relied} - {own_lock}
        if len(shared) >= LOCKS_MAX:
            raise EngineUnavailable(
                f"A commit relies on rows of {len(shared):,} other partitions: at most {LOCKS_MAX - 1} can be locked."
            )
        relied_keys = [stored_key(*key) for key, _version in relied]
        keys = [stored_key(partition, change.row) for change in changes]
        values = [
            change.mutation.render(version) if isinstance(change.mutation, Put) else None
            for change, version in zip(changes, versions, strict=True)
        ]
        old, new = _entries(write_set, values, found)
        return [
            sorted({own_lock, *shared}),
            sorted(shared),
            [key.head for key in relied_keys],
            [key.digest for key in relied_keys],
            [version for _key, version in relied],
            own_lock,
            [key.head for key in keys],
            [key.digest for key in keys],
            [key.tail for key in keys],
            [_kind_of(change) for change in changes],
            [change.expectation for change in changes],
            versions,
            values,
            [key.head for key in old],
            [key.digest for key in old],
            [key.head for key in new],
            [key.digest for key in new],
            [key.tail for key in new],
        ]

    def lock_of(self, partition: bytes) -> int:
        """The number of a partition's advisory lock, which all schemas of the database share."""
        digest = hashlib.blake2b(partition, digest_size=8, key=self._storage).digest()
        return int.from_bytes(digest, signed=True)


def _kind_of(change: Change) -> bytes:
    if isinstance(change.mutation, Put):
        return b"p"
    return b"d" if change.mutation is DELETE else b"n"


def _entries(
    write_set: WriteSet, values: Sequence[bytes | None], found: dict[bytes, tuple[int, bytes]]
) -> tuple[list[StoredKey], list[StoredKey]]:
    """The entries of indexes that go, and those that come."""
    entries_of, partition = write_set.entries_of, write_set.partition
    old, new = list[StoredKey](), list[StoredKey]()
    if entries_of is None:
        return old, new
    for change, value in zip(write_set.changes, values, strict=True):
        present = found.get(change.row, (ABSENT, None))[1]
        had = set[bytes]() if present is None else set(entries_of(present))
        if isinstance(change.mutation, Reindex):
            wanted, goes = had, set(change.mutation.stale) - had
        elif change.mutation is None:
            continue
        else:
            wanted = set[bytes]() if value is None else set(entries_of(value))
            wanted, goes = wanted - had, had - wanted
        old += [stored_key(entry, partition, change.row) for entry in goes]
        new += [stored_key(entry, partition, change.row) for entry in wanted]
    return old, new
