"""Writes base copies: all rows, scanned in short reads beside the commits, in parts of some MiB.

A copy may take its time, and a request may not: each read is compressed and hashed at once, and followed by a rest in
proportion to the processor time of it all. Its thread has no lower priority: one that holds the interpreter and waits
for a core would hold up all requests.

A copy begins after a record, START, and ends at another, LAST. Its rows are of different moments in between; with all
records from START + 1 to LAST applied in order, they are of one. The object `end` lists the parts and comes last, when
those records are archived. A copy that was interrupted goes on in the next term of its life.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from tablestone.archive.history import Life, Line, present, read_bases, read_lives, read_named
from tablestone.archive.objects import (
    Compressed,
    Kind,
    ObjectDamaged,
    ObjectRefused,
    write_records,
    zstd_library,
)
from tablestone.clock import monotonic_seconds, process_seconds, thread_seconds
from tablestone.engines import change_record
from tablestone.engines.contract import Key, StoredRow
from tablestone.engines.sqlite.archive_source import StoredRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tablestone.archive.history import Range
    from tablestone.archive.terms import OwnTerm
    from tablestone.engines.sqlite.archive_source import ArchiveSource

PART_BYTES: Final = 8 << 20
"""About how many bytes of rows a part has, before it is compressed."""
EVERY_SECONDS: Final = 86_400.0
"""Seconds between two base copies."""
GAP_SECONDS: Final = 3600.0
"""Seconds between two base copies that gaps ask for."""
READ_BYTES: Final = 64 << 10
"""About how many bytes are read, compressed and hashed at once: requests wait for the interpreter meanwhile."""
REST: Final = 9.0
"""Seconds of rest for each second of processor time, while the process has nothing else to do."""
BUSY: Final = 29.0
"""How much longer a rest becomes while the process keeps a core busy: the copy takes its time from requests."""
COPY_SECONDS: Final = 28_800.0
"""A copy of much data rests less, so that reading it takes no longer."""
WAIT_SECONDS: Final = 0.5
"""Seconds between two looks whether the changes of meanwhile are archived."""

log = logging.getLogger(__name__)


class Part(NamedTuple):
    """A part of a base copy, as its end lists it."""

    term: int
    number: int
    sha256: str
    rows: int
    reached: int
    """No row has a commit after this record."""
    after: str | None
    """The key after which it begins, in hexadecimal digits: that of the last row of the part before."""
    last: str
    """The key of its last row."""


class _Body:
    """The body of a part. It is compressed and hashed while it is read, so that nothing takes long at once."""

    def __init__(self, after: str | None) -> None:
        self.size = self.rows = 0
        self.last: str | None = None
        """The key of its last row."""
        self._after = after
        self._compressor = zstd_library().ZstdCompressor()
        self._hash = hashlib.sha256()
        self._pieces: list[bytes] = []

    def read(self, source: ArchiveSource) -> float:
        """Add the next rows, if there are any; returns the processor time that it took."""
        began = thread_seconds()
        rows = source.rows(_key(self.last or self._after), min(READ_BYTES, PART_BYTES))
        if rows:
            plain = write_records(_as_records(rows))
            self._hash.update(plain)
            self._pieces.append(self._compressor.compress(plain))
            self.size += len(plain)
            self.rows += len(rows)
            self.last = f"{rows[-1].partition.hex()}/{rows[-1].row.hex()}"
        return thread_seconds() - began

    def finish(self) -> tuple[Compressed, str]:
        """The whole body, and the checksum of what it compresses."""
        self._pieces.append(self._compressor.flush())
        return Compressed(b"".join(self._pieces)), self._hash.hexdigest()


class BaseCopies:
    """Writes base copies, and knows what the archive can restore by them."""

    CANNOT: Final = "The base copy in {} cannot be written."
    STUCK: Final = "The base copy in {} does not go on:"

    def __init__(
        self, source: ArchiveSource, ticks: Callable[[], int], elapsed: Callable[[], float]
    ) -> None:
        self.is_restorable = False
        """Whether a base copy of this life is complete."""
        self.needs_old_key = False
        """Whether all base copies are encrypted with an older key, or cannot be read."""
        self.newest_at = -math.inf
        """When the newest one ended, by the clock that never steps back."""
        self.copying: int | None = None
        """The start of the newest one: nothing of it is left over."""
        self.gap: Range | None = None
        """The newest records that were not archived, until a base copy closes the gap."""
        self.went_on_at = elapsed()
        """When the one under way has read or written something last."""
        self._source = source
        self._ticks = ticks
        self._elapsed = elapsed
        self._looked_at = monotonic_seconds(), process_seconds()

    @property
    def due(self) -> float:
        if not self.is_restorable or self.needs_old_key:
            return -math.inf
        return self.newest_at + (EVERY_SECONDS if self.gap is None else GAP_SECONDS)

    async def begin(self, term: OwnTerm, line: Line, *, is_whole: bool) -> None:
        """A term has begun; not `is_whole`: records before its first one were never archived."""
        problems: list[Exception] = []
        bases = await read_bases(term.store, line, term.keys, problems)
        is_refused = any(isinstance(problem, ObjectRefused) for problem in problems)
        self.is_restorable = any(base.reach >= term.archived for base in bases)
        is_newest = bool(bases) and bases[-1].name == line.bases[-1][0]
        self.needs_old_key = (is_refused and not is_newest) or (
            bool(bases) and bases[-1].key != term.key
        )
        self.newest_at = -math.inf
        if bases and is_whole:
            lives = line.lives
            now = await asyncio.to_thread(present, lives.values(), self._ticks())
            ended = lives[bases[-1].name.life].found[bases[-1].name].modified
            if ended <= now:  # or its time is wrong
                self.newest_at = self._elapsed() - (now - ended)

    async def run(self, term: OwnTerm) -> None:
        """Write a base copy, or go on with one that was interrupted."""
        source = self._source
        self.went_on_at = self._elapsed()
        ends = await asyncio.to_thread(source.ends)
        line = await _line(term)
        start, parts = await self._unfinished(term, line)
        if not parts:
            start = self.copying = ends.last
            present = term.name(Kind.BASE, start)
            readable = await read_bases(term.store, line, term.keys[:1])
            if any(base.name == present for base in readable):
                self._ended(start)  # nothing was committed since
                return
        while True:
            after = parts[-1].last if parts else None
            read = await self._read(after)
            if (last := read.last) is None:
                break
            body, digest = await asyncio.to_thread(read.finish)
            reached = (await asyncio.to_thread(source.ends)).last
            part = Part(term.term.number, len(parts) + 1, digest, read.rows, reached, after, last)
            name = term.name(Kind.BASE, start, part=part.number)
            await term.create(name, {"part": part}, body, term.key)
            parts.append(part)
        ends = await asyncio.to_thread(source.ends)
        # Before it is archived: from then on it may be removed here.
        newest = await asyncio.to_thread(source.record, ends.last)
        while term.archived < ends.last:  # the next turns write them
            self.went_on_at = self._elapsed()
            await asyncio.sleep(WAIT_SECONDS)
        facts = {
            "last": ends.last,
            "time": self._ticks() if newest is None else newest.time,
            "storage": ends.storage.hex(),
            "parts": parts,
        }
        name = term.name(Kind.BASE, start)
        await term.create(name, facts, b"", term.key)
        reach = (await _line(term)).reach(start + 1)
        if reach < ends.last:
            raise ObjectDamaged(f"{name} is incomplete: the archive lacks record {reach + 1:,}.")
        self._ended(start)
        log.info("base copy of %d rows in %d parts", sum(each.rows for each in parts), len(parts))

    async def _read(self, after: str | None) -> _Body:
        """The body of the part that begins after a key."""
        body = _Body(after)
        # The most seconds for a byte, anew for each part: data may be loaded meanwhile.
        pace = COPY_SECONDS / await asyncio.to_thread(self._source.database_bytes)
        while body.size < PART_BYTES:
            self.went_on_at, size = self._elapsed(), body.size
            spent = await asyncio.to_thread(body.read, self._source)
            if body.size == size:
                break
            await asyncio.sleep(min(self._rest(spent), pace * (body.size - size)))
        return body

    def _rest(self, spent: float) -> float:
        """Seconds to rest after processor time was spent: more if the process was busy since the last rest began."""
        before, self._looked_at = self._looked_at, (monotonic_seconds(), process_seconds())
        passed, used = (now - then for now, then in zip(self._looked_at, before, strict=True))
        others = max(used - spent, 0.0) / max(passed, 0.001)
        return spent * REST * (1 + BUSY * min(others, 1.0))

    def _ended(self, start: int) -> None:
        self.newest_at = self._elapsed()
        self.is_restorable, self.needs_old_key = True, False
        if self.gap is not None and self.gap.last <= start:
            self.gap = None

    async def _unfinished(self, term: OwnTerm, line: Line) -> tuple[int, list[Part]]:
        """The start and the parts of a copy of this life that did not end, if no record after its start is missing."""
        life = line.lives[term.life]
        names = [name for name in life.found if name.kind is Kind.BASE and name.part is not None]
        starts = {name.first for name in names} - {name.first for name in life.found if name.is_end}
        for start in sorted(starts, reverse=True):
            if await asyncio.to_thread(line.reach, start + 1) < max(term.archived, start):
                continue
            self.copying = start  # before its parts are read: some may be old enough to be deleted
            found: list[Part] = []
            for name in sorted(names, key=lambda name: (name.part, -name.term)):
                if name.first != start or name.part != len(found) + 1:
                    continue
                self.went_on_at = self._elapsed()
                try:
                    facts = (await read_named(term.store, name, term.keys[:1])).facts
                except (ObjectDamaged, ObjectRefused):
                    break
                part = Part(*facts["part"])
                # What a term scanned after the next one's first record may be of another history.
                is_own = part.reached <= life.limit(part.term)
                if is_own and part.after == (found[-1].last if found else None):
                    found.append(part)
            return start, found
        return 0, []


async def _line(term: OwnTerm) -> Line:
    """What is there of this life alone. A listing may not show a new one yet."""
    lives = await read_lives(term.store, only=term.life)
    return await asyncio.to_thread(Line.of, {term.life: Life(term.life)} | lives, term.life)


def _key(text: str | None) -> Key | None:
    return None if text is None else Key(*map(bytes.fromhex, text.split("/")))


def _as_records(rows: Iterable[StoredRow]) -> Iterable[StoredRecord]:
    """Rows as records of changes that put them, one for each partition."""
    for partition, group in groupby(rows, attrgetter("partition")):
        put = change_record.write_rows(
            (row, version, value, None) for _, row, version, value in group
        )
        yield StoredRecord(0, 0, b"", b"", partition, put)
