"""What a disk holds after the power was lost: everything that was flushed, and any part of the rest.

Of the writes to a file since its last flush, any may be missing. A write may be torn: it consists of sectors of 512
bytes, and any of them may be missing. Names are journaled, as in real file systems: creations and deletions reach the
disk in order, and flushing a file includes the creation of its name and everything before it.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Final

from stress.power_loss.recorded_disk import Created, Deleted, Event, Flushed, Truncated, Written

SECTOR_BYTES: Final = 512
Change = Written | Truncated
ALL, NONE, FIRST, ANY = "all", "none", "the first", "any"
CHOICES: Final = (ALL, NONE, FIRST, FIRST, ANY, ANY, ANY)
"""Which of the unflushed changes are kept; how often each way is drawn."""


@dataclass
class _File:
    """The content on the disk, and the unflushed changes, with the numbers of their events."""

    flushed: bytearray = field(default_factory=bytearray)
    changes: list[tuple[int, Change]] = field(default_factory=list)


class Disk:
    """A disk while events happen to it."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}
        self._renamed: list[Created | Deleted] = []
        """Creations and deletions that may not be on the disk yet."""
        self._events = 0

    def happens(self, event: Event) -> None:
        """Apply the next event of the recording."""
        if isinstance(event, Created):
            self._files[event.file] = _File()
            self._renamed.append(event)
        elif isinstance(event, Deleted):
            self._renamed.append(event)
            if event.is_flushed:
                self._keep_names(len(self._renamed))
        elif isinstance(event, Written | Truncated):
            self._files[event.file].changes.append((self._events, event))
        elif isinstance(event, Flushed):
            self._flush(event)
        self._events += 1

    def _flush(self, event: Flushed) -> None:
        file = self._files[event.file]
        for number, change in file.changes:
            if number < event.before:
                _apply(file.flushed, change)
        file.changes = [each for each in file.changes if each[0] >= event.before]
        for index, renamed in enumerate(self._renamed):
            if isinstance(renamed, Created) and renamed.file == event.file:
                self._keep_names(index + 1)
                break

    def _keep_names(self, count: int) -> None:
        _rename(self._names, self._renamed[:count])
        del self._renamed[:count]

    def after_power_loss(self, random: Random) -> dict[str, bytes]:
        """The files by name, in one of the states in which they may be found."""
        way = random.choice(CHOICES)
        names = dict(self._names)
        _rename(names, self._renamed[: _number(way, len(self._renamed), random)])
        kept = sorted(
            (number, change)
            for file in names.values()
            for number, change in self._files[file].changes
        )
        if way == ANY:
            likely = random.choice((0.1, 0.5, 0.9))
            kept = [each for each in kept if random.random() < likely]
        else:
            kept = kept[: _number(way, len(kept), random)]
        contents = {file: bytearray(self._files[file].flushed) for file in names.values()}
        torn = _torn(kept, random) if way in (FIRST, ANY) else None
        for number, change in kept:
            content = contents[change.file]
            if number == torn and isinstance(change, Written):
                _apply_part(content, change, random)
            else:
                _apply(content, change)
        return {name: bytes(contents[file]) for name, file in names.items()}


def _number(way: str, count: int, random: Random) -> int:
    return {ALL: count, NONE: 0}.get(way, random.randint(0, count))


def _torn(kept: list[tuple[int, Change]], random: Random) -> int | None:
    """Which write is torn: often the last, sometimes another, or none."""
    if not kept or random.random() < 0.3:
        return None
    return kept[-1][0] if random.random() < 0.6 else random.choice(kept)[0]


def _rename(names: dict[str, int], events: list[Created | Deleted]) -> None:
    for event in events:
        if isinstance(event, Created):
            names[event.name] = event.file
        else:
            names.pop(event.name, None)


def _apply(content: bytearray, change: Change) -> None:
    if isinstance(change, Written):
        _put(content, change.offset, change.content)
    elif change.size <= len(content):
        del content[change.size :]
    else:
        content.extend(bytes(change.size - len(content)))


def _apply_part(content: bytearray, change: Written, random: Random) -> None:
    """Apply some sectors of a write: the first ones, or any."""
    # Sectors are the file's, so the first and the last piece of a write may be shorter.
    bounds = [change.offset]
    end = change.offset + len(change.content)
    while bounds[-1] < end:
        bounds.append(min(end, (bounds[-1] // SECTOR_BYTES + 1) * SECTOR_BYTES))
    pieces = list(pairwise(bounds))
    if random.random() < 0.5:
        pieces = pieces[: random.randint(0, len(pieces))]
    else:
        pieces = [piece for piece in pieces if random.random() < 0.5]
    for first, last in pieces:
        _put(content, first, change.content[first - change.offset : last - change.offset])


def _put(content: bytearray, offset: int, given: bytes) -> None:
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(given)] = given
