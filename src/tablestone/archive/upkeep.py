"""Keeps an archive small: joins the objects of changes, deletes what lies before the horizon, and removes lives.

Only the newest term joins and deletes, and it looks for a later one before each deletion. Ages are of the store's
clock (`history.present`). Objects are deleted an hour after they were joined, so a reader
that listed them has time to read them.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from tablestone.archive.going_back import WRITTEN_SECONDS, MomentRefused
from tablestone.archive.history import (
    DAY_SECONDS,
    EVER,
    Life,
    Line,
    ancestors,
    follows,
    present,
    read_bases,
    read_lives,
    read_named,
    restorable,
    shared,
)
from tablestone.archive.objects import (
    Content,
    Entry,
    Kind,
    Name,
    ObjectDamaged,
    ObjectRefused,
    read_records,
)
from tablestone.archive.store import StoreUnavailable
from tablestone.archive.terms import TermLost
from tablestone.clock import unix_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tablestone.archive.base_copy import BaseCopies
    from tablestone.archive.history import Piece, Range
    from tablestone.archive.store import Store
    from tablestone.archive.terms import OwnTerm
    from tablestone.engines.kind import EncryptionKey

EVERY_SECONDS: Final = 3600.0
JOIN_SECONDS: Final = 3600.0
"""Objects of changes are joined when they are this old, and deleted when the joined one is."""
JOINED_BYTES: Final = 8 << 20
"""About how many bytes of records a joined object has, before it is compressed."""
JOINED_ENTRIES_MAX: Final = 1_000
UNFINISHED_SECONDS: Final = DAY_SECONDS
"""A base copy without its end goes when its last part is this old."""

log = logging.getLogger(__name__)


class Upkeep:
    """Looks after the life that an archiver writes."""

    CANNOT: Final = "Old changes in {} cannot be joined or deleted."
    STUCK: Final = "Old changes in {} were not joined or deleted within an hour:"

    def __init__(
        self,
        base_copies: BaseCopies,
        retention: int | None,
        ticks: Callable[[], int],
        elapsed: Callable[[], float],
    ) -> None:
        self.looked_at = elapsed()
        """When it looked last, by the clock that never steps back."""
        self.cannot_delete = False
        self._base_copies = base_copies
        self._retention = retention
        self._ticks = ticks
        self._elapsed = elapsed

    @property
    def due(self) -> float:
        return self.looked_at + EVERY_SECONDS

    async def run(self, term: OwnTerm) -> None:
        self.looked_at = self._elapsed()
        lives = await read_lives(term.store)
        own = lives.get(term.life)
        if own is None or term.name(Kind.TERM, 0) not in own.found:
            raise TermLost("the archive has lost objects of its life")
        leap = self._retention or DAY_SECONDS
        now = await asyncio.to_thread(present, lives.values(), self._ticks(), leap)
        await _join(term, own, now - JOIN_SECONDS)
        names = await asyncio.to_thread(_done_with, own, now)
        if await self._delete(term, names) and self._retention is not None:
            await self._delete_past(term, lives, now, self._retention)

    async def _delete_past(
        self, term: OwnTerm, lives: dict[str, Life], now: float, retention: float
    ) -> None:
        """Delete what is old. The ends of base copies go first, each after a look whether a life needs it by now.

        Without an end, no life can begin that needs what the end needs: all else goes without a look.
        """
        gone, has_looked = set[Name](), False
        while True:
            past = await _past(term, lives, now, retention)
            ends = [name for name in past if name.is_end and name not in gone]
            if not ends:
                await self._delete(term, past)
                return
            if has_looked:
                if not await self._delete(term, ends[:1]):
                    return
                gone.add(ends[0])
            lives, has_looked = await read_lives(term.store), True

    async def _delete(self, term: OwnTerm, names: Iterable[Name]) -> bool:
        for name in names:
            await term.require()
            if name.kind is Kind.BASE and name.first == self._base_copies.copying:
                continue  # since the listing, a copy goes on that was left over
            try:
                await term.store.delete(str(name))
            except StoreUnavailable as refused:  # perhaps there is no right to delete
                if not self.cannot_delete:
                    log.warning("Old objects of the archive cannot be deleted: %s", refused)
                self.cannot_delete = True
                return False
        self.cannot_delete = False
        return True


async def _join(term: OwnTerm, own: Life, until: float) -> None:
    """Join the objects of changes that were stored before a time, those of each key for themselves."""
    group: list[tuple[Name, Content]] = []
    for piece in await asyncio.to_thread(_cover, own):
        content = await _small(term, own, piece, until)
        if group and (content is None or not _goes_on(group, piece, content)):
            await _write_joined(term, own, group)
            group = []
        if content is not None:
            group.append((piece.name, content))
    await _write_joined(term, own, group)


def _cover(own: Life) -> list[Piece]:
    return Line.of({own.life: own}, own.life).cover(1, EVER)[0]


def _goes_on(group: list[tuple[Name, Content]], piece: Piece, content: Content) -> bool:
    """Whether an object follows on the last one of a group, with the same key, and there is room for it."""
    name, before = group[-1]
    size = sum(len(each.body) for _name, each in group) + len(content.body)
    entries = sum(len(each.facts["entries"]) for _name, each in group)
    is_next = piece.first == name.last + 1 and content.key == before.key
    is_next = is_next and follows(content, [*read_records(before.body)][-1])
    return is_next and size <= JOINED_BYTES and entries < JOINED_ENTRIES_MAX


async def _write_joined(term: OwnTerm, own: Life, group: list[tuple[Name, Content]]) -> None:
    if len(group) < 2:
        return
    entries = [
        Entry(*entry)._replace(stored=own.found[name].modified)
        for name, each in group
        for entry in each.facts["entries"]
    ]
    body = b"".join(each.body for _name, each in group)
    name = term.name(Kind.JOINED, group[0][0].first, group[-1][0].last)
    facts = {"entries": entries, "after": group[0][1].facts.get("after")}
    await term.create(name, facts, body, group[0][1].key)


async def _small(term: OwnTerm, own: Life, piece: Piece, until: float) -> Content | None:
    """An object of changes that may be joined: it is old enough, and all of it counts and can be read."""
    is_whole = piece[:2] == (piece.name.first, piece.name.last)
    if piece.name.kind is Kind.CHANGES and is_whole and own.found[piece.name].modified <= until:
        with suppress(ObjectDamaged, ObjectRefused):  # `check` reports it
            return await read_named(term.store, piece.name, term.keys)
    return None


async def _past(term: OwnTerm, lives: dict[str, Life], now: float, retention: float) -> list[Name]:
    """What no moment of the retention needs in this life, and no life that goes on from it."""
    own, floor = lives.get(term.life, Life(term.life)), EVER
    above = ancestors(lives | {term.life: own}, term.life)
    for life in lives.values():
        parted = ancestors(lives, life.life).get(term.life)
        if parted is None:
            continue
        line = await asyncio.to_thread(Line.of, lives, life.life)
        reach = await asyncio.to_thread(line.reach, parted + 1)
        if life is not own and reach == parted < line.newest(life):
            continue  # it has let go itself what followed on the parting
        bases = await read_bases(term.store, line, term.keys)
        if life is own:
            stored = [(base, lives[base.name.life].found[base.name].modified) for base in bases]
            # What a clock that was behind has stored is no older than the base copy before it.
            known = [each for each in stored if each[1] <= now]
            bases = [
                base for base, _at in takewhile(lambda each: each[1] <= now - retention, known)
            ]
        else:
            bases = [base for base in bases if base.end <= parted]
        needed = bases[-1] if bases else None
        if needed is None or (needed.name.life in above and needed.name.life != term.life):
            return []  # it needs everything
        if needed.name.life == term.life:
            floor = min(floor, needed.start)
    return [
        name
        for name in own.found
        if (name.kind in (Kind.CHANGES, Kind.JOINED) and name.last <= floor)
        or (name.kind is Kind.BASE and name.first < floor)
    ]


def _done_with(own: Life, now: float) -> set[Name]:
    """What no reader needs any more, whatever its age."""
    return {*_joined(own, now - JOIN_SECONDS), *_left_over(own, now - UNFINISHED_SECONDS)}


def _joined(own: Life, until: float) -> Iterator[Name]:
    """The objects of changes whose records have been in joined ones since before a time."""
    pieces = Line.of({own.life: own}, own.life).pieces
    joined = [
        piece
        for piece in pieces
        if piece.name.kind is Kind.JOINED and own.found[piece.name].modified <= until
    ]
    gaps = iter(Line({}, joined, []).cover(1, EVER)[1])
    gap = next(gaps)
    for piece in pieces:
        while gap.last < piece.first:
            gap = next(gaps)  # the last one has no end
        if piece.name.kind is Kind.CHANGES and piece.last < gap.first:
            yield piece.name


def _left_over(own: Life, until: float) -> Iterator[Name]:
    """The parts of base copies that have no end and have not grown since a time."""
    ended = {name.first for name in own.found if name.is_end}
    parts = [name for name in own.found if name.kind is Kind.BASE and name.first not in ended]
    grown = {name.first for name in parts if own.found[name].modified > until}
    return (name for name in parts if name.first not in grown)


async def prune(store: Store, keys: Sequence[EncryptionKey], life: str) -> int:
    """Remove a life; returns the number of its objects. `MomentRefused`: it is written, or a child needs it.

    The terms go first: an idle server sees that it lacks its own before it writes again, and without them no life can
    begin that names this one as its parent. The ends of base copies follow, each after a look at the other lives, for
    one that has begun until then. An interrupted removal can be repeated.
    """
    removed = set[Name]()
    while True:
        lives = await read_lives(store)
        names = lives[life].found.keys() - removed if life in lives else set()
        if not names:
            if removed:
                return len(removed)
            raise MomentRefused(f"The archive has no life {life}.")
        await _require_not_needed(store, keys, lives, life)
        terms = [name for name in names if name.kind is Kind.TERM]
        ends = [name for name in names if name.is_end]
        for name in sorted(terms, key=lambda name: -name.term) or ends[:1] or names:
            await store.delete(str(name))
            removed.add(name)


async def _require_not_needed(
    store: Store, keys: Sequence[EncryptionKey], lives: dict[str, Life], life: str
) -> None:
    if len(lives) == 1:
        raise MomentRefused(
            f"The life {life} is the only one of this archive: what removes the whole place removes it."
        )
    newest = min(max(each.written for each in lives.values()), unix_seconds())
    if lives[life].written > newest - WRITTEN_SECONDS:
        raise MomentRefused(
            f"The life {life} was written within ten minutes of the newest object here: a server may be writing it."
        )
    without = {name: each for name, each in lives.items() if name != life}

    async def moments(of: dict[str, Life], child: str) -> list[Range]:
        """What can be restored of a life, after the records that it shares with the one to remove."""
        problems: list[Exception] = []
        bases = await read_bases(store, Line.of(of, child), keys, problems)
        refused = next((each for each in problems if isinstance(each, ObjectRefused)), None)
        if refused is not None and life in ancestors(lives, child):  # nobody can tell
            raise refused
        ranges = restorable(bases)
        first = shared(lives, life, child) + 1
        return [
            each._replace(first=max(each.first, first)) for each in ranges if each.last >= first
        ]

    for child in without:
        if await moments(lives, child) != await moments(without, child):
            raise MomentRefused(
                f"The life {child} goes on from the life {life} and needs it for some of its moments: remove {child} "
                "first, or wait until these are older than --archive-keep."
            )
