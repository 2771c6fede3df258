"""The steps that `python -m bench.in_process` times are functions that exist; how `python -m bench.stays` counts."""

from typing import Any

import pytest

from bench.stays import Stays, stays_of
from bench.steps import STEPS


@pytest.mark.parametrize(
    ("owner", "name"), [each for step in STEPS.values() for each in step], ids=str
)
def test_the_functions_of_each_step_are_there(owner: Any, name: str) -> None:
    assert callable(getattr(owner, name))


def test_a_return_is_a_call_into_a_file_that_was_left() -> None:
    assert stays_of(["a", "b", "b", "a", "c", "b"]) == Stays(calls=6, files=3, returns=2)
