"""The search for a planted bug ends with the first wrong run or with its minute; a late find does not count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stress.histories.bug_search import Search, search, wrong_in
from stress.histories.checker import missing
from stress.histories.recording import ANY_VERSION, Found, History, Write

if TYPE_CHECKING:
    from collections.abc import Sequence


class Looks:
    """Runs that each take some seconds of a clock; the last of them finds something if `finds`."""

    def __init__(self, lengths: Sequence[float], *, finds: bool) -> None:
        self._lengths = lengths
        self._finds = finds
        self._now = 1000.0
        self.left: list[float] = []

    def clock(self) -> float:
        return self._now

    def look(self, number: int, seconds_left: float) -> list[str]:
        self.left.append(seconds_left)
        self._now += self._lengths[number - 1]
        return ["a stale read"] if self._finds and number == len(self._lengths) else []


@pytest.mark.parametrize(
    ("lengths", "finds", "left", "is_found", "told"),
    [
        ([4.0], True, [60.0], True, "found after 4.0 s and 1 run: a stale read"),
        ([25.0, 35.0], True, [60.0, 35.0], True, "found after 60.0 s and 2 runs: a stale read"),
        (
            [59.0, 2.0],
            True,
            [60.0, 1.0],
            False,
            "found after 61.0 s and 2 runs, later than 60 s: a stale read",
        ),
        ([30.0, 31.0, 1.0], True, [60.0, 30.0], False, "nothing found in 61.0 s and 2 runs"),
        (
            [20.0, 20.0, 20.0],
            False,
            [60.0, 40.0, 20.0],
            False,
            "nothing found in 60.0 s and 3 runs",
        ),
    ],
)
def test_a_search_ends_with_a_find_or_with_its_minute(
    lengths: list[float], left: list[float], told: str, *, finds: bool, is_found: bool
) -> None:
    looks = Looks(lengths, finds=finds)
    found = search(looks.look, clock=looks.clock)
    assert (looks.left, found.is_found, str(found)) == (left, is_found, told)


@pytest.mark.parametrize(
    ("search_", "is_found"),
    [
        (Search("wrong", 10.0, 10.0, 1), True),
        (Search("wrong", 10.1, 10.0, 1), False),
        (Search("", 10.1, 10.0, 1), False),
    ],
)
def test_a_find_counts_within_the_time_of_the_search(search_: Search, *, is_found: bool) -> None:
    assert search_.is_found is is_found


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize(("seen", "wrong"), [(1, 0), (2, 1)])
def test_a_history_is_wrong_if_a_read_saw_a_value_that_was_never_written(
    seen: int, wrong: int
) -> None:
    history = History("partition")
    insert = history.begin(1, writes=(Write("insert", 0, 1, ANY_VERSION),))
    insert.done = [7]
    history.answered(insert)
    read = history.begin(1, get=0)
    read.rows = [Found(0, seen, 0, 7)]
    history.answered(read)
    assert len(wrong_in([history], 10.0)) == wrong
