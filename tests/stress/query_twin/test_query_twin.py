"""The short form of `python -m tests.stress.query_twin`."""

from collections import Counter
from random import Random

import pytest

from storage.engines_under_test import URL
from stress.query_twin.twin import ENGINES, KINDS, QUERIES_OF_A_TABLE, run

TABLES = 5


@pytest.mark.parametrize("share", range(4))
def test_each_answer_is_the_twin_s(share: int) -> None:
    """Five hundred queries of all shares, always the same ones."""
    done: Counter[str] = Counter()
    for number in range(TABLES):
        engine = URL or ENGINES[number % len(ENGINES)]
        done += run(engine, Random(f"short/{share}/{number}"), QUERIES_OF_A_TABLE)
    assert URL is not None or set(KINDS) <= set(done), done
