"""What an archive holds, by its listing: lives, their terms, and which records and base copies count.

A life is one history of commits, written in terms: each start of a server is one. Objects of a term count up to the
record before the next term's first, whenever they were written: so a paused server, a cloned machine or a second
process can write, and never counts. A life may go on from a record of another life, its parent.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tablestone.archive.objects import (
    Content,
    Kind,
    Name,
    ObjectDamaged,
    ObjectRefused,
    digest_of,
    parse_name,
    read_object,
    read_records,
)
from tablestone.archive.store import ObjectMissing
from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tablestone.archive.store import Found, Store
    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.sqlite.archive_source import StoredRecord

EVER: Final = 1 << 62
"""Greater than the number of any record."""
TERMS_AT_ONCE: Final = 64
DAY_SECONDS: Final = 86_400.0


class Parted(NamedTuple):
    """Where a life goes on from another one."""

    life: str
    last: int
    """The last record that both have."""


class Term(NamedTuple):
    """A start of archiving. Its object is `LIFE/terms/NUMBER`."""

    number: int
    run: str
    """The id of the run that writes."""
    first: int
    """The first record that it may write."""
    before: str | None = None
    """The run before."""
    parent: Parted | None = None
    """Of the first term of a life that goes on from another one."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Term:
        parent = facts["parent"]
        return cls(**facts | {"parent": None if parent is None else Parted(*parent)})


class Piece(NamedTuple):
    """The records of an object that count."""

    first: int
    last: int
    name: Name


class Range(NamedTuple):
    first: int
    last: int


@dataclass(slots=True)
class Life:
    """The objects of a life, as listed."""

    life: str
    terms: list[Term] = field(default_factory=list)
    """In order, from 1 on. One that cannot be read has no run, and begins with the first of its changes."""
    found: dict[Name, Found] = field(default_factory=dict)
    problems: list[Exception] = field(default_factory=list)
    """About terms that cannot be read."""

    def limit(self, term: int) -> int:
        """The last record that objects of a term may have; -1 if there is no such term."""
        if not 0 < term <= len(self.terms):
            return -1
        return EVER if term == len(self.terms) else self.terms[term].first - 1

    @property
    def parent(self) -> Parted | None:
        return self.terms[0].parent if self.terms else None

    @property
    def begun(self) -> float:
        """When its first term was stored, by the clock of the store."""
        first = self.found.get(Name(self.life, Kind.TERM, 1))
        return 0.0 if first is None else first.modified

    @property
    def written(self) -> float:
        """When its newest object was stored, by the clock of the store."""
        return max((each.modified for each in self.found.values()), default=0.0)


@dataclass(slots=True)
class Line:
    """The records of a life, with those of its parents up to where it parted from them."""

    lives: dict[str, Life]
    pieces: list[Piece]
    bases: list[tuple[Name, int]]
    """The ends of base copies, the oldest first, each with the last record that it may have reached."""

    @classmethod
    def of(cls, lives: dict[str, Life], life: str) -> Line:
        """Parents that are missing from the archive are left out."""
        pieces: list[Piece] = []
        bases: list[tuple[Name, int]] = []
        for each, last in ancestors(lives, life).items():
            for name in lives[each].found:
                limit = min(lives[each].limit(name.term), last)
                if name.kind in (Kind.CHANGES, Kind.JOINED) and name.first <= limit:
                    pieces.append(Piece(name.first, min(name.last, limit), name))
                elif name.is_end and name.first <= limit:
                    bases.append((name, limit))
        return cls(
            lives, sorted(pieces), sorted(bases, key=lambda base: (base[0].first, base[0].term))
        )

    def newest(self, own: Life) -> int:
        """The newest record that counts, or the one before the newest term's first.

        The changes before a base copy may be deleted.
        """
        copied = (name.first for name, _limit in self.bases)
        return max([own.terms[-1].first - 1, *copied, *(piece.last for piece in self.pieces)])

    def cover(self, first: int, last: int) -> tuple[list[Piece], list[Range]]:
        """The fewest pieces that hold the records from `first` to `last`, and the ranges that are missing."""
        chain: list[Piece] = []
        gaps: list[Range] = []
        at, longest = first, None
        for piece in (*self.pieces, None):
            end = last if piece is None else min(piece.first - 1, last)
            while at <= end:  # no other piece begins up to here
                if longest is not None and longest.last >= at:
                    chain.append(longest._replace(first=at, last=min(longest.last, last)))
                    at = longest.last + 1
                else:
                    gaps.append(Range(at, end))
                    at = end + 1
            if piece is not None and (longest is None or piece.last > longest.last):
                longest = piece
        return chain, gaps

    def reach(self, first: int) -> int:
        """The last record up to which none is missing from `first` on; `first` minus one if that one is missing."""
        reached = first - 1
        for piece in self.pieces:
            if piece.first > reached + 1:
                break
            reached = max(reached, piece.last)
        return reached


def ancestors(lives: dict[str, Life], life: str) -> dict[str, int]:
    """A life and those before it, each with the last record that the life has of it."""
    found = {life: EVER}
    while (parent := lives[life].parent) is not None and parent.life in lives:
        found[parent.life] = min(found[life], parent.last)
        life = parent.life
    return found


def shared(lives: dict[str, Life], one: str, other: str) -> int:
    """The last record that two lives share; 0 if they share none."""
    mine, theirs = ancestors(lives, one), ancestors(lives, other)
    return max((min(mine[life], theirs[life]) for life in mine.keys() & theirs), default=0)


class BaseCopy(NamedTuple):
    """A base copy that counts: with the records after `start`, it restores any record from `end` to `reach`."""

    name: Name
    start: int
    end: int
    reach: int
    facts: dict[str, Any]
    key: EncryptionKey | None = None


_SAYS_FIRST: Final = (Kind.CHANGES, Kind.BASE, Kind.JOINED)
"""What says best with which record a term began. A joined object may begin with records of terms before."""


async def read_lives(store: Store, only: str | None = None) -> dict[str, Life]:
    """The lives of an archive, or one of them. Raises `ObjectRefused` if a term is of a later format."""
    listed = await store.list("" if only is None else f"{only}/")
    lives: dict[str, Life] = {}

    def sort() -> None:
        for found in listed:
            if (name := parse_name(found.name)) is not None:
                lives.setdefault(name.life, Life(name.life)).found[name] = found

    await asyncio.to_thread(sort)  # there may be a hundred thousand
    for life in lives.values():
        await _read_terms(store, life)
    return lives


async def _read_terms(store: Store, life: Life) -> None:
    """Read the terms of a life that was listed, and those after them: a listing may lack them."""
    listed = max(name.term for name in life.found)
    while True:
        at = len(life.terms)
        numbers = range(at + 1, max(min(listed, at + TERMS_AT_ONCE), at + 1) + 1)
        reads = (read_named(store, Name(life.life, Kind.TERM, number)) for number in numbers)
        for number, read in zip(
            numbers, await asyncio.gather(*reads, return_exceptions=True), strict=True
        ):
            if isinstance(read, Content):
                life.terms.append(Term.of(read.facts))
                continue
            if not isinstance(read, ObjectDamaged):
                raise read
            firsts = [
                (name.term, _SAYS_FIRST.index(name.kind), name.first + (name.kind is Kind.BASE))
                for name in life.found
                if name.term >= number and name.kind is not Kind.TERM
            ]
            if not firsts:
                return
            life.terms.append(Term(number, "", min(firsts)[2]))
            life.problems.append(read)


def follows(content: Content, previous: StoredRecord) -> bool:
    """Whether an object of changes goes on from this record: the one before its first, or one that it holds too."""
    records = list(read_records(content.body))
    if records[0].number == previous.number + 1:
        return content.facts.get("after") in (None, digest_of(previous))
    return records[0].number > previous.number or previous in records


async def read_named(store: Store, name: Name, keys: Sequence[EncryptionKey] = ()) -> Content:
    """Read an object that was listed; `ObjectDamaged` if it is gone."""
    try:
        return read_object(name, await store.read(str(name)), keys)
    except ObjectMissing:
        raise ObjectDamaged(f"{name} is missing.") from None


async def read_around(
    store: Store, line: Line, number: int, keys: Sequence[EncryptionKey] = ()
) -> list[StoredRecord]:
    """The records of the longest object that has this one; none if none has it, `ObjectDamaged` if each is damaged."""
    problem: ObjectDamaged | None = None
    for piece in sorted(line.pieces, key=lambda piece: -piece.last):
        if piece.first <= number <= piece.last:
            try:
                return list(read_records((await read_named(store, piece.name, keys)).body))
            except ObjectDamaged as damaged:
                problem = damaged
    if problem is not None:
        raise problem
    return []


async def read_record(
    store: Store, line: Line, number: int, keys: Sequence[EncryptionKey] = ()
) -> StoredRecord | None:
    around = await read_around(store, line, number, keys)
    return next((record for record in around if record.number == number), None)


async def read_bases(
    store: Store,
    line: Line,
    keys: Sequence[EncryptionKey] = (),
    problems: list[Exception] | None = None,
) -> list[BaseCopy]:
    """The base copies of a line that count, the oldest first. One that cannot be read does not: see `problems`."""
    counting: list[BaseCopy] = []
    for name, limit in line.bases:
        try:
            content = await read_named(store, name, keys)
        except (ObjectDamaged, ObjectRefused) as problem:
            if problems is not None:
                problems.append(problem)
            continue
        reach = await asyncio.to_thread(line.reach, name.first + 1)
        last = content.facts["last"]
        if last <= min(limit, reach):
            copy = BaseCopy(name, name.first, last, reach, content.facts, content.key)
            counting.append(copy)
    return counting


def present(lives: Iterable[Life], clock: int, retention: float = math.inf) -> float:
    """The present time by the stored objects, in seconds since 1970: that of the newest one that can be right.

    The clock of a directory is that of its server. What is a day later than `clock`, in ticks, counts for nothing; and
    after a leap that is longer than the retention, it is the time before, until as much time has followed.
    """
    times = sorted(
        found.modified
        for life in lives
        for found in life.found.values()
        if found.modified <= (clock - UNIX_EPOCH_TICKS) / TICKS_PER_SECOND + DAY_SECONDS
    )
    if not times:
        return -math.inf
    first = bisect_right(times, times[-1] - retention)
    has_leapt = first > 0 and times[first] - times[first - 1] > retention
    return times[first - 1 if has_leapt else -1]


def restorable(bases: Iterable[BaseCopy]) -> list[Range]:
    """The ranges of records that can be restored, in order."""
    found: list[Range] = []
    for base in sorted(bases, key=lambda base: base.end):
        if found and base.end <= found[-1].last + 1:
            found[-1] = Range(found[-1].first, max(found[-1].last, base.reach))
        else:
            found.append(Range(base.end, base.reach))
    return found
