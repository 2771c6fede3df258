"""The steps that `python -m bench.in_process` times are functions that exist."""

from typing import Any

import pytest

from bench.steps import STEPS


@pytest.mark.parametrize(
    ("owner", "name"), [each for step in STEPS.values() for each in step], ids=str
)
def test_the_functions_of_each_step_are_there(owner: Any, name: str) -> None:
    assert callable(getattr(owner, name))
