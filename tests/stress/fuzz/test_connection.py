"""The cases of `socket_cases` on one connection in this process: cut anywhere, they get the same answers.

The long form is `python -m tests.stress.fuzz connection --minutes 60`.
"""

import pytest

from stress.fuzz import connection_runs
from stress.fuzz.socket_cases import CASES, SocketCase

SEED = 20261128
INPUTS = 3_000


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_gets_its_answer_wherever_it_is_cut(case: SocketCase) -> None:
    assert connection_runs.of_case(case) == []


def test_no_bytes_make_a_connection_fail() -> None:
    assert list(connection_runs.run(INPUTS, SEED)) == []
