"""A test of the crash tests: a journal reports every kind of loss, and nothing else."""

from dataclasses import dataclass

import pytest

from stress.crash.journal import Change, Journal, NamedJournal, Properties, State, Stored
from tablestone.model.etag import format_etag

OLD: Properties = {"number": 1}
NEW: Properties = {"number": 2}
OTHER: Properties = {"number": 3}
W0, W1, W2, W9 = map(format_etag, (1_000_000, 1_000_001, 1_000_002, 1_000_009))
KEPT = {"a": Stored(OLD, W1), "b": Stored(OLD, W1)}


@dataclass(frozen=True)
class Case:
    name: str
    found: dict[str, Stored]
    complaint: str | None  # the beginning of the only complaint
    in_flight: tuple[Change, ...] = ()


PAIR = (Change("a", NEW), Change("b", None))
CASES = (
    Case("all is there", KEPT, None),
    Case(
        "one was lost", {"b": KEPT["b"]}, f"p/a: acknowledged {{'number': 1}} {W1}, found nothing"
    ),
    Case(
        "an older state came back",
        KEPT | {"a": Stored(OTHER, W0)},
        f"p/a: acknowledged {{'number': 1}} {W1}, found {{'number': 3}} {W0}",
    ),
    Case("another ETag", KEPT | {"a": Stored(OLD, W2)}, "p/a: acknowledged"),
    Case(
        "a deleted one is back",
        KEPT | {"c": Stored(OLD, W1)},
        f"p/c: acknowledged nothing, found {{'number': 1}} {W1}",
    ),
    Case("in flight, did not happen", KEPT, None, PAIR),
    Case("in flight, happened", {"a": Stored(NEW, W9)}, None, PAIR),
    Case(
        "half of a transaction: only the update",
        {"a": Stored(NEW, W9), "b": KEPT["b"]},
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
        KEPT | {"a": Stored(OTHER, W9)},
        "p/a: acknowledged",
        PAIR[:1],
    ),
    Case(
        "in flight, happened, and the Timestamp stood still",
        KEPT | {"a": Stored(NEW, W1)},
        f"p/a: the Timestamp of {W1} follows {W1}",
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
    journal.acknowledge([W9, None])
    assert journal.acknowledged == {"a": Stored(NEW, W9)}
    assert list(journal.complaints(KEPT)) != []
    assert list(journal.complaints({"a": Stored(NEW, W9)})) == []


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
        (("U", set()), {"T": {"a"}, "U": {"old"}}, True),  # created again, and an old entity shows
    ],
)
def test_a_table_journal_complains_about_what_was_lost(
    in_flight: tuple[str, set[str] | None] | None, found: dict[str, set[str]], *, complains: bool
) -> None:
    journal = NamedJournal("table", acknowledged={"T": frozenset("a")})
    if in_flight is not None:
        table, rows = in_flight
        journal.begin(table, None if rows is None else frozenset(rows))
    seen: dict[str, State] = {table: frozenset(rows) for table, rows in found.items()}
    assert bool(list(journal.complaints(seen))) is complains


def test_a_timestamp_that_runs_back_in_an_answer_is_seen() -> None:
    journal = Journal("p", acknowledged=dict(KEPT))
    journal.begin([Change("a", NEW)])
    journal.acknowledge([W0])
    found = KEPT | {"a": Stored(NEW, W0)}
    assert list(journal.complaints(found)) == [f"p/a: the Timestamp of {W0} follows {W1}"]


def test_a_backup_shows_one_state_of_its_time() -> None:
    journal = Journal("p", acknowledged=dict(KEPT))
    journal.watch()
    journal.begin([Change("a", NEW)])
    journal.acknowledge([W2])
    journal.begin(PAIR)
    watched = journal.end_watch()
    during = KEPT | {"a": Stored(NEW, W2)}
    unanswered = {"a": Stored(NEW, W9)}
    for state in (KEPT, during, unanswered):
        assert list(journal.complaints_of_backup(state, watched)) == []
    half = KEPT | {"a": Stored(NEW, W9)}
    for state in ({}, {"b": KEPT["b"]}, KEPT | {"a": Stored(OTHER, W2)}, half):
        assert len(list(journal.complaints_of_backup(state, watched))) == 1


def test_a_backup_shows_one_state_of_the_tables() -> None:
    journal = NamedJournal("table", acknowledged={"T": "a"})
    journal.watch()
    journal.begin("T", None)
    journal.acknowledge()
    journal.begin("U", "b")
    watched = journal.end_watch()
    allowed: list[dict[str, State]] = [{"T": "a"}, {}, {"U": "b"}]
    for state in allowed:
        assert list(journal.complaints_of_backup(state, watched)) == []
    assert len(list(journal.complaints_of_backup({"T": "a", "U": "b"}, watched))) == 1
