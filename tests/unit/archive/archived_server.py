"""A data directory that is written and archived without a server: real engine, real archiver, no waiting."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from storage.write_sets import put
from tablestone.archive.archiver import Archiver
from tablestone.archive.going_back import find_goal, restore
from tablestone.archive.history import Term
from tablestone.archive.objects import Kind, Name, read_object
from tablestone.archive.store import DirectoryStore
from tablestone.clock import UNIX_EPOCH_TICKS
from tablestone.configuration import ArchiveSettings
from tablestone.engines.change_record import Note
from tablestone.engines.contract import ANY, DELETE, Change, Committed, WriteSet
from tablestone.engines.kind import Opening
from tablestone.engines.sqlite.data_directory import DATABASE_NAME
from tablestone.engines.sqlite.encryption import connect
from tablestone.engines.sqlite.engine import SqliteEngine
from tablestone.engines.sqlite.restored_directory import RestoredDirectory
from unit.archive.stores import BEGAN, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tablestone.archive.store import Store
    from tablestone.archive.terms import OwnTerm
    from tablestone.engines.kind import EncryptionKey

SECOND = 10_000_000
URL = "s3://bucket/tables"
Rows = dict[tuple[bytes, bytes], tuple[int, bytes]]
"""Versions and values."""
TURNS_MAX = 200
MEMORY = Path("/dev/shm")  # noqa: S108 - no secret is in it


class Clock:
    """The wall clock of a server, in ticks, and the one that never steps back, in seconds."""

    def __init__(self) -> None:
        self.ticks = int(BEGAN) * SECOND + UNIX_EPOCH_TICKS
        self.seconds = 1_000.0

    def __call__(self) -> int:
        return self.ticks

    def elapsed(self) -> float:
        return self.seconds

    def move(self, seconds: float) -> None:
        self.ticks += int(seconds * SECOND)
        self.seconds += seconds


class ArchivedServer:
    """Writes to a directory, and archives it when a test says so."""

    def __init__(
        self,
        data: Path,
        store: Store,
        clock: Clock | None = None,
        *,
        url: str = URL,
        keys: Sequence[EncryptionKey] = (),
        key: EncryptionKey | None = None,
        retention: int | None = None,
    ) -> None:
        self.data = data
        self.store = store
        self.clock = clock or Clock()
        self.settings = ArchiveSettings(url, 0, retention, keys=tuple(keys))
        self.engine = SqliteEngine(data, self.clock, Opening.SERVER, key=key)
        self.source = self.engine.archive_source()
        self.source.keep()
        self.archiver = self.new_archiver()
        self.model = self.rows()
        """The rows, by what was committed."""
        self.states: dict[int, Rows] = {}
        """The model after each record."""
        self.times: dict[int, int] = {}
        self.note_state()

    def new_archiver(self) -> Archiver:
        return Archiver(
            *(self.store, self.source, self.settings, self.clock, self.clock.elapsed), self.data
        )

    @property
    def last(self) -> int:
        return self.source.ends().last

    @property
    def term(self) -> OwnTerm:
        assert self.archiver.term is not None
        return self.archiver.term

    @property
    def life(self) -> str:
        return self.term.life

    @property
    def parent(self) -> tuple[str, int] | None:
        """The life that this one goes on from, and the last record of it."""
        name = Name(self.life, Kind.TERM, 1)
        if isinstance(self.store, DirectoryStore):
            stored = (self.store._root / str(name)).read_bytes()
        else:
            assert isinstance(self.store, MemoryStore)
            stored = self.store.objects[str(name)][0]
        return Term.of(read_object(name, stored).facts).parent

    @property
    def warnings(self) -> list[str]:
        return [sentence for seconds, sentence in self.archiver.warnings if seconds <= 0]

    def rows(self) -> Rows:
        return {(row[0], row[1]): (row[2], row[3]) for row in self.source.rows(None, 1 << 30)}

    def note_state(self) -> None:
        last = self.last
        record = self.source.record(last)
        self.states[last] = self.model.copy()
        self.times[last] = self.clock() if record is None else record.time

    async def commit(self, partition: bytes, rows: dict[bytes, bytes | None]) -> int:
        """Put or delete rows in one commit; returns the number of its record."""
        changes = [
            Change(row, ANY, DELETE if value is None else put(value)) for row, value in rows.items()
        ]
        outcome = await self.engine.commit(WriteSet(partition, changes, note=Note(b"s", b"a")))
        assert isinstance(outcome, Committed)
        for version, (row, value) in zip(outcome.versions, rows.items(), strict=True):
            if value is None:
                self.model.pop((partition, row), None)
            else:
                self.model[partition, row] = version, value
        self.note_state()
        return self.last

    async def write(self, count: int = 1, value: bytes = b"v") -> int:
        for _number in range(count):
            number = self.last + 1
            await self.commit(
                b"p%d" % (number % 2), {b"r%d" % (number % 3): b"%b%d" % (value, number)}
            )
        return self.last

    async def turn(self) -> None:
        await take_turn(self.archiver)

    async def catch_up(self) -> None:
        """Archive everything, with a base copy if none is there."""
        for _turn in range(TURNS_MAX):
            await self.turn()
            done = self.archiver
            is_idle = done.failing is None and done.term is not None and not done._beside
            if is_idle and done.base_copies.is_restorable and self.term.archived == self.last:
                await self.turn()  # an idle one notes what is archived
                return
        raise AssertionError(f"not archived after {TURNS_MAX} turns: {self.warnings}")

    async def close(self) -> None:
        """Stop at once, as if killed: nothing more is archived."""
        for task in self.archiver._beside.values():
            task.cancel()
        await asyncio.gather(*self.archiver._beside.values(), return_exceptions=True)
        self.source.close()
        await self.engine.close()

    async def again(self, **changed: object) -> ArchivedServer:
        """Stop at once and start again."""
        await self.close()
        return self._another(self.data, changed)

    def _another(self, data: Path, changed: dict[str, object]) -> ArchivedServer:
        settings = self.settings
        given: dict[str, object] = {
            "url": settings.url,
            "keys": settings.keys,
            "retention": settings.retention_seconds,
            "store": self.store,
            "clock": self.clock,
        }
        server = ArchivedServer(data, **{**given, **changed})  # type: ignore[arg-type]
        server.states = {**self.states, **server.states}
        server.times = {**self.times, **server.times}
        return server

    async def copied(self, to: Path) -> Path:
        """Stop, and copy the directory."""
        await self.close()
        shutil.copytree(self.data, to)
        return to


async def take_turn(archiver: Archiver) -> None:
    """What the archiver does each second, and what it begins beside. What failed is tried again at once."""
    archiver._retry = dict.fromkeys(archiver._retry, 0.0)
    await archiver.turn()
    while under_way := [task for task in archiver._beside.values() if not task.done()]:
        await asyncio.wait(under_way, timeout=0.01)
        if any(not task.done() for task in under_way):
            await archiver.turn()


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        yield Path(directory)


def rows_in(data: Path, key: EncryptionKey | None = None) -> Rows:
    opened = connect(str(data / DATABASE_NAME), apsw.SQLITE_OPEN_READONLY, key)
    found: Any = opened.execute("SELECT partition, row, version, value FROM stored_rows").fetchall()
    opened.close()
    return {(row[0], row[1]): (row[2], row[3]) for row in found}


async def restored(
    store: Store,
    life: str | None = None,
    *,
    to: int | None = None,
    moment: int | None = None,
    keys: Sequence[EncryptionKey] = (),
    now: float = BEGAN + 1e9,
    into: Path | None = None,
) -> tuple[int, Rows]:
    """Restore from an archive: the last record, and the rows."""
    with scratch() as directory:
        data = into or directory / "restored"
        goal = await find_goal(store, keys, life, to, moment, now)
        with RestoredDirectory(data) as target:
            newest = await restore(store, keys, goal, target, URL, lambda _done, _whole: None)
            assert newest.number == goal.number
            target.finish()
        return goal.number, rows_in(data)
