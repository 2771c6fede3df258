"""The answers that a writer got, and whether a killed server kept the acknowledged data.

A journal belongs to one writer and one partition, which no other writer touches. So at any moment at most one operation
is unanswered; it may have happened or not, but never in part. While a backup is made, a journal is watched: it keeps
every state, because the backup has to show one of them. Must not know HTTP.
"""

import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tablestone.model.etag import parse_etag

Properties = dict[str, str | int]


@dataclass(frozen=True)
class Stored:
    properties: Properties
    etag: str


@dataclass(frozen=True)
class Change:
    """What an operation does to one entity; `properties` is None for a deletion.

    Every change that writes contains a number that was never used before, so before and after always differ.
    """

    row_key: str
    properties: Properties | None


@dataclass
class Journal:
    """The entities of one partition."""

    partition_key: str
    acknowledged: dict[str, Stored] = field(default_factory=dict)
    in_flight: tuple[Change, ...] = ()
    operations_acknowledged: int = 0
    etags: set[tuple[str, str]] = field(default_factory=set)
    """Every RowKey with each ETag that was acknowledged."""
    went_back: list[str] = field(default_factory=list)
    """The answers in which an entity's Timestamp was not later than before, in words."""
    _watched: list[dict[str, Stored]] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, changes: Sequence[Change]) -> None:
        with self._lock:
            self.in_flight = tuple(changes)

    def acknowledge(self, etags: Sequence[str | None]) -> None:
        """Take the answer: one ETag for each change, None for a deletion."""
        after = dict(self.acknowledged)
        for change, etag in zip(self.in_flight, etags, strict=True):
            if change.properties is None:
                del after[change.row_key]
            else:
                assert etag is not None, f"no ETag for {change}"
                after[change.row_key] = Stored(change.properties, etag)
                self.etags.add((change.row_key, etag))
                self.went_back += self._not_later(change.row_key, after)
        self.operations_acknowledged += 1
        self._continue_from(after)

    def forget(self) -> None:
        """Forget the operation: the server said that it has done nothing."""
        with self._lock:
            self.in_flight = ()

    def complaints(self, found: Mapping[str, Stored]) -> Iterator[str]:
        """Where the journal and the partition contradict each other after a kill, in words."""
        yield from self.went_back
        self.went_back = []
        in_flight = {change.row_key for change in self.in_flight}
        for row_key in sorted((self.acknowledged.keys() | found.keys()) - in_flight):
            if found.get(row_key) != self.acknowledged.get(row_key):
                yield self.differs(row_key, found)
        applied = 0
        for change in self.in_flight:
            entity = found.get(change.row_key)
            if (entity.properties if entity else None) == change.properties:
                applied += 1
                yield from self._not_later(change.row_key, found)
            elif entity != self.acknowledged.get(change.row_key):
                yield self.differs(change.row_key, found)
        if 0 < applied < len(self.in_flight):
            yield (
                f"{self.partition_key}: {applied} of the {len(self.in_flight)} operations of a"
                " transaction without an answer were applied"
            )

    def differs(self, row_key: str, found: Mapping[str, Stored]) -> str:
        return (
            f"{self.partition_key}/{row_key}: acknowledged {shown(self.acknowledged.get(row_key))},"
            f" found {shown(found.get(row_key))}"
        )

    def settle(self, found: Mapping[str, Stored]) -> None:
        """Continue from the data that was found, which decides about the unanswered operation."""
        self._continue_from(dict(found))

    def watch(self) -> None:
        """Keep every state from now on."""
        with self._lock:
            self._watched = [self.acknowledged]

    def end_watch(self) -> tuple[list[dict[str, Stored]], tuple[Change, ...]]:
        """The states since `watch`, and the operation that is unanswered now."""
        with self._lock:
            states, self._watched = self._watched, None
            assert states is not None
            return states, self.in_flight

    def complaints_of_backup(
        self,
        found: Mapping[str, Stored],
        watched: tuple[list[dict[str, Stored]], tuple[Change, ...]],
    ) -> Iterator[str]:
        """Where a backup made while the journal was watched contradicts it."""
        states, in_flight = watched
        if dict(found) in states:
            return
        last = Journal(self.partition_key, states[-1], in_flight)
        if in_flight and not list(last.complaints(found)):
            return
        yield f"{self.partition_key}: the backup has none of the {len(states)} states of its time"

    def _continue_from(self, state: dict[str, Stored]) -> None:
        with self._lock:
            self.acknowledged = state
            self.in_flight = ()
            if self._watched is not None:
                self._watched.append(state)

    def _not_later(self, row_key: str, after: Mapping[str, Stored]) -> Iterator[str]:
        earlier, later = self.acknowledged.get(row_key), after.get(row_key)
        if earlier and later and parse_etag(later.etag) <= parse_etag(earlier.etag):
            yield f"{self.partition_key}/{row_key}: the Timestamp of {later.etag} follows {earlier.etag}"


Rows = frozenset[str]
State = Hashable
Unanswered = tuple[str, tuple[State | None, ...]] | None
BEING_DELETED: Final = "being deleted"


@dataclass
class NamedJournal:
    """One writer's things by name, such as tables with their RowKeys; at most one operation is unanswered.

    Its methods are those of a journal of entities.
    """

    kind: str
    acknowledged: dict[str, State] = field(default_factory=dict)
    in_flight: Unanswered = None
    """The thing being changed, its state afterwards (None if it is deleted), then other states on the way."""
    operations_acknowledged: int = 0
    _watched: list[dict[str, State]] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, name: str, state: State | None, *on_the_way: State) -> None:
        with self._lock:
            self.in_flight = (name, (state, *on_the_way))

    def acknowledge(self) -> None:
        assert self.in_flight is not None
        name, (state, *_) = self.in_flight
        self.operations_acknowledged += 1
        self._continue_from(changed(self.acknowledged, name, state))

    def forget(self) -> None:
        with self._lock:
            self.in_flight = None

    def complaints(self, found: Mapping[str, State]) -> Iterator[str]:
        for name in sorted(self.acknowledged.keys() | found.keys()):
            allowed = [self.acknowledged.get(name)]
            if self.in_flight is not None and self.in_flight[0] == name:
                allowed += self.in_flight[1]
            if found.get(name) not in allowed:
                yield f"{self.kind} {name}: allowed {allowed}, found {found.get(name)}"

    def settle(self, found: Mapping[str, State]) -> None:
        self._continue_from(dict(found))

    def watch(self) -> None:
        with self._lock:
            self._watched = [self.acknowledged]

    def end_watch(self) -> tuple[list[dict[str, State]], Unanswered]:
        with self._lock:
            states, self._watched = self._watched, None
            assert states is not None
            return states, self.in_flight

    def complaints_of_backup(
        self, found: Mapping[str, State], watched: tuple[list[dict[str, State]], Unanswered]
    ) -> Iterator[str]:
        states, in_flight = watched
        if in_flight is not None:
            name, outcomes = in_flight
            states = states + [changed(states[-1], name, state) for state in outcomes]
        if dict(found) not in states:
            yield f"{self.kind}: the backup has none of the {len(states)} states of its time"

    def _continue_from(self, state: dict[str, State]) -> None:
        with self._lock:
            self.acknowledged = state
            self.in_flight = None
            if self._watched is not None:
                self._watched.append(state)


def changed(states: Mapping[str, State], name: str, state: State | None) -> dict[str, State]:
    """The states with one thing's state replaced, or without the thing if its state is None."""
    rest = {each: other for each, other in states.items() if each != name}
    return rest if state is None else {**rest, name: state}


def shown(entity: Stored | None) -> str:
    if entity is None:
        return "nothing"
    values = {name: value for name, value in entity.properties.items() if name != "padding"}
    return f"{values} {entity.etag}"
