"""Which records and base copies of an archive count (`archive/history.py`), against a brute force."""

from __future__ import annotations

import asyncio
import math
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestone.archive.history import (
    DAY_SECONDS,
    EVER,
    BaseCopy,
    Life,
    Line,
    Parted,
    Piece,
    Range,
    Term,
    present,
    read_bases,
    read_lives,
    restorable,
)
from tablestone.archive.objects import Content, Kind, Name, write_object
from tablestone.archive.store import Found
from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS
from unit.archive.stores import MemoryStore, cut, flipped

asynchronous = pytest.mark.asyncio
LAST = 12
A, B, C = "a" * 16, "b" * 16, "c" * 16
spans = st.tuples(st.integers(1, LAST), st.integers(1, LAST)).map(sorted)
objects = st.builds(
    lambda kind, term, span: Name(A, kind, term, span[0], span[1]),
    st.sampled_from([Kind.CHANGES, Kind.JOINED]),
    st.integers(1, 3),
    spans,
)
bases = st.builds(
    lambda start, more, reach: BaseCopy(
        Name(A, Kind.BASE, 1, start), start, start + more, start + more + reach, {}
    ),
    *(st.integers(0, LAST), st.integers(0, 4), st.integers(0, 4)),
)


def life_of(names: set[Name], firsts: list[int] | None = None, life: str = A) -> Life:
    """A life with the terms that begin at these records."""
    terms = [Term(number, f"r{number}", first) for number, first in enumerate(firsts or [1], 1)]
    return Life(life, terms, {name: Found(str(name), 1, 0.0) for name in names})


def own_line(life: Life) -> Line:
    """What counts of the life, without its parents."""
    return Line.of({life.life: life}, life.life)


def ranges_of(numbers: set[int]) -> list[Range]:
    firsts = sorted(number for number in numbers if number - 1 not in numbers)
    lasts = sorted(number for number in numbers if number + 1 not in numbers)
    return [Range(*each) for each in zip(firsts, lasts, strict=True)]


def numbers_of(first: int, last: int) -> set[int]:
    return set(range(first, last + 1))


@given(st.sets(objects, max_size=6), spans)
def test_the_cover_of_a_range_is_the_fewest_objects(names: set[Name], span: list[int]) -> None:
    first, last = span
    line = Line.of({A: life_of(names, [1, 1, 1])}, A)
    chain, gaps = line.cover(first, last)
    counting = {piece.name: numbers_of(piece.first, piece.last) for piece in line.pieces}
    wanted = numbers_of(first, last)
    covered = wanted & set().union(*counting.values())
    taken = [numbers_of(piece.first, piece.last) for piece in chain]
    assert all(each <= counting[piece.name] for each, piece in zip(taken, chain, strict=True))
    assert sorted(number for each in taken for number in each) == sorted(covered)
    assert gaps == ranges_of(wanted - covered)
    assert all(one.last < other.first for one, other in pairwise(chain))
    fewest = next(
        count
        for count in range(len(counting) + 1)
        if any(covered <= set().union(*some) for some in combinations(counting.values(), count))
    )
    assert len(chain) == fewest


@given(st.sets(objects, max_size=6), st.integers(1, LAST))
def test_a_reach_ends_before_the_first_missing_record(names: set[Name], first: int) -> None:
    line = Line.of({A: life_of(names, [1, 1, 1])}, A)
    there = set().union(*(numbers_of(piece.first, piece.last) for piece in line.pieces))
    missing = next(number for number in range(first, LAST + 2) if number not in there)
    assert line.reach(first) == missing - 1


@given(st.lists(bases, max_size=5))
def test_what_base_copies_restore(copies: list[BaseCopy]) -> None:
    numbers = set().union(*(numbers_of(each.end, each.reach) for each in copies))
    assert restorable(copies) == ranges_of(numbers)


@given(st.sets(objects, max_size=6), st.lists(st.integers(1, LAST), min_size=3, max_size=3))
def test_objects_of_a_term_count_up_to_the_next_one(names: set[Name], firsts: list[int]) -> None:
    """Whenever they were written."""
    firsts.sort()
    life = life_of(names, firsts)
    limits = [*(first - 1 for first in firsts[1:]), EVER]
    counting = {
        (name, number)
        for name in names
        for number in numbers_of(name.first, name.last)
        if number <= limits[name.term - 1]
    }
    assert counting == {
        (piece.name, number)
        for piece in own_line(life).pieces
        for number in numbers_of(piece.first, piece.last)
    }
    assert own_line(life).newest(life) == max(
        [firsts[-1] - 1, *(number for _name, number in counting)]
    )


@given(st.data())
def test_a_line_has_the_records_of_parents_up_to_where_each_life_parted(
    data: st.DataObject,
) -> None:
    """Also if a grandchild goes on from before its parent began."""
    ids, lives = (A, B, C), dict[str, Life]()
    for parent, life in zip((None, A, B), ids, strict=True):
        names = {
            name._replace(life=life, term=1) for name in data.draw(st.sets(objects, max_size=4))
        }
        first = 1
        if parent is not None:
            last = data.draw(st.integers(1, LAST))
            first, lives[life] = last + 1, life_of(set())
        names = {name for name in names if name.first >= first}
        lives[life] = life_of(names, [first], life)
        if parent is not None:
            lives[life].terms[0] = Term(1, "r", first, None, Parted(parent, first - 1))
    own = {
        life: {(life, n) for piece in own_line(lives[life]).pieces for n in numbers_of(*piece[:2])}
        for life in ids
    }
    b_last, c_last = (lives[life].parent.last for life in (B, C))  # type: ignore[union-attr]
    wanted = set(own[C])
    wanted |= {each for each in own[B] if each[1] <= c_last}
    wanted |= {each for each in own[A] if each[1] <= min(b_last, c_last)}
    line = Line.of(lives, C)
    assert {(piece.name.life, n) for piece in line.pieces for n in numbers_of(*piece[:2])} == wanted
    del lives[A]  # a parent that is gone
    assert {piece.name.life for piece in Line.of(lives, C).pieces} <= {B, C}


def stored(store: MemoryStore, name: Name, facts: dict[str, object] | None = None) -> Name:
    store.objects[str(name)] = write_object(name, Content(facts or {})), store.now
    return name


def changes(store: MemoryStore, term: int, first: int, last: int) -> Name:
    return stored(store, Name(A, Kind.CHANGES, term, first, last))


@pytest.fixture
def three_terms() -> MemoryStore:
    """Terms from 1, 5 and 9 on; those of term 1 and 2 were also written later."""
    store = MemoryStore()
    for number, first in enumerate((1, 5, 9), 1):
        term = Term(number, f"r{number}", first)
        stored(store, Name(A, Kind.TERM, number), term._asdict())
    for each in ((1, 1, 4), (1, 5, 11), (2, 5, 8), (2, 9, 12), (3, 9, 10)):
        changes(store, *each)
    return store


@asynchronous
async def test_lives_are_read_with_their_terms(three_terms: MemoryStore) -> None:
    stored(three_terms, Name(B, Kind.TERM, 1), Term(1, "r", 9, None, Parted(A, 8))._asdict())
    three_terms.objects["readme.txt"] = b"?", 0.0
    lives = await read_lives(three_terms)
    assert [term.first for term in lives[A].terms] == [1, 5, 9]
    assert lives[B].parent == (A, 8)
    assert [piece[:2] for piece in own_line(lives[A]).pieces] == [(1, 4), (5, 8), (9, 10)]
    assert (await read_lives(three_terms, only=B)).keys() == {B}


@asynchronous
async def test_the_terms_of_many_starts_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is restarted each hour has thousands in a few months."""
    store = MemoryStore()
    for number in range(1, 201):
        stored(store, Name(A, Kind.TERM, number), Term(number, "r", number)._asdict())
    under_way, most, real = 0, 0, store.read

    async def read(name: str, length: int | None = None) -> bytes:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return await real(name, length)

    monkeypatch.setattr(store, "read", read)
    assert [term.first for term in (await read_lives(store))[A].terms] == [*range(1, 201)]
    assert 32 <= most <= 64


@asynchronous
@pytest.mark.parametrize("how", [None, flipped, cut], ids=["missing", "flipped", "cut"])
@pytest.mark.parametrize("term", [1, 2, 3])
async def test_a_term_that_cannot_be_read_still_ends_the_one_before(
    three_terms: MemoryStore, term: int, how: object
) -> None:
    three_terms.damage(Name(A, Kind.TERM, term), how)  # type: ignore[arg-type]
    life = (await read_lives(three_terms))[A]
    assert [each.first for each in life.terms] == [1, 5, 9]
    assert [each.run for each in life.terms][term - 1] == ""
    assert [piece[:2] for piece in own_line(life).pieces] == [(1, 4), (5, 8), (9, 10)]
    assert f"terms/{term:020}" in str(life.problems[0])


@asynchronous
@pytest.mark.parametrize(
    ("last", "present", "counts"),
    [
        (2, [(1, 1, 4)], True),
        (4, [(1, 1, 4)], True),
        (0, [], True),
        (5, [(1, 1, 4), (1, 5, 11), (2, 5, 8)], False),  # beyond the term of the copy
        (3, [(1, 1, 2)], False),
        (3, [(1, 2, 4)], False),
    ],
)
async def test_a_base_copy_counts_with_all_records_since_it_began(
    three_terms: MemoryStore,
    last: int,
    present: list[tuple[int, int, int]],
    counts: bool,  # noqa: FBT001
) -> None:
    for name in three_terms.names("changes"):
        three_terms.damage(name)
    for each in present:
        changes(three_terms, *each)
    end = stored(three_terms, Name(A, Kind.BASE, 1, 0), {"last": last, "parts": []})
    line = Line.of(await read_lives(three_terms), A)
    assert [base.name for base in await read_bases(three_terms, line)] == [end] * counts
    problems: list[Exception] = []
    three_terms.damage(end, flipped)
    assert await read_bases(three_terms, line, (), problems) == []
    assert str(end) in str(problems[0])


def test_a_piece_of_both_kinds_sorts() -> None:
    """The same records twice: neither a listing nor a cover fails."""
    names = {Name(A, kind, 1, 1, 3) for kind in (Kind.CHANGES, Kind.JOINED)}
    line = Line.of({A: life_of(names)}, A)
    assert len(line.pieces) == 2
    assert line.cover(1, 3)[1] == []
    assert isinstance(line.pieces[0], Piece)


@pytest.mark.parametrize(
    ("days", "now"),
    [
        ([30, 35, 40], 40),
        ([30, 40, 41], 41),  # a day after the clock at most
        ([30, 40, 42], 40),
        ([32, 39, 44, 90], 39),
        ([0, 20, 40], 20),  # a leap of more than ten days: the time before it
        ([0, 20, 26, 29], 0),
        ([0, 20, 26, 30], 30),  # until as much time has followed
        ([0, 10, 20, 40], 20),
        ([0, 15, 30], 15),
        ([60, 70], -math.inf),
        ([], -math.inf),
    ],
)
def test_the_present_time_of_an_archive(days: list[float], now: float) -> None:
    """The clock says day 40; a retention of ten days."""
    life = Life("a" * 16)
    for number, day in enumerate(reversed(days)):
        name = Name(life.life, Kind.CHANGES, 1, number, number)
        life.found[name] = Found(str(name), 1, day * DAY_SECONDS)
    clock = int(40 * DAY_SECONDS) * TICKS_PER_SECOND + UNIX_EPOCH_TICKS
    assert present([life], clock, 10 * DAY_SECONDS) == now * DAY_SECONDS
    newest = max((day for day in days if day <= 41), default=-math.inf)
    assert present([life], clock) == newest * DAY_SECONDS
