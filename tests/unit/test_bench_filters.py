"""The bench of filters asks one question in several ways, which all have the same answer."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.filter_forms import (
    FORMS,
    FROM_THE_BEGINNING,
    WALKING,
    Shape,
    bounded,
    query,
    query_with,
    sql_of,
)
from bench.filter_in_sql import CASES, evenly, least_seconds, opened, ways

SMALL = Shape("three of 1 row, one of 500, and again", 3, 500, 1_000)


def test_every_way_of_a_case_finds_as_many() -> None:
    """It is `least_seconds` that asks."""
    with opened(evenly(200)) as place:
        for case in CASES:
            assert len(least_seconds(ways(place, case), 1)) == 3


def test_no_form_in_sql_finds_anything() -> None:
    with opened(evenly(40)) as place:
        assert {
            form: sql_of(sql, place.connection)() for form, sql in FORMS.items()
        } == dict.fromkeys(FORMS, 0)


def test_a_shape_has_its_partitions_and_scattered_numbers() -> None:
    places = SMALL.places()
    sizes = Counter(partition for partition, _ in places)
    assert list(sizes.values()) == [1, 1, 1, 500, 1, 1, 1, 494]
    assert {number for _, number in places} == set(range(1_000))


@pytest.mark.parametrize("change", [FROM_THE_BEGINNING, WALKING])
@pytest.mark.parametrize("share", [0, 1])
def test_what_is_switched_off_changes_no_answer(change: object, share: int) -> None:
    with opened(SMALL.places()) as place:
        text = bounded(SMALL.rows, share).replace("100.0", "0.0")  # which all match
        found = query(place, text)
        assert found == (100 if share else 0)
        assert query_with(change, place, text) == found  # type: ignore[arg-type]
