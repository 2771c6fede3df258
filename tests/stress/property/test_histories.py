"""Tests of the checks of histories: each finds the fault in a wrong history, and nothing in a correct one."""

from collections.abc import Callable, Sequence

import pytest

from stress.property.histories import (
    Event,
    inserts_and_deletes_alternate,
    nothing_goes_back,
    nothing_outlives_its_table,
    one_success_per_version,
    versions_are_given_once,
    what_is_written_is_read,
)

Judge = Callable[[Sequence[Event]], list[str]]


def write(start: int, end: int, version: int, condition: int | None = None) -> Event:
    return Event(start, end, "write", version, condition)


def read(start: int, end: int, version: int) -> Event:
    return Event(start, end, "read", version)


def key(kind: str, start: int, end: int) -> Event:
    return Event(start, end, kind, 1)


LABELLED = Event(1, 2, "write", 5, label=7)
DELETION = Event(3, 4, "delete table", 0)

WRONG: list[tuple[str, Judge, list[Event]]] = [
    ("an ETag used twice", one_success_per_version, [write(1, 4, 6, 5), write(2, 3, 7, 5)]),
    ("a version given twice", versions_are_given_once, [write(1, 4, 6), write(2, 3, 6)]),
    ("a read after a write sees less", nothing_goes_back, [write(1, 2, 6), read(3, 4, 5)]),
    ("a read goes back", nothing_goes_back, [read(1, 2, 6), read(3, 4, 5)]),
    ("a write makes what was read", nothing_goes_back, [read(1, 2, 6), write(3, 4, 6)]),
    ("two inserts", inserts_and_deletes_alternate, [key("insert", 1, 2), key("insert", 3, 4)]),
    (
        "a delete of nothing",
        inserts_and_deletes_alternate,
        [key("delete", 1, 2), key("insert", 3, 4)],
    ),
    (
        "an old entity in a new table",
        nothing_outlives_its_table,
        [LABELLED, DELETION, Event(5, 6, "read", 0, seen=frozenset((7,)))],
    ),
    ("a write that is lost", what_is_written_is_read, [LABELLED, Event(3, 4, "read", 0)]),
    (
        "a write after the deletion that is lost",
        what_is_written_is_read,
        [Event(1, 2, "delete table", 0), Event(3, 4, "write", 5, label=7), Event(5, 6, "read", 0)],
    ),
]
RIGHT: list[tuple[str, Judge, list[Event]]] = [
    ("two ETags", one_success_per_version, [write(1, 4, 6, 5), write(2, 3, 7, 6)]),
    ("two versions", versions_are_given_once, [write(1, 4, 6), write(2, 3, 7)]),
    ("a read beside a write sees less", nothing_goes_back, [write(1, 3, 6), read(2, 4, 5)]),
    ("the same read twice", nothing_goes_back, [read(1, 2, 6), read(3, 4, 6)]),
    (
        "two inserts around a delete beside both",
        inserts_and_deletes_alternate,
        [key("insert", 1, 3), key("delete", 2, 6), key("insert", 4, 5)],
    ),
    (
        "a read beside the deletion",
        nothing_outlives_its_table,
        [LABELLED, Event(3, 5, "delete table", 0), Event(4, 6, "read", 0, seen=frozenset((7,)))],
    ),
    (
        "a write beside the deletion",
        nothing_outlives_its_table,
        [
            Event(1, 4, "write", 5, label=7),
            Event(3, 5, "delete table", 0),
            Event(6, 7, "read", 0, seen=frozenset((7,))),
        ],
    ),
    (
        "a write that is deleted",
        what_is_written_is_read,
        [LABELLED, DELETION, Event(5, 6, "read", 0)],
    ),
    (
        "a deletion beside the read",
        what_is_written_is_read,
        [LABELLED, Event(3, 6, "delete table", 0), Event(4, 5, "read", 0)],
    ),
]


@pytest.mark.parametrize(
    ("judge", "events"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_what_is_wrong_is_found(judge: Judge, events: list[Event]) -> None:
    assert judge(events)


@pytest.mark.parametrize(
    ("judge", "events"), [row[1:] for row in RIGHT], ids=[row[0] for row in RIGHT]
)
def test_what_is_right_is_left_alone(judge: Judge, events: list[Event]) -> None:
    assert judge(events) == []
