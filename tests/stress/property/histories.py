"""Histories of concurrent clients, and rules for any history: pure functions that report violations in words.

Time is a counter, so that "ended before the other began" is a comparison. An outcome is the version that an operation
assigned or saw, 0 where there was nothing, None where it was refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, product


@dataclass(frozen=True)
class Event:
    """One operation of one client. `condition` is the version it required, if any; `seen` are labels it read."""

    start: int
    end: int
    kind: str
    outcome: int | None
    condition: int | None = None
    seen: frozenset[int] = frozenset()
    label: int = 0

    def before(self, other: Event) -> bool:
        return self.end < other.start


@dataclass(frozen=True)
class Done:
    """What a client hands to the recorder about an operation."""

    outcome: int | None
    condition: int | None = None
    seen: frozenset[int] = frozenset()
    label: int = 0


@dataclass
class History:
    """Events in the order in which they ended."""

    events: list[Event] = field(default_factory=list)
    _moments: count[int] = field(default_factory=lambda: count(1))

    async def record(self, kind: str, call: Callable[[], Awaitable[Done]]) -> Done:
        start = next(self._moments)
        done = await call()
        self.events.append(
            Event(
                start,
                next(self._moments),
                kind,
                done.outcome,
                done.condition,
                done.seen,
                done.label,
            )
        )
        return done

    def successes(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds and event.outcome is not None]


def one_success_per_version(writes: Sequence[Event]) -> list[str]:
    """Of the writes that require one version, at most one succeeds."""
    winners = Counter(event.condition for event in writes if event.condition is not None)
    return [f"{wins} writes replaced version {v}" for v, wins in winners.items() if wins > 1]


def versions_are_given_once(writes: Sequence[Event]) -> list[str]:
    """No two writes of an entity get the same version."""
    given = Counter(event.outcome for event in writes)
    return [
        f"version {version} was given {times} times"
        for version, times in given.items()
        if times > 1
    ]


def nothing_goes_back(events: Sequence[Event]) -> list[str]:
    """An operation that begins after another ended sees or assigns no older version; a write assigns a newer one."""
    return [
        f"{later} came after {earlier}"
        for earlier, later in product(events, events)
        if earlier.before(later)
        and earlier.outcome is not None
        and later.outcome is not None
        and (
            later.outcome <= earlier.outcome
            if later.kind == "write"
            else later.outcome < earlier.outcome
        )
    ]


def inserts_and_deletes_alternate(events: Sequence[Event]) -> list[str]:
    """Between two successful inserts of a key is a successful delete, and the other way round."""
    wrong = []
    for moment in sorted(event.end for event in events):
        begun = Counter(event.kind for event in events if event.start <= moment)
        ended = Counter(event.kind for event in events if event.end <= moment)
        if ended["insert"] > begun["delete"] + 1:
            wrong.append(f"by {moment}, {ended['insert']} inserts and {begun['delete']} deletes")
        if ended["delete"] > begun["insert"]:
            wrong.append(f"by {moment}, {ended['delete']} deletes and {begun['insert']} inserts")
    return wrong


def nothing_outlives_its_table(events: Sequence[Event]) -> list[str]:
    """A read after a table's deletion ended sees no write that had ended before the deletion began."""
    writes = {event.label: event for event in events if event.kind == "write"}
    deletions = _deletions(events)
    return [
        f"read {read.start} sees write {label}, which was deleted at {deletion.start}"
        for read in events
        if read.kind == "read"
        for label in read.seen
        for deletion in deletions
        if label in writes and writes[label].before(deletion) and deletion.before(read)
    ]


def what_is_written_is_read(events: Sequence[Event]) -> list[str]:
    """A read sees every write that had ended before it, unless a deletion came after the write had begun."""
    writes = [event for event in events if event.kind == "write" and event.outcome is not None]
    deletions = _deletions(events)
    wrong = []
    for read in events:
        if read.kind != "read" or read.outcome is None:
            continue
        last = max((each.end for each in deletions if each.start < read.end), default=0)
        due = {each.label for each in writes if last < each.start and each.end < read.start}
        if not due <= read.seen:
            wrong.append(f"read {read.start} lacks writes {due - read.seen}")
    return wrong


def _deletions(events: Sequence[Event]) -> list[Event]:
    return [each for each in events if each.kind == "delete table" and each.outcome is not None]
