"""Group commit: all write sets that have arrived are applied in one SQLite transaction, each with its own outcome.

The event loop applies the write sets of a group one by one. A thread commits and flushes them before any outcome is
reported; it also runs the one statement of a group that only inserts. A commit holds the lock of all processes. After a
failed flush an outcome may be unknown, because the write-ahead log can bring the commit back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from functools import cache, lru_cache, partial
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import apsw

from tablestone.clock import monotonic_seconds
from tablestone.engines.change_record import write_rows
from tablestone.engines.contract import (
    ABSENT,
    OUTDATED,
    Committed,
    Conflict,
    EngineUnavailable,
    OutcomeUnknown,
    Put,
    Reindex,
    Update,
    effect_of,
)
from tablestone.engines.figures import Distribution, Figure, FigureKind
from tablestone.engines.sqlite.change_log import kept_for, record_statement, record_values
from tablestone.engines.sqlite.data_directory import LOCKED_MS_MAX, PAGE_SIZE_BYTES
from tablestone.engines.sqlite.index_entries import (
    STATEMENTS_KEPT,
    change_entries,
    insert_statement,
    make_table,
)
from tablestone.engines.sqlite.read import unavailable
from tablestone.engines.sqlite.write_ahead_log import LogCopier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tablestone.clock import Clock
    from tablestone.engines.change_record import Note
    from tablestone.engines.contract import WriteSet
    from tablestone.engines.sqlite.commit_lock import CommitLock, Generation
    from tablestone.engines.sqlite.free_space import DiskRoom

COMMIT_GROUP: Final = Figure(
    "sqlite_commit_group_write_sets",
    FigureKind.DISTRIBUTION,
    "Write sets that shared one commit and its flush.",
    (1, 2, 4, 8, 16, 32, 64, 128),
)
FLUSH: Final = Figure(
    "sqlite_commit_flush_seconds",
    FigureKind.DISTRIBUTION,
    "Time of a commit with its flush; of a group of inserts also of the statement.",
    (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)

Written = tuple[bytes, int, bytes | None, bytes | None]
"""A changed row, with the members of `ChangedRow`."""

ROWS_MAX: Final = 200
"""Rows of one statement at most. Each number of rows has its own statement; recently used ones stay prepared."""


def only_inserts(write_set: WriteSet) -> bool:
    """Whether a statement of inserts may include the write set. One that invalidates caches may not be."""
    if write_set.invalidates_caches or len(write_set.changes) > ROWS_MAX:
        return False
    for _row, expectation, mutation in write_set.changes:
        if expectation != ABSENT or not isinstance(mutation, Put):
            return False
    return bool(write_set.changes)


def insert_together(
    execute: Callable[[str, Sequence[Any]], object],
    write_sets: Sequence[WriteSet],
    version: int,
    *,
    keeps_changes: bool,
) -> None:
    """Insert and flush all rows, up to `ROWS_MAX`, with this version, their entries, and records if they are kept.

    One call, because each waits for the interpreter when it returns. Raises the errors of `execute`, such as
    `apsw.ConstraintError` if a row exists or comes twice: then none was inserted, and the transaction may be open.
    """
    given: list[bytes | int] = []
    entries: list[bytes | int] = []
    records: list[tuple[Note, bytes, bytes]] = []
    rows = 0
    for write_set in write_sets:
        partition, changes, note = write_set.partition, write_set.changes, write_set.note
        entries_of = write_set.entries_of
        changed: list[Written] = []
        for row, _expectation, put in changes:
            assert isinstance(put, Put)
            value = put.render(version)
            given += (partition, row, version, value)
            changed.append((row, version, value, None))
            if entries_of is not None:
                for entry in entries_of(value):
                    entries += (entry, partition, row)
        rows += len(changes)
        if keeps_changes and note is not None:
            records.append((note, partition, write_rows(changed)))
    if entries or records:
        given += entries
        given += record_values(records, version)
        execute(_statements(rows, len(entries) // 3, len(records)), given)
    else:
        execute(_statement(rows), given)


@lru_cache(maxsize=STATEMENTS_KEPT)
def _statements(rows: int, entries: int, records: int) -> str:
    texts = ["BEGIN IMMEDIATE", _statement(rows)]
    if entries:
        texts.append(insert_statement(entries))
    if records:
        texts.append(record_statement(records))
    return "; ".join([*texts, "COMMIT"])


@cache
def _statement(rows: int) -> str:
    given = ", ".join(["(?, ?, ?, ?)"] * rows)
    return f"INSERT INTO stored_rows (partition, row, version, value) VALUES {given}"  # noqa: S608 - no value in it


VERSION_OF: Final = "SELECT version FROM stored_rows WHERE partition = ? AND row = ?"
ROW_OF: Final = "SELECT version, value FROM stored_rows WHERE partition = ? AND row = ?"
PUT: Final = """
INSERT INTO stored_rows (partition, row, version, value) VALUES (?, ?, ?, ?)
ON CONFLICT (partition, row) DO UPDATE SET version = excluded.version, value = excluded.value
"""
DELETE_ROW: Final = "DELETE FROM stored_rows WHERE partition = ? AND row = ?"


GROUP_CHANGES_MAX: Final = 200
"""A group with this many changes takes no more write sets, so it never blocks the loop for long."""
CHECKPOINT_PAGES: Final = 1000
"""Copy the write-ahead log into the database when it has this many pages; the rest of it before the next group."""
LOG_PAGES_MAX: Final = 4 * CHECKPOINT_PAGES
"""From this length of the log on, commits wait for the copy under way: the log must not grow faster than that."""
RESTART_PAGES: Final = 2 * CHECKPOINT_PAGES
"""From this length of the log on, a copy waits for the reads under way, so that the log can restart."""
SHORT_PAGES: Final = 64
"""While room is tight, copy the log from this length on, so that it restarts and does not grow."""
RESTART_MS_MAX: Final = 800
"""A copy waits this long for reads at most: no process can commit meanwhile."""

_log = logging.getLogger(__name__)


class _Accepted(NamedTuple):
    write_set: WriteSet
    answer: asyncio.Future[Committed | Conflict]
    only_inserts: bool


class _Group(NamedTuple):
    """Write sets that share a transaction, and the outcome of each."""

    accepted: list[_Accepted]
    outcomes: list[Committed | Conflict]


class _Task(NamedTuple):
    """A long call on the writing connection, and what then continues on the loop with its error or None."""

    loop: asyncio.AbstractEventLoop
    call: Callable[[], object]
    then: Callable[[asyncio.AbstractEventLoop, Exception | None], None]


class GroupCommit:
    """Commits write sets in groups, in the order of their arrival. `connect` makes a connection that may write."""

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        lock: CommitLock,
        clock: Clock,
        generation: Generation,
        room: DiskRoom | None = None,
    ) -> None:
        self._writer = writer = connect()
        self._copier = LogCopier(connect)
        self._lock = lock
        self._clock = clock
        self._generation = generation
        self._room = room
        self._execute = writer.cursor().execute
        self._now = 1
        """The time of the present group. All its write sets share it, so the text of a version is made once."""
        self._keeps = False
        """Whether changes are kept, as read in the present generation."""
        self._present_generation: int | None = None
        """The generation of the present group."""
        self._records: list[tuple[Note, bytes, bytes]] = []
        """The records of the present group: note, partition and written rows."""
        self._waiting: deque[_Accepted] = deque()
        self._one_by_one = 0
        """The number of waiting write sets whose group failed: each gets its own group now."""
        self._done: _Group | None = None
        """The inserts that the thread has committed, for the loop to answer."""
        self._flush_has_failed = False
        """A flush failed, and no commit has succeeded since. The failed commit is still in the log's file: a crash
        before the next commit overwrites it would bring it back."""
        self._is_busy = False
        self._idle = asyncio.Event()
        self._wal_pages = 0
        self._restart_at = RESTART_PAGES
        self._restart_wait_ms = LOCKED_MS_MAX
        self.note_growth: Callable[[], None] = lambda: None
        """Called on the loop after a commit that may have written records of changes."""
        self.group_sizes = Distribution(COMMIT_GROUP.bounds)
        self.flush_seconds = Distribution(FLUSH.bounds)
        self.lock_seconds = 0.0
        self.checkpoints = 0
        self.checkpoint_seconds = 0.0
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        writer.set_wal_hook(self._note_wal_pages)
        self._flusher = Thread(target=self._work_until_closed, name="tablestone-flush", daemon=True)
        self._flusher.start()

    def commit(self, write_set: WriteSet) -> asyncio.Future[Committed | Conflict]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Committed | Conflict] = loop.create_future()
        self._waiting.append(_Accepted(write_set, answer, only_inserts(write_set)))
        if not self._is_busy:
            self._is_busy = True
            self._idle.clear()
            # Not at once: write sets that arrive in the same turn of the loop join the group.
            loop.call_soon(self._start_group, loop)
        return answer

    @property
    def log_bytes(self) -> int:
        """The length of the log at this process's last commit."""
        return self._wal_pages * PAGE_SIZE_BYTES

    async def close(self) -> None:
        """Finish all accepted write sets, then end the thread and the connection."""
        if self._is_busy:
            await self._idle.wait()
        self._tasks.put(None)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        """The last connection of all processes to close copies the log and removes it."""
        self._flusher.join()
        self._copier.close()
        try:
            with self._lock.held():
                self._writer.close()
        except (apsw.Error, OSError) as error:
            # No commit is lost: the next start reads the log.
            _log.warning("The database could not be closed: %s", error)
        self._lock.close()

    # On the event loop's thread.

    def _start_group(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._waiting:
            self._is_busy = False
            self._idle.set()
        elif self._lock.try_take() and not self._waiting[0].only_inserts:
            self._apply_group(loop)
        else:  # while another process commits, write sets that arrive join the group
            self._tasks.put(_Task(loop, self._take_lock, self._after_lock))

    def _after_lock(self, loop: asyncio.AbstractEventLoop, error: Exception | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._finish(done, loop, None)
        elif error is not None:
            group = self._take_group()
            _answer(group, [EngineUnavailable(f"Storage cannot write now: {error}.")] * len(group))
            self._start_group(loop)
        else:
            self._apply_group(loop)

    def _apply_group(self, loop: asyncio.AbstractEventLoop) -> None:
        accepted = self._take_group()
        if not accepted:
            self._end_group(loop)
            return
        try:
            self._execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            # Another program holds SQLite's lock: each write set alone would fail too.
            _answer(accepted, [self._failure(error) for _each in accepted])
            self._end_group(loop)
            return
        try:
            changes_before = self._writer.total_changes()
            self._now = time = max(self._clock(), 1)
            self._look_whether_changes_are_kept()
            self._records.clear()
            outcomes = [self._apply(each.write_set) for each in accepted]
            if self._records:
                statement = record_statement(len(self._records))
                self._execute(statement, record_values(self._records, time))
            if self._writer.total_changes() != changes_before:
                if any(each.write_set.invalidates_caches for each in accepted):
                    self._generation.begin()
                finish = partial(self._finish, _Group(accepted, outcomes))
                commit = partial(self._commit, len(accepted))
                self._tasks.put(_Task(loop, commit, finish))
                return
            self._execute("ROLLBACK")  # nothing was written: nothing to flush
            self._generation.end()  # a dead process may have left it begun
        except Exception as failure:  # noqa: BLE001 - a caller's `render` may raise anything
            self._undo(accepted, failure)
        else:
            _answer(accepted, outcomes)
        self._end_group(loop)

    def _apply(self, write_set: WriteSet) -> Committed | Conflict:
        """Apply the whole write set to the open transaction, or nothing."""
        partition, now = write_set.partition, self._now
        if self._is_outdated(write_set):
            return OUTDATED
        entries_of = write_set.entries_of
        # For each row: the entries that it may lose, and those that it keeps or gets.
        indexed: list[tuple[bytes, Sequence[bytes], Sequence[bytes]]] = []
        versions = [0] * len(write_set.changes)
        changed: list[Written] = []
        # A row that is created again in this group must not get an earlier version again.
        latest_deleted = ABSENT
        for index, change in enumerate(write_set.changes):
            row, value = change.row, None
            if entries_of is not None or isinstance(change.mutation, Update):
                found = self._execute(ROW_OF, (partition, row)).get
                version_found, value = found or (ABSENT, None)
            else:
                version_found = self._execute(VERSION_OF, (partition, row)).get or ABSENT
            mutation = effect_of(change, index, version_found, value)
            if isinstance(mutation, Conflict):
                return mutation
            if isinstance(mutation, Put):
                versions[index] = version = max(now, version_found + 1)
                replaced = mutation.before if self._keeps else None
                before = None if replaced is None else replaced()
                rendered = mutation.render(version)
                changed.append((row, version, rendered, before))
                if entries_of is not None:
                    old = () if value is None else entries_of(value)
                    indexed.append((row, old, entries_of(rendered)))
            elif isinstance(mutation, Reindex):
                kept = () if value is None or entries_of is None else entries_of(value)
                indexed.append((row, [each for each in mutation.stale if each not in kept], kept))
            elif mutation is not None and version_found != ABSENT:
                changed.append((row, version_found, None, None))
                latest_deleted = max(latest_deleted, version_found)
                if entries_of is not None and value is not None:
                    indexed.append((row, entries_of(value), ()))
        for row, version, stored, _before in changed:
            if stored is None:
                self._execute(DELETE_ROW, (partition, row))
            else:
                self._execute(PUT, (partition, row, version, stored))
        if entries_of is not None:
            for row, old, new in indexed:
                try:
                    change_entries(self._execute, partition, row, old, new)
                except apsw.SQLError:
                    if not make_table(self._writer):
                        raise
                    change_entries(self._execute, partition, row, old, new)
        if self._keeps and changed and write_set.note is not None:
            self._records.append((write_set.note, partition, write_rows(changed)))
        self._now = max(now, latest_deleted + 1)
        if write_set.invalidates_caches:  # the generation changes only after the group
            self._present_generation = None
        return Committed(versions)

    def _is_outdated(self, write_set: WriteSet) -> bool:
        """Whether a row that the write set relies on has changed: 7 µs a row, or 0.1 µs by the generation."""
        relies_on = write_set.relies_on
        if relies_on is None or relies_on.generation == self._present_generation is not None:
            return False
        return any(
            (self._execute(VERSION_OF, key).get or ABSENT) != version
            for key, version in relies_on.rows
        )

    def _end_group(self, loop: asyncio.AbstractEventLoop) -> None:
        self._lock.release()
        loop.call_soon(self._start_group, loop)

    def _take_group(self) -> list[_Accepted]:
        group: list[_Accepted] = []
        changes = 0
        while self._waiting and changes < GROUP_CHANGES_MAX:
            accepted = self._waiting.popleft()
            is_alone = self._one_by_one > 0
            self._one_by_one -= is_alone
            if not accepted.answer.done():  # else its caller was cancelled while it waited
                group.append(accepted)
                changes += len(accepted.write_set.changes)
                if is_alone:
                    break
        return group

    def _finish(
        self, group: _Group, loop: asyncio.AbstractEventLoop, error: Exception | None
    ) -> None:
        if error is not None:
            self._undo(group.accepted, error)
            self._generation.end()
            self._lock.release()
        else:
            _answer(group.accepted, group.outcomes)
            if self._keeps:
                self.note_growth()
            if self._lock.is_held:
                self._tasks.put(_Task(loop, self._checkpoint, self._after_checkpoint))
                return
        self._start_group(loop)

    def _after_checkpoint(self, loop: asyncio.AbstractEventLoop, error: Exception | None) -> None:
        if error is not None:  # the log is still complete; the next flush tries again
            _log.warning("The write-ahead log could not be copied into the database: %s", error)
        self._start_group(loop)

    def _undo(self, group: list[_Accepted], error: Exception) -> None:
        """Undo a failed group. A single write set gets the error; of several, each is tried again alone."""
        if getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_FSYNC:
            self._flush_has_failed = True
        self._roll_back()
        if len(group) == 1:
            _answer(group, [self._failure(error) if isinstance(error, apsw.Error) else error])
        else:
            self._waiting.extendleft(reversed(group))
            self._one_by_one += len(group)

    def _roll_back(self) -> None:
        try:
            if self._writer.in_transaction:  # SQLite itself rolls back after some errors
                self._execute("ROLLBACK")
        except apsw.Error as worse:
            _log.warning("A failed transaction could not be rolled back: %s", worse)

    def _look_whether_changes_are_kept(self) -> None:
        """Read the setting inside the commit if the generation has changed: each change of the setting ends one."""
        generation = self._generation.current
        if generation is None or generation != self._present_generation:
            self._keeps = kept_for(self._writer) is not None
            self._present_generation = generation

    def _failure(self, error: apsw.Error) -> EngineUnavailable | OutcomeUnknown:
        if self._flush_has_failed:
            return OutcomeUnknown(f"Storage could not flush: {error}.")
        refused = unavailable("write", error)
        refused.__cause__ = error
        return refused

    # On the thread of long calls.

    def _work_until_closed(self) -> None:
        while (task := self._tasks.get()) is not None:
            error: Exception | None = None
            try:
                task.call()
            except Exception as raised:  # noqa: BLE001 - the callers get any error
                error = raised
            try:
                task.loop.call_soon_threadsafe(task.then, task.loop, error)
            except RuntimeError:  # the loop was closed without `close`: no caller is left
                return

    def _take_lock(self) -> None:
        """Wait for the lock. Commit inserts here: a return to the loop would hold the lock for longer."""
        if not self._lock.is_held:
            asked = monotonic_seconds()
            self._lock.take()
            self.lock_seconds += monotonic_seconds() - asked
        group = self._take_inserts()
        if not group:
            return
        version = max(self._clock(), 1)
        write_sets = [each.write_set for each in group]
        begun = monotonic_seconds()
        try:
            self._look_whether_changes_are_kept()
            if any(map(self._is_outdated, write_sets)):
                self._waiting.extendleft(reversed(group))  # the loop gives each its own outcome
                return
            insert_together(self._execute, write_sets, version, keeps_changes=self._keeps)
        except Exception as error:  # noqa: BLE001 - the loop applies the group and meets the error again
            _log.debug("A group of inserts is applied one by one: %s", error)
            self._roll_back()
            self._waiting.extendleft(reversed(group))
        else:
            self._done = _Group(
                group, [Committed([version] * len(each.changes)) for each in write_sets]
            )
            self._committed(len(group), begun)

    def _take_inserts(self) -> list[_Accepted]:
        """The first waiting write sets, up to `ROWS_MAX` rows, if all only insert; else none."""
        if self._one_by_one:
            return []
        group: list[_Accepted] = []
        rows = 0
        for accepted in list(islice(self._waiting, ROWS_MAX)):  # a copy, because the loop appends
            rows += len(accepted.write_set.changes)
            if rows > ROWS_MAX:
                break
            if not accepted.only_inserts:
                return []
            group.append(accepted)
        for _each in group:
            self._waiting.popleft()
        return [each for each in group if not each.answer.done()]  # else its caller was cancelled

    def _commit(self, write_sets: int) -> None:
        begun = monotonic_seconds()
        self._execute("COMMIT")
        self._committed(write_sets, begun)

    def _committed(self, write_sets: int, begun: float) -> None:
        """Let the next process commit, but keep the lock if the rest of the log has to be copied first."""
        self.flush_seconds.add(monotonic_seconds() - begun)
        self.group_sizes.add(write_sets)
        self._flush_has_failed = False
        self._generation.end()
        pages = self._wal_pages
        if self._room is not None and self._room.is_tight_after_commit(pages, PAGE_SIZE_BYTES):
            if pages < SHORT_PAGES:
                self._lock.release()
        elif pages < CHECKPOINT_PAGES or not (
            self._copier.has_copied(pages) or pages >= LOG_PAGES_MAX
        ):
            self._lock.release()

    def _checkpoint(self) -> None:
        """Copy the rest of the log into the database.

        No process commits now, and single reads of this process have ended, because they run on the loop, which asked
        for this call. If no snapshot needs the log either, the next commit restarts it, which limits its length. A read
        of another process may prevent that; if this goes on, the copy waits for such reads, longer each time. While a
        snapshot outlasts the wait, the log grows.
        """
        begun = monotonic_seconds()
        try:
            self._copier.finish()
            if self._wal_pages < self._restart_at:
                with suppress(apsw.BusyError):  # another process is copying
                    self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                return
            self._restart_at = self._wal_pages + CHECKPOINT_PAGES
            self._writer.set_busy_timeout(self._restart_wait_ms)
            self._restart_wait_ms = min(2 * self._restart_wait_ms, RESTART_MS_MAX)
            with suppress(apsw.BusyError):
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
                self._restart_at, self._restart_wait_ms = RESTART_PAGES, LOCKED_MS_MAX
        finally:
            self._writer.set_busy_timeout(LOCKED_MS_MAX)
            self._lock.release()
            self.checkpoints += 1
            self.checkpoint_seconds += monotonic_seconds() - begun

    def _note_wal_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK


def _answer(group: list[_Accepted], outcomes: Sequence[Committed | Conflict | Exception]) -> None:
    for (_write_set, answer, _only_inserts), outcome in zip(group, outcomes, strict=True):
        if answer.done():  # its caller was cancelled
            continue
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)
