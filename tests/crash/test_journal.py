"""The canary of the crash tests: a journal reports every kind of loss, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from crash.journal import Change, Journal, Properties, Rows, Stored, TableJournal

OLD: Properties = {"number": 1}
NEW: Properties = {"number": 2}
OTHER: Properties = {"number": 3}
KEPT = {"a": Stored(OLD, "W/1"), "b": Stored(OLD, "W/1")}


@dataclass(frozen=True)
class Case:
    name: str
    found: dict[str, Stored]
    complaint: str | None  # the beginning of the only complaint
    in_flight: tuple[Change, ...] = ()


PAIR = (Change("a", NEW), Change("b", None))
CASES = (
    Case("all is there", KEPT, None),
    Case("one was lost", {"b": KEPT["b"]}, "p/a: acknowledged {'number': 1} W/1, found nothing"),
    Case(
        "an older state came back",
        KEPT | {"a": Stored(OTHER, "W/0")},
        "p/a: acknowledged {'number': 1} W/1, found {'number': 3} W/0",
    ),
    Case("another ETag", KEPT | {"a": Stored(OLD, "W/2")}, "p/a: acknowledged"),
    Case(
        "a deleted one is back",
        KEPT | {"c": Stored(OLD, "W/1")},
        "p/c: acknowledged nothing, found {'number': 1} W/1",
    ),
    Case("in flight, did not happen", KEPT, None, PAIR),
    Case("in flight, happened", {"a": Stored(NEW, "W/9")}, None, PAIR),
    Case(
        "half of a transaction: only the update",
        {"a": Stored(NEW, "W/9"), "b": KEPT["b"]},
        "p: 1 of the 2 operations of a transaction",
        PAIR,
    ),
    Case(
        "half of a transaction: only the deletion",
        {"a": KEPT["a"]},
        "p: 1 of the 2 operations of a transaction",
        PAIR,
    ),
    Case(
        "in flight, and neither before nor after",
        KEPT | {"a": Stored(OTHER, "W/9")},
        "p/a: acknowledged",
        PAIR[:1],
    ),
    Case(
        "in flight, and another entity was lost",
        {"b": KEPT["b"]},
        "p/a: acknowledged",
        (Change("b", NEW),),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_journal_complains_about_what_was_lost(case: Case) -> None:
    journal = Journal("p", acknowledged=dict(KEPT), in_flight=case.in_flight)
    complaints = list(journal.complaints(case.found))
    if case.complaint is None:
        assert complaints == []
    else:
        assert [text[: len(case.complaint)] for text in complaints] == [case.complaint]


def test_an_answer_becomes_the_state_that_must_survive() -> None:
    journal = Journal("p", acknowledged=dict(KEPT))
    journal.begin(PAIR)
    journal.acknowledge(["W/5", None])
    assert journal.acknowledged == {"a": Stored(NEW, "W/5")}
    assert list(journal.complaints(KEPT)) != []
    assert list(journal.complaints({"a": Stored(NEW, "W/5")})) == []


@pytest.mark.parametrize(
    ("in_flight", "found", "complains"),
    [
        (None, {"T": {"a"}}, False),
        (None, {}, True),  # a table was lost
        (None, {"T": set()}, True),  # an entity was lost
        (None, {"T": {"a", "old"}}, True),  # something old shows
        (None, {"T": {"a"}, "U": set()}, True),  # a deleted table is back
        (("T", {"a", "b"}), {"T": {"a", "b"}}, False),
        (("T", {"a", "b"}), {"T": {"b"}}, True),  # only changes that were not acknowledged
        (("T", None), {}, False),
        (("T", None), {"T": {"a"}}, False),
        (("T", None), {"T": set()}, True),  # half deleted
        (("U", set()), {"T": {"a"}, "U": set()}, False),
        (("U", set()), {"T": {"a"}, "U": {"old"}}, True),  # re-created, and something old shows
    ],
)
def test_a_table_journal_complains_about_what_was_lost(
    in_flight: tuple[str, set[str] | None] | None, found: dict[str, set[str]], *, complains: bool
) -> None:
    journal = TableJournal(acknowledged={"T": frozenset("a")})
    if in_flight is not None:
        table, rows = in_flight
        journal.begin(table, None if rows is None else frozenset(rows))
    seen: dict[str, Rows] = {table: frozenset(rows) for table, rows in found.items()}
    assert bool(list(journal.complaints(seen))) is complains
