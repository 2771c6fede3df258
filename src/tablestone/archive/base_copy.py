"""Writes base copies: all rows, scanned in short reads beside the commits, in parts of some MiB.

A copy begins after a record, START, and ends at another, LAST. Its rows are of different moments in between; with all
records from START + 1 to LAST applied in order, they are of one. The object `end` lists the parts and comes last, when
those records are archived. A copy that was interrupted goes on in the next term of its life.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from tablestone.archive.history import BaseCopy, Life, Line, read_bases, read_lives, read_named
from tablestone.archive.objects import Kind, Name, ObjectDamaged, ObjectRefused, write_rows
from tablestone.engines.contract import Key

if TYPE_CHECKING:
    from tablestone.archive.archiver import Archiver

PART_BYTES: Final = 8 << 20
"""About how many bytes of rows a part has, before it is compressed."""
EVERY_SECONDS: Final = 86_400.0
"""Seconds between two base copies."""
GAP_SECONDS: Final = 3600.0
"""Seconds between two base copies that gaps ask for."""
REST: Final = 1.0
"""Seconds of rest for each second of work, so that requests go on."""

log = logging.getLogger(__name__)


KeyText = tuple[str, str]
"""Partition and row in hexadecimal digits."""


class Part(NamedTuple):
    """A part of a base copy, as its end lists it."""

    term: int
    number: int
    sha256: str
    rows: int
    after: KeyText | None
    """The key after which it begins: the last key of the part before."""
    last: KeyText
    """The key of its last row."""


def next_due(archiver: Archiver) -> float:
    """When the next copy is due, by the clock that never steps back."""
    if not archiver.is_restorable or archiver.needs_old_key:
        return 0.0
    latest = archiver.newest_base_at
    if archiver.gap is not None:
        return latest + GAP_SECONDS
    return latest + EVERY_SECONDS


async def write(archiver: Archiver) -> None:
    """Write a base copy, or go on with one that was interrupted."""
    begun = archiver.begun
    assert begun is not None
    source = archiver.source
    ends = await asyncio.to_thread(source.ends)
    lives = await _listed(archiver, begun.life)
    start, parts = await _unfinished(archiver, lives[begun.life])
    if not parts:
        start = archiver.copying = ends.last
        for base in await read_bases(archiver.store, Line.of(lives, begun.life), archiver.keys[:1]):
            if base.name[:4] == (begun.life, Kind.BASE, begun.term.number, start):
                archiver.note_base(start)  # nothing was committed since
                return
    after = None if not parts else Key(*map(bytes.fromhex, parts[-1].last))
    while rows := await asyncio.to_thread(source.rows, after, PART_BYTES):
        began = archiver.elapsed()
        last = rows[-1]
        after = Key(last.partition, last.row)
        name = Name(begun.life, Kind.BASE, begun.term.number, start, part=len(parts) + 1)
        body = await asyncio.to_thread(write_rows, rows)
        part = Part(
            name.term,
            len(parts) + 1,
            hashlib.sha256(body).hexdigest(),
            len(rows),
            parts[-1].last if parts else None,
            (last.partition.hex(), last.row.hex()),
        )
        await archiver.create(name, {"part": part}, body, archiver.key)
        parts.append(part)
        await asyncio.sleep(REST * (archiver.elapsed() - began))
    ends = await asyncio.to_thread(source.ends)
    await archiver.reach(ends.last)
    newest = await asyncio.to_thread(source.record, ends.last)
    facts = {
        "last": ends.last,
        "time": archiver.ticks() if newest is None else newest.time,
        "storage": (await asyncio.to_thread(source.storage_id)).hex(),
        "parts": parts,
    }
    name = Name(begun.life, Kind.BASE, begun.term.number, start)
    await archiver.create(name, facts, b"", archiver.key)
    line = Line.of(await _listed(archiver, begun.life), begun.life)
    base = BaseCopy(name, start, ends.last, line.reach(start + 1), facts)
    if base.end > base.reach:
        raise ObjectDamaged(f"{name} is incomplete: the archive lacks record {base.reach + 1:,}.")
    archiver.note_base(start)
    log.info("base copy of %d rows in %d parts", sum(each.rows for each in parts), len(parts))


async def _listed(archiver: Archiver, life: str) -> dict[str, Life]:
    """This life. A listing may not show a new one yet."""
    return {life: Life(life)} | await read_lives(archiver.store, only=life)


async def _unfinished(archiver: Archiver, life: Life) -> tuple[int, list[Part]]:
    """The start and the parts of a copy of this life that did not end, if no record after its start is missing."""
    ended = {name.first for name in life.bases()}
    parts = [name for name in life.found if name.kind is Kind.BASE and name.part is not None]
    line = Line.of({life.life: life}, life.life)
    for start in sorted({name.first for name in parts} - ended, reverse=True):
        if line.reach(start + 1) < max(archiver.archived, start):
            continue
        archiver.copying = start  # before its parts are read: some may be old enough to be deleted
        found: list[Part] = []
        for name in sorted(parts, key=lambda name: (name.part, -name.term)):
            if name.first != start or name.part != len(found) + 1:
                continue
            try:
                facts = (await read_named(archiver.store, name, archiver.keys[:1])).facts
            except (ObjectDamaged, ObjectRefused):
                break
            part = Part(*facts["part"])
            if (part.after and tuple(part.after)) == (found[-1].last if found else None):
                found.append(part._replace(last=(part.last[0], part.last[1])))
        return start, found
    return 0, []
