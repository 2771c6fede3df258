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
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from tablestone.archive.base_copy import Part
from tablestone.archive.history import (
    BaseCopy,
    Line,
    Range,
    ancestors,
    follows,
    read_around,
    read_bases,
    read_lives,
    read_named,
    read_record,
    restorable,
    shared,
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

    from tablestone.archive.history import Life
    from tablestone.archive.objects import Content
    from tablestone.archive.store import Store
    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.sqlite.restored_directory import RestoredDirectory

READS_AHEAD: Final = 8
FACTS_AT_ONCE: Final = 64
LISTS_AGAIN_SECONDS: Final = 0.5
"""Seconds between two looks for records that are not archived yet."""
STOPPED_SECONDS: Final = 60.0
"""Nothing new is archived any more, if nothing was for so long."""
AHEAD_SECONDS: Final = 60.0
"""A commit whose time is so much later than its object was made by a clock that ran ahead."""
WRITTEN_SECONDS: Final = 600.0
"""Lives with objects of the last minutes are being written."""


class MomentRefused(Exception):
    """There is no such moment, or more than one; the text is a sentence or some lines."""


class NothingArchived(MomentRefused):
    """The archive holds nothing that can be restored."""


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

    @property
    def hole(self) -> Range | None:
        """Missing records after which there are others that no base copy makes restorable."""
        last = self.ranges[-1].last
        later = [piece.first for piece in self.line.pieces if piece.last > last]
        return Range(last + 1, min(later) - 1) if later else None


class Goal(NamedTuple):
    history: History
    bases: list[BaseCopy]
    """Each will do: the best one first, which others replace if it is damaged."""
    number: int
    """The last record that counts."""


async def read_histories(store: Store, keys: Sequence[EncryptionKey]) -> dict[str, History]:
    lives = await read_lives(store)
    found = {}
    for life in lives:
        if lives[life].terms:
            line = Line.of(lives, life)
            problems = [
                problem for each in ancestors(lives, life) for problem in lives[each].problems
            ]
            bases = await read_bases(store, line, keys, problems)
            found[life] = History(life, line, bases, restorable(bases), problems)
    return found


async def timeline(store: Store, history: History, keys: Sequence[EncryptionKey]) -> list[Timed]:
    """When the records of a history were written, in order, from the end of its first base copy on.

    Records that are missing, or whose object is damaged, count from the time of the record before them, up to the next
    one that a base copy ends with: that has a time of its own.
    """
    if not history.bases:
        return []
    lives, pieces = history.line.lives, history.line.pieces
    base = min(history.bases, key=lambda base: base.end)
    time = base.facts["time"]
    found = [(Entry(base.end, base.end, time, time, time + 1, 0.0), unix_of_ticks(time))]
    ends = {each.end: each.facts["time"] for each in history.bases}
    newest = max((piece.last for piece in pieces), default=0)
    chain, gaps = history.line.cover(base.end + 1, newest)
    known: dict[Name, list[Entry]] = {}
    for start in range(0, len(chain), FACTS_AT_ONCE):
        names = [piece.name for piece in chain[start : start + FACTS_AT_ONCE]]
        starts = await store.read_starts([str(name) for name in names], FACTS_BYTES)
        for name, begins in zip(names, starts, strict=True):
            known[name] = await _entries(store, name, begins, keys)
    places: list[tuple[int, int, Name | None]] = sorted([*chain, *((*gap, None) for gap in gaps)])
    for first, last, of in places:
        if of is None or not known[of]:
            at = first
            for end in sorted({last + 1, *(each for each in ends if first <= each <= last)}):
                before, stored = found[-1]
                time = before.newest_time
                if at < end:
                    found.append((Entry(at, end - 1, time, time, time + 1, 0.0), stored))
                if end <= last:
                    time = ends[end]
                    found.append((Entry(end, end, time, time, time + 1, 0.0), unix_of_ticks(time)))
                at = end + 1
            continue
        modified = lives[of.life].found[of].modified
        for entry in known[of]:
            if entry.first <= last and entry.last >= first:
                within = entry._replace(first=max(entry.first, first), last=min(entry.last, last))
                found.append((within, modified if entry.stored is None else entry.stored))
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
        near = [each.newest_time for each, _stored in found[max(index - 1, 0) : index]]
        near += [each.oldest_time for each, _stored in found[index + 1 : index + 2]]
        # A commit of many records may be in two objects too: then the clock has gone on when they are written.
        is_late = entry.wall <= entry.newest_time == entry.oldest_time
        stands_still = is_late and entry.newest_time in near
        runs_ahead = unix_of_ticks(entry.newest_time) > stored + AHEAD_SECONDS
        yield Timed(entry, stored, stands_still or runs_ahead)


def still(times: Iterable[Timed]) -> Iterator[tuple[str, str]]:
    """The stretches in which the clock of commits stood still or ran ahead, as texts, by the clock of the store."""
    for stands_still, stretch in groupby(times, lambda timed: timed.stands_still):
        if stands_still:
            stored = [shown(ticks_of_unix(timed.stored)) for timed in stretch]
            yield stored[0], stored[-1]


def number_at(times: Iterable[Timed], ticks: int) -> tuple[int, Entry | None]:
    """The last record that counts at a time, -1 for none, and the entry of which only the first records may count."""
    number = -1
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
) -> Goal:
    """The record to go back to: the newest, a number (`to`), or that of a moment (ticks). `MomentRefused`."""
    try:
        return await _find_goal(store, keys, life, to, moment, now)
    except MomentRefused:  # a listing may have lacked an object
        return await _find_goal(store, keys, life, to, moment, now)


async def _find_goal(
    store: Store,
    keys: Sequence[EncryptionKey],
    life: str | None,
    to: int | None,
    moment: int | None,
    now: float,
) -> Goal:
    histories = await read_histories(store, keys)
    if not any(history.ranges or history.problems for history in histories.values()):
        raise NothingArchived(
            "The archive holds nothing that can be restored: no base copy of it has ended."
        )
    if moment is not None and moment > ticks_of_unix(now):
        raise MomentRefused(
            f"{shown(moment)} is in the future: without --to, the newest moment is restored."
        )
    if life is not None and life not in histories:
        raise MomentRefused(
            f"The archive has no life {life}: it has {', '.join(sorted(histories))}."
        )
    lives = {name: history.line.lives[name] for name, history in histories.items()}
    chosen = life or max(lives, key=lambda name: lives[name].written)

    def may_be_meant(name: str) -> bool:
        if moment is not None:
            return moment <= ticks_of_unix(lives[name].written)
        return to is not None or _is_written(lives, name, now)

    candidates = [name for name in lives if life is None and may_be_meant(name)]
    numbers: dict[str, int] = {}
    refused = None
    for name in {chosen: None, **dict.fromkeys(candidates)}:
        try:
            numbers[name] = await _number(store, keys, histories[name], to, moment)
        except MomentRefused as error:
            refused = error if name == chosen else refused
    number = numbers.get(chosen, -1)
    others = [
        name
        for name in numbers.keys() - {chosen}
        if numbers[name] > min(number, shared(lives, chosen, name))
    ]
    if others:
        what = (
            "More than one life has this moment" if refused is None else f"{refused} Others have it"
        )
        found = "\n".join(
            f"  --life {name}   (written last at {shown(ticks_of_unix(lives[name].written))})"
            for name in sorted({*others, *numbers}, key=lambda name: -lives[name].written)
            if name in others or name == chosen
        )
        raise MomentRefused(f"{what}; add one of these:\n{found}")
    if refused is not None:
        rest = [name for name in lives if histories[name].ranges and name != chosen]
        if not histories[chosen].ranges and rest:
            raise MomentRefused(f"{refused} Others can be restored: --life {' or '.join(rest)}.")
        raise refused
    fitting = [base for base in histories[chosen].bases if base.end <= number <= base.reach]
    return Goal(histories[chosen], sorted(fitting, key=lambda base: base.end, reverse=True), number)


def _is_written(lives: dict[str, Life], name: str, now: float) -> bool:
    """Whether a server may be writing a life: it was written in the last minutes, and no child went on after that."""
    written = lives[name].written
    children = [life for life in lives.values() if life.parent and life.parent.life == name]
    # A clock may have run ahead when an object was stored.
    newest = min(max(life.written for life in lives.values()), now)
    return written > newest - WRITTEN_SECONDS and not any(
        child.begun >= written for child in children
    )


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
    number = history.ranges[-1].last if to is None else to
    if to is None and moment is None and (hole := history.hole) is not None:
        raise MomentRefused(
            f"The archive lacks the records {hole.first:,} to {hole.last:,} of the life {history.life}, and has later "
            f"ones. --to {number} restores everything before them."
        )
    times: list[Timed] = []
    if moment is not None:
        times = await timeline(store, history, keys)
        number, partly = number_at(times, moment)
        if partly is not None:
            try:
                around = await read_around(store, history.line, partly.first, keys)
                known = [record.number for record in around if record.time <= moment]
                number = min(max([number, *known]), partly.last)
            except ObjectDamaged:
                number = partly.last  # the restore names the object
        if number < 0:
            first = times[0].entry
            raise MomentRefused(
                f"{shown(moment)} is too early for the life {history.life}: it goes back to "
                f"{shown(first.newest_time + TICKS_PER_SECOND // 1000)}."
            )
    if any(first <= number <= last for first, last in history.ranges):
        return number
    newest = max((piece.last for piece in history.line.pieces), default=history.ranges[-1].last)
    if number > newest:
        raise MomentRefused(f"Record {number:,} is later than the newest, {newest:,}.")
    times = times or await timeline(store, history, keys)
    nearest = [min(last, number) for first, last in history.ranges if first <= number][-1:]
    nearest += sorted(base.end for base in history.bases if base.end > number)[:1]
    at = f"Record {number:,}" if moment is None else shown(moment)
    named = " and ".join(f"{each:,} ({shown(time_of(times, each))})" for each in nearest)
    raise MomentRefused(
        f"{at} cannot be restored from the life {history.life}: it lacks the records that are needed. The nearest "
        f"records for --to are {named}."
    )


def time_of(times: Iterable[Timed], number: int) -> int:
    """About when a record was written, exactly for the ends of objects."""
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
    """Fill a directory, or go on; returns the last record. `ObjectDamaged`: an object that is needed cannot be read.

    What an earlier attempt brought is kept if it is of the same life, and of no later record.
    """
    history, line = goal.history, goal.history.line
    base, at = await _put_base(store, keys, goal, target, progress)
    steps = len(base.facts["parts"]) - base.start
    number, newest, stopped_at = max(at.number, base.start), None, -1
    while number < goal.number:
        try:
            async for records in _records(store, keys, line, number, goal.number, newest):
                newest, number = records[-1], records[-1].number
                await asyncio.to_thread(target.apply, records, at._replace(number=number))
                progress(steps + number, steps + goal.number)
        except ObjectDamaged as damaged:
            if stopped_at == number:
                raise ObjectDamaged(
                    f"{damaged} --to {number} restores everything before it."
                ) from None
            # Small objects may have been joined since they were listed.
            line, stopped_at = Line.of(await read_lives(store), history.life), number
    if newest is None:
        # The first base copy begins after a record that is not archived: an empty one takes its place.
        empty = StoredRecord(goal.number, base.facts["time"], b"", b"", b"", b"")
        newest = await read_record(store, line, goal.number, keys) or empty
    owners = ancestors(line.lives, history.life)
    owner = line.lives[[life for life, last in owners.items() if goal.number <= last][-1]]
    runs = [term.run for term in owner.terms if term.first <= goal.number + 1]
    state = ArchiveState(archive, owner.life, runs[-1], None, goal.number, 0)
    await asyncio.to_thread(target.keep_record, bytes.fromhex(base.facts["storage"]), newest, state)
    return newest


async def _put_base(
    store: Store,
    keys: Sequence[EncryptionKey],
    goal: Goal,
    target: RestoredDirectory,
    progress: Callable[[int, int], None],
) -> tuple[BaseCopy, RestoreProgress]:
    """Put the best base copy that can be read, or go on with the one that was begun."""
    at = await asyncio.to_thread(lambda: target.progress)
    begun = []
    if at is not None and at.life == goal.history.life and at.number <= goal.number:
        begun = [base for base in goal.bases if str(base.name) == at.base]
        if at.is_whole and at.number < goal.number:
            begun = []
    bases = begun + [base for base in goal.bases if base not in begun]
    for base in bases:
        if at is None or str(base.name) != at.base or not begun:
            await asyncio.to_thread(target.clear)
            at = RestoreProgress(goal.history.life, str(base.name), 0, 0)
        steps = len(base.facts["parts"]) + goal.number - base.start
        try:
            async for rows in _parts(store, keys, base, at.parts):
                at = at._replace(parts=at.parts + 1)
                await asyncio.to_thread(target.apply, rows, at)
                progress(at.parts, steps)
        except ObjectDamaged:
            if base is bases[-1]:
                raise
        else:
            return base, at
    raise AssertionError("there is no base copy")


async def bring(
    store: Store,
    keys: Sequence[EncryptionKey],
    life: str,
    target: RestoredDirectory,
    number: int,
    last: int,
) -> None:
    """Apply the records after `number` up to `last`, as soon as they are archived; `MomentRefused` if they are not."""
    waited, previous = 0.0, None
    while number < last:
        line = Line.of(await read_lives(store, only=life), life)
        reach = min(line.reach(number + 1), last)
        if reach > number:
            waited = 0.0
            async for records in _records(store, keys, line, number, reach, previous):
                await asyncio.to_thread(target.apply, records, None)
                previous = records[-1]
            number = reach
        elif waited >= STOPPED_SECONDS:
            raise MomentRefused(
                f"Nothing is archived after record {number:,}, and the data has {last:,}: is a server archiving it?"
            )
        else:
            await asyncio.sleep(LISTS_AGAIN_SECONDS)
            waited += LISTS_AGAIN_SECONDS


async def _parts(
    store: Store, keys: Sequence[EncryptionKey], base: BaseCopy, done: int
) -> AsyncIterator[Iterator[StoredRecord]]:
    """The rows, as records, of the parts of a base copy after those that are `done`."""
    parts = [Part(*part) for part in base.facts["parts"]][done:]
    names = [
        Name(base.name.life, Kind.BASE, part.term, base.start, part=part.number) for part in parts
    ]
    async for place, content in _ahead(store, names, keys):
        if hashlib.sha256(content.body).hexdigest() != parts[place].sha256:
            raise ObjectDamaged(f"{names[place]} is not the part that the base copy lists.")
        yield read_records(content.body)


async def _records(
    store: Store,
    keys: Sequence[EncryptionKey],
    line: Line,
    after: int,
    last: int,
    previous: StoredRecord | None,
) -> AsyncIterator[list[StoredRecord]]:
    """The records of a line after one, up to another, by object. `ObjectDamaged` if some are missing.

    `previous` is the record of the number `after`, if it is known.
    """
    chain, gaps = line.cover(after + 1, last)
    whole = chain[: sum(piece.last < gaps[0].first for piece in chain)] if gaps else chain
    async for place, content in _ahead(store, [piece.name for piece in whole], keys):
        first, end, name = whole[place]
        records = [each for each in read_records(content.body) if first <= each.number <= end]
        if len(records) != end - first + 1:  # whoever wrote it left some out
            raise ObjectDamaged(f"{name} lacks records that its name has.")
        if previous is not None and not follows(content, previous):
            raise ObjectDamaged(
                f"{name} does not go on from record {previous.number:,} of the archive: two servers have written this "
                "life with the same term, as a machine does that is resumed twice."
            )
        previous = records[-1]
        yield records
    if gaps:
        first, end = gaps[0]
        raise ObjectDamaged(f"The records {first:,} to {end:,} are missing.")


async def _ahead(
    store: Store, names: Sequence[Name], keys: Sequence[EncryptionKey]
) -> AsyncIterator[tuple[int, Content]]:
    """Read objects in order, some of them ahead; yields them with their places."""
    under_way: deque[asyncio.Task[Content]] = deque()
    try:
        for place in range(len(names)):
            for name in names[place + len(under_way) : place + READS_AHEAD]:
                under_way.append(asyncio.create_task(read_named(store, name, keys)))
            yield place, await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
