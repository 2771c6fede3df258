"""Keeps an archive small: joins the objects of changes, and deletes what lies before the horizon.

Only the newest term does this, and it looks for a later one before each deletion. Ages are of the store's clock: its
present time is that of the newest object. Objects are deleted an hour after they were joined, so a reader that listed
them has time to read them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tablestone.archive.history import EVER, Line, read_bases, read_lives
from tablestone.archive.objects import (
    Entry,
    Kind,
    Name,
    ObjectDamaged,
    ObjectRefused,
    fitting_key,
    read_object,
    read_records,
    write_records,
)
from tablestone.archive.store import ObjectMissing, StoreUnavailable
from tablestone.archive.terms import TermLost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tablestone.archive.archiver import Archiver
    from tablestone.archive.history import Life, Piece
    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.sqlite.archive_source import StoredRecord

EVERY_SECONDS: Final = 3600.0
JOIN_SECONDS: Final = 3600.0
"""Objects of changes are joined when they are this old, and deleted when the joined one is."""
JOINED_BYTES: Final = 8 << 20
"""About how many bytes of records a joined object has, before it is compressed."""
JOINED_ENTRIES_MAX: Final = 1_000
UNFINISHED_SECONDS: Final = 86_400.0
"""A base copy without its end goes when its last part is this old."""

log = logging.getLogger(__name__)


def next_due(archiver: Archiver) -> float:
    return archiver.looked_after_at + EVERY_SECONDS


async def look_after(archiver: Archiver) -> None:
    archiver.looked_after_at = archiver.elapsed()
    assert archiver.begun is not None
    lives = await read_lives(archiver.store)
    own = lives.get(archiver.begun.life)
    if own is None or Name(own.life, Kind.TERM, archiver.begun.term.number) not in own.found:
        raise TermLost("the archive has lost objects of its life")
    now = max(life.written for life in lives.values())
    await _join(archiver, own, now - JOIN_SECONDS)
    names = list(_joined(own, now - JOIN_SECONDS)) + list(_left_over(own, now - UNFINISHED_SECONDS))
    seconds = archiver.settings.retention_seconds
    if seconds is not None:
        names += await _past(archiver, lives, own, now - seconds)
    await _delete(archiver, dict.fromkeys(names))


async def _join(archiver: Archiver, own: Life, until: float) -> None:
    """Join the objects of changes that were stored before a time, those of each key for themselves."""
    assert archiver.begun is not None
    waiting: list[tuple[StoredRecord, ...]] = []
    entries: list[Entry] = []
    size, key = 0, None

    async def write() -> None:
        nonlocal size
        if len(waiting) > 1:
            records = [record for each in waiting for record in each]
            name = Name(
                *(own.life, Kind.JOINED, archiver.begun.term.number),  # type: ignore[union-attr]
                *(records[0].number, records[-1].number),
            )
            await archiver.create(name, {"entries": entries}, write_records(records), key)
        waiting.clear()
        entries.clear()
        size = 0

    for piece in Line.of({own.life: own}, own.life).cover(1, EVER)[0]:
        found = own.found[piece.name]
        if piece.name.kind is Kind.JOINED or found.modified > until:
            await write()
            continue
        try:
            stored = await archiver.store.read(str(piece.name))
            content = read_object(piece.name, stored, archiver.keys)
        except (ObjectDamaged, ObjectMissing, ObjectRefused):  # `check` reports it
            await write()
            continue
        its_key: EncryptionKey | None = fitting_key(piece.name, stored, archiver.keys)
        if waiting and (
            its_key != key
            or piece.first != waiting[-1][-1].number + 1
            or size + len(content.body) > JOINED_BYTES
            or len(entries) >= JOINED_ENTRIES_MAX
        ):
            await write()
        key = its_key
        waiting.append(tuple(_within(piece, read_records(content.body))))
        size += len(content.body)
        for entry in content.facts["entries"]:
            given = Entry(*entry)
            first, last = max(given.first, piece.first), min(given.last, piece.last)
            if first <= last:
                entries.append(given._replace(first=first, last=last, stored=found.modified))
    await write()


def _within(piece: Piece, records: Iterable[StoredRecord]) -> Iterator[StoredRecord]:
    return (record for record in records if piece.first <= record.number <= piece.last)


def _joined(own: Life, until: float) -> Iterator[Name]:
    """The objects of changes that one object has held since before a time, joined."""
    joined = [
        piece
        for piece in own.pieces()
        if piece.name.kind is Kind.JOINED and own.found[piece.name].modified <= until
    ]
    line = Line({}, joined, [])
    for piece in own.pieces():
        if piece.name.kind is Kind.CHANGES and not line.cover(piece.first, piece.last)[1]:
            yield piece.name


def _left_over(own: Life, until: float) -> Iterator[Name]:
    """The parts of base copies that have no end and have not grown since a time."""
    ended = {name.first for name in own.bases()}
    parts = [name for name in own.found if name.kind is Kind.BASE and name.first not in ended]
    grown = {name.first for name in parts if own.found[name].modified > until}
    return (name for name in parts if name.first not in grown)


async def _past(
    archiver: Archiver, lives: dict[str, Life], own: Life, horizon: float
) -> list[Name]:
    """What no moment after the horizon needs, in this life and in those that go on from it."""
    floor = EVER
    for life in lives.values():
        line = Line.of(lives, life.life)
        if all(name.life != own.life for name, _limit in line.bases) and life is not own:
            continue
        before = [
            base
            for base in await read_bases(archiver.store, line, archiver.keys)
            if lives[base.name.life].found[base.name].modified <= horizon
        ]
        if not before:
            return []  # it needs everything
        if before[-1].name.life == own.life:
            floor = min(floor, before[-1].start)
        elif life is own:
            return []
    return [
        name
        for name in own.found
        if (name.kind in (Kind.CHANGES, Kind.JOINED) and name.last <= floor)
        or (name.kind is Kind.BASE and name.first < floor)
    ]


async def _delete(archiver: Archiver, names: Iterable[Name]) -> None:
    """Delete objects; the end of a base copy goes before its parts."""
    for name in sorted(names, key=lambda name: (name.part is not None, name)):
        await archiver.require_term()
        if name.kind is Kind.BASE and name.first == archiver.copying:
            continue  # since the listing, a copy goes on that was left over
        try:
            await archiver.store.delete(str(name))
        except StoreUnavailable as refused:  # perhaps there is no right to delete
            if not archiver.cannot_delete:
                log.warning("Old objects of the archive cannot be deleted: %s", refused)
            archiver.cannot_delete = True
            return
    archiver.cannot_delete = False
