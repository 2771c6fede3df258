"""Goes back to a moment: finds the record up to which commits count, and fills a new directory up to it.

The time of a commit says whether it counts. Where the times of commits stand still or run ahead, because a clock
jumped, the times at which their objects were stored say so, to the second.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from tablestone.archive.base_copy import Part
from tablestone.archive.history import (
    EVER,
    BaseCopy,
    Life,
    Line,
    Range,
    read_around,
    read_bases,
    read_lives,
    read_named,
    read_record,
    restorable,
)
from tablestone.archive.objects import (
    FACTS_BYTES,
    Entry,
    Kind,
    Name,
    ObjectDamaged,
    ObjectRefused,
    read_facts,
    read_records,
)
from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS
from tablestone.engines.sqlite.archive_source import ArchiveState, StoredRecord
from tablestone.engines.sqlite.restored_directory import RestoreProgress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from tablestone.archive.objects import Content
    from tablestone.archive.store import Store
    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.sqlite.restored_directory import RestoredDirectory

READS_AHEAD: Final = 8
OTHER_BASE: Final = -1
"""In place of the number of parts: the best base copy is damaged, and another one was put."""
BRING_SECONDS: Final = 0.5
"""Seconds between two looks for records that are not archived yet."""
FACTS_AT_ONCE: Final = 64
AHEAD_SECONDS: Final = 60.0
"""A commit whose time is so much later than its object was made by a clock that ran ahead."""
WRITTEN_SECONDS: Final = 600.0
"""Lives with objects of the last minutes are being written."""


class MomentRefused(Exception):
    """There is no such moment, or more than one; the text is a sentence or some lines."""


class NothingArchived(MomentRefused):
    """The archive holds no life."""


class Timed(NamedTuple):
    """Records that were written at once, and the moment from which they count."""

    entry: Entry
    stored: float
    """Seconds since 1970, by the clock of the store."""
    stands_still: bool
    """The clock says nothing about these commits: `stored` counts."""


class History(NamedTuple):
    """What a life and its parents can restore."""

    life: str
    line: Line
    bases: list[BaseCopy]
    ranges: list[Range]
    problems: list[Exception]
    """Sentences about objects that cannot be read."""


class Goal(NamedTuple):
    history: History
    bases: list[BaseCopy]
    """Each will do: the best one first, which others replace if it is damaged."""
    number: int
    """The last record that counts."""

    @property
    def source(self) -> str:
        """What an interrupted restore goes on with."""
        return str(self.bases[0].name)


async def read_histories(store: Store, keys: Sequence[EncryptionKey]) -> dict[str, History]:
    lives = await read_lives(store)
    found = {}
    for life in lives:
        if lives[life].terms:
            line = Line.of(lives, life)
            problems = [problem for each in lives.values() for problem in each.problems]
            bases = await read_bases(store, line, keys, problems)
            found[life] = History(life, line, bases, restorable(bases), problems)
    return found


async def timeline(store: Store, history: History, keys: Sequence[EncryptionKey]) -> list[Timed]:
    """What the objects of a history say about their records, in order. Damaged ones say nothing."""
    lives, pieces = history.line.lives, history.line.pieces
    newest = max((piece.last for piece in pieces), default=0)
    # What came up to the first moment may be encrypted with a key that is not here; its base copy has the time of that.
    oldest = history.ranges[0].first + 1 if history.ranges else newest + 1
    known: dict[Name, list[Entry]] = {}
    while True:
        chain = Line(lives, pieces, []).cover(oldest, newest)[0]
        names = [piece.name for piece in chain if piece.name not in known]
        for start in range(0, len(names), FACTS_AT_ONCE):
            some = names[start : start + FACTS_AT_ONCE]
            starts = await store.read_starts([str(name) for name in some], FACTS_BYTES)
            for name, begins in zip(some, starts, strict=True):
                known[name] = await _entries(store, name, begins, keys)
        if all(known[name] for name in names):
            break
        pieces = [piece for piece in pieces if known.get(piece.name) != []]
    found: list[tuple[Entry, float]] = []
    for first, last, name in chain:
        modified = lives[name.life].found[name].modified
        found += (
            (
                entry._replace(first=max(entry.first, first), last=min(entry.last, last)),
                modified if entry.stored is None else entry.stored,
            )
            for entry in known[name]
            if entry.first <= last and entry.last >= first
        )
    return list(_timed(found))


async def _entries(
    store: Store, name: Name, begins: bytes | None, keys: Sequence[EncryptionKey]
) -> list[Entry]:
    """What an object says about its records; nothing, if it is damaged."""
    facts = None
    with suppress(ObjectDamaged):
        with suppress(ObjectDamaged, ObjectRefused):  # unchecked: the whole object says what it is
            facts = None if begins is None else read_facts(name, begins, keys)
        if facts is None:
            facts = (await read_named(store, name, keys)).facts
        return [Entry(*entry) for entry in facts["entries"]]
    return []


def _timed(found: list[tuple[Entry, float]]) -> Iterator[Timed]:
    for index, (entry, stored) in enumerate(found):
        before = found[index - 1][0].newest_time if index else None
        after = found[index + 1][0].oldest_time if index + 1 < len(found) else None
        one_time = entry.oldest_time == entry.newest_time
        # A commit of many records may be in two objects too: then the clock has gone on when they are written.
        is_late = entry.wall <= entry.newest_time
        stands_still = is_late and one_time and entry.newest_time in (before, after)
        runs_ahead = unix_of_ticks(entry.newest_time) > stored + AHEAD_SECONDS
        yield Timed(entry, stored, stands_still or runs_ahead)


def still(times: Iterable[Timed]) -> Iterator[tuple[str, str]]:
    """The stretches in which the clock of commits stood still or ran ahead, as texts, by the clock of the store."""
    first = last = None
    for timed in times:
        if timed.stands_still:
            first, last = first or timed.stored, timed.stored
        elif first is not None and last is not None:
            yield shown(ticks_of_unix(first)), shown(ticks_of_unix(last))
            first = None
    if first is not None and last is not None:
        yield shown(ticks_of_unix(first)), shown(ticks_of_unix(last))


def number_at(times: Iterable[Timed], ticks: int) -> tuple[int, Entry | None]:
    """The last record that counts at a time, and the entry whose later records do not count, if there is one."""
    number = 0
    for entry, stored, stands_still in times:
        if stands_still:
            if ticks_of_unix(stored) > ticks:
                # Its first records may be older than the jump of the clock.
                is_partly = entry.oldest_time <= ticks < entry.newest_time
                return number, entry if is_partly else None
        elif entry.oldest_time > ticks:
            break
        elif entry.newest_time > ticks:
            return number, entry
        number = entry.last
    return number, None


async def find_goal(
    store: Store,
    keys: Sequence[EncryptionKey],
    life: str | None,
    to: int | None,
    moment: int | None,
    now: float,
    begun: str = "",
) -> Goal:
    """The record to go back to: the newest, a number (`to`), or that of a moment (ticks). `MomentRefused`.

    `begun` is the base copy that an interrupted restore has begun with, as `Goal.source` names it.
    """
    histories = await read_histories(store, keys)
    if not histories:
        raise NothingArchived("The archive holds nothing.")
    if moment is not None and moment > ticks_of_unix(now):
        raise MomentRefused(
            f"{shown(moment)} is in the future: without --to, the newest moment is restored."
        )
    if life is not None and life not in histories:
        raise MomentRefused(
            f"The archive has no life {life}: it has {', '.join(sorted(histories))}."
        )
    lives = next(iter(histories.values())).line.lives
    newest = max((lives[each] for each in histories), key=lambda each: each.written)
    chosen = histories[life or newest.life]
    numbers: dict[str, int] = {}
    refused = None
    for each in [chosen] if life is not None else histories.values():
        written = lives[each.life].written
        is_over = written < newest.written - WRITTEN_SECONDS
        if moment is not None:
            is_over = moment > ticks_of_unix(written)
        if each is chosen or to is not None or not is_over:
            try:
                numbers[each.life] = await _number(store, keys, each, to, moment)
            except MomentRefused as error:
                refused = error if each is chosen else refused
    number = numbers.pop(chosen.life, -1)
    others = [
        other
        for other in numbers
        if numbers[other] > min(number, shared(lives, chosen.life, other))
    ]
    if others:
        what = (
            "More than one life has this moment" if refused is None else f"{refused} Others have it"
        )
        found = "\n".join(
            f"  --life {each}   (written last at {shown(ticks_of_unix(lives[each].written))})"
            for each in [chosen.life, *others][number < 0 :]
        )
        raise MomentRefused(f"{what}; add one of these:\n{found}")
    if refused is not None:
        raise refused
    fitting = [base for base in chosen.bases if base.end <= number <= base.reach]
    fitting.sort(key=lambda base: (str(base.name) == begun, base.end), reverse=True)
    return Goal(chosen, fitting, number)


def shared(lives: dict[str, Life], one: str, other: str) -> int:
    """The last record that two lives share; 0 if they share none."""
    first, second = _ancestors(lives, one), _ancestors(lives, other)
    return max(
        (min(last, second[life]) for life, last in first.items() if life in second), default=0
    )


def _ancestors(lives: dict[str, Life], life: str) -> dict[str, int]:
    """A life and those before it, each with the last record that the life has of it."""
    found = {life: EVER}
    last = EVER
    while (parent := lives[life].parent) is not None and parent.life in lives:
        life, last = parent.life, min(last, parent.last)
        found[life] = last
    return found


async def _number(
    store: Store,
    keys: Sequence[EncryptionKey],
    history: History,
    to: int | None,
    moment: int | None,
) -> int:
    """A number that the history can restore."""
    if not history.ranges:
        why = " yet. Its first base copy has not ended."
        if history.problems:  # such as a key that is not here
            why = f". {history.problems[0]}"
        raise MomentRefused(f"Nothing of the life {history.life} can be restored{why}")
    if to is None and moment is None:
        return history.ranges[-1].last
    if to is not None and any(first <= to <= last for first, last in history.ranges):
        return to
    times, missing = await timeline(store, history, keys), EVER
    if to is None:
        assert moment is not None
        to, missing = await _number_at(store, keys, history, times, moment)
    if missing <= to and any(first <= to <= last for first, last in history.ranges):
        return to
    nearest = [min(last, to) for first, last in history.ranges if first <= to][-1:]
    nearest += sorted(base.end for base in history.bases if base.end > to)[:1]
    at = f"Record {to:,}" if moment is None else shown(moment)
    named = " and ".join(f"{each:,} ({shown(time_of(times, history, each))})" for each in nearest)
    raise MomentRefused(
        f"{at} cannot be restored from the life {history.life}: it lacks the records that are needed. The nearest "
        f"records for --to are {named}."
    )


async def _number_at(
    store: Store, keys: Sequence[EncryptionKey], history: History, times: list[Timed], moment: int
) -> tuple[int, int]:
    """The last record of a moment, and the last of those that are missing after it, if there are any."""
    number, partly = number_at(times, moment)
    if partly is not None:
        try:
            around = await read_around(store, history.line, partly.first, keys)
        except ObjectDamaged:
            return number, partly.last
        there = [record.number for record in around if record.time <= moment]
        number = min(max([number, *there]), partly.last)
        if number == around[-1].number < partly.last:  # the object with the later ones is damaged
            return number, partly.last
    ends = {base.end: base.facts["time"] for base in history.bases}
    number = max([number, *(end for end, time in ends.items() if time <= moment)])
    if number < min(ends):
        raise MomentRefused(
            f"{shown(moment)} is too early for the life {history.life}: it goes back to "
            f"{shown(ends[min(ends)] + TICKS_PER_SECOND // 1000)}."
        )
    known = [entry.first for entry, *_ in times if entry.last > number]
    newest = max((piece.last for piece in history.line.pieces), default=0)
    return number, min(known, default=newest + 1) - 1


def time_of(times: Iterable[Timed], history: History, number: int) -> int:
    """About when a record was written, exactly for the ends of objects and base copies."""
    for base in history.bases:
        if base.end == number:
            time: int = base.facts["time"]
            return time
    for entry, *_ in times:
        if entry.first <= number <= entry.last:
            return entry.newest_time if number == entry.last else entry.oldest_time
    return 0


def ticks_of_unix(seconds: float) -> int:
    return int(seconds * TICKS_PER_SECOND) + UNIX_EPOCH_TICKS


def unix_of_ticks(ticks: int) -> float:
    return (ticks - UNIX_EPOCH_TICKS) / TICKS_PER_SECOND


def shown(ticks: int) -> str:
    """A time as ISO text, in UTC."""
    text = datetime.fromtimestamp(unix_of_ticks(ticks), UTC)
    return text.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def restore(
    store: Store,
    keys: Sequence[EncryptionKey],
    goal: Goal,
    target: RestoredDirectory,
    archive: str,
    progress: Callable[[int, int], None],
) -> StoredRecord:
    """Fill a directory, or go on; returns the last record. `ObjectDamaged`: an object that is needed cannot be read."""
    history, line = goal.history, goal.history.line
    done = await asyncio.to_thread(lambda: target.progress)
    bases = goal.bases[done.parts < 0 :] or goal.bases
    at = whole = 0
    for base in bases:
        at = max(done.parts, 0) if base is goal.bases[0] else OTHER_BASE
        whole = len(base.facts["parts"]) + goal.number - base.start
        try:
            at = await _put_parts(store, keys, base, target, at, lambda n: progress(n, whole))  # noqa: B023
            break
        except ObjectDamaged:
            if base is bases[-1]:
                raise
    # After another base copy was put, all records after it are applied again.
    number, newest, damage = base.start, None, ""
    if at != OTHER_BASE:
        number = max(number, done.number)
    pieces, listed_at = list(line.pieces), -1
    while number < goal.number:
        chain, gaps = Line(line.lives, pieces, []).cover(number + 1, goal.number)
        if gaps and number > listed_at:  # small objects may have been joined since
            line, listed_at = Line.of(await read_lives(store), history.life), number
            pieces = list(line.pieces)
            continue
        if gaps:
            raise ObjectDamaged(
                f"{damage or 'Objects are missing.'} Without it, the records {gaps[0].first:,} to {gaps[0].last:,} are "
                f"lost: --to {gaps[0].first - 1} restores everything before."
            )
        by_name = {piece.name: piece for piece in chain}
        async for name, content in _ahead(store, list(by_name), keys):
            if isinstance(content, ObjectDamaged):  # another object may have the same records
                damage, pieces = str(content), [piece for piece in pieces if piece.name != name]
                break
            records = [
                record
                for record in read_records(content.body)
                if number < record.number <= by_name[name].last
            ]
            newest, number = records[-1], records[-1].number
            await asyncio.to_thread(target.apply, records, RestoreProgress(at, number))
            progress(whole - goal.number + number, whole)
    if newest is None:
        # The first base copy begins after a record that is not archived: an empty one takes its place.
        empty = StoredRecord(goal.number, base.facts["time"], b"", b"", b"", b"")
        newest = await read_record(store, line, goal.number, keys) or empty
    owner = _owner(line.lives, history.life, goal.number)
    runs = [term.run for term in owner.terms if term.first <= goal.number + 1]
    state = ArchiveState(archive, owner.life, runs[-1], None, goal.number, 0)
    await asyncio.to_thread(target.keep_record, bytes.fromhex(base.facts["storage"]), newest, state)
    return newest


async def _put_parts(
    store: Store,
    keys: Sequence[EncryptionKey],
    base: BaseCopy,
    target: RestoredDirectory,
    done: int,
    progress: Callable[[int], None],
) -> int:
    """Put the parts of a base copy after those that are `done`; returns what is done then."""
    parts = [Part(*part) for part in base.facts["parts"]]
    names = [
        Name(base.name.life, Kind.BASE, part.term, base.start, part=part.number) for part in parts
    ]
    at = max(done, 0)
    async for name, content in _ahead(store, names[at:], keys):
        if isinstance(content, ObjectDamaged):
            raise content
        if hashlib.sha256(content.body).hexdigest() != parts[at].sha256:
            raise ObjectDamaged(f"{name} is not the part that the base copy lists.")
        at += 1
        noted = RestoreProgress(done if done == OTHER_BASE else at, 0)
        await asyncio.to_thread(target.apply, read_records(content.body), noted)
        progress(at)
    return done if done == OTHER_BASE else at


async def bring(
    store: Store,
    keys: Sequence[EncryptionKey],
    life: str,
    target: RestoredDirectory,
    number: int,
    last: int,
) -> int:
    """Apply the records after `number` up to `last` or beyond, as soon as they are archived; returns the last one."""
    while number < last:
        line = Line.of(await read_lives(store), life)
        pieces = line.cover(number + 1, line.reach(number + 1))[0]
        async for _name, content in _ahead(store, [piece.name for piece in pieces], keys):
            if isinstance(content, ObjectDamaged):
                raise content
            records = [record for record in read_records(content.body) if record.number > number]
            await asyncio.to_thread(target.apply, records, RestoreProgress(0, 0))
            number = records[-1].number
        if not pieces:
            await asyncio.sleep(BRING_SECONDS)
    return number


def _owner(lives: dict[str, Life], life: str, number: int) -> Life:
    """The life of which a record is."""
    found = lives[life]
    while found.parent is not None and number <= found.parent.last and found.parent.life in lives:
        found = lives[found.parent.life]
    return found


async def _ahead(
    store: Store, names: Sequence[Name], keys: Sequence[EncryptionKey]
) -> AsyncIterator[tuple[Name, Content | ObjectDamaged]]:
    """Read objects in order, some of them ahead."""

    async def read(name: Name) -> Content | ObjectDamaged:
        try:
            return await read_named(store, name, keys)
        except ObjectDamaged as damaged:
            return damaged

    waiting = iter(names)
    under_way: deque[tuple[Name, asyncio.Task[Content | ObjectDamaged]]] = deque()
    try:
        for name in waiting:
            under_way.append((name, asyncio.create_task(read(name))))
            if len(under_way) > READS_AHEAD:
                first, task = under_way.popleft()
                yield first, await task
        while under_way:
            first, task = under_way.popleft()
            yield first, await task
    finally:
        for _name, task in under_way:
            task.cancel()
