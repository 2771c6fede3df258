"""The cases of `socket_cases` on one connection in this process: cut anywhere, they get the same answers.

The long form is `python -m tests.stress.fuzz connection --minutes 60`.
"""

import pytest

from stress.fuzz import connection_runs
from stress.fuzz.connection_runs import ASKED, BROKEN
from stress.fuzz.socket_cases import CASES, SocketCase
from tablestone.limits import PIPELINED_REQUESTS_MAX

SEED = 20261128
INPUTS = 3_000


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_gets_its_answer_wherever_it_is_cut(case: SocketCase) -> None:
    assert connection_runs.of_case(case) == []


def test_no_bytes_make_a_connection_fail() -> None:
    assert list(connection_runs.run(INPUTS, SEED)) == []


REFUSED = b"HTTP/1.1 400 Bad Request\r\n\r\n" + BROKEN
OK = b"HTTP/1.1 200 OK\r\n\r\n"
MANY = [b"/r"] * (PIPELINED_REQUESTS_MAX + 1)
# What was answered and which requests were reached, in pieces and in one.
DIFFERENCES = [
    ("the last request is reached", (REFUSED, [b"/r"]), (REFUSED, []), True),
    ("its client is asked for the body", (ASKED + REFUSED, [b"/r"]), (REFUSED, [b"/r"]), True),
    ("reached and asked", (ASKED + REFUSED, [b"/r"]), (REFUSED, []), True),
    ("one of too many is refused", (OK * 5 + REFUSED, MANY), (OK * 6, MANY), True),
    ("two more are reached", (REFUSED, [b"/r", b"/s"]), (REFUSED, []), False),
    ("another is reached", (REFUSED, [b"/s"]), (REFUSED, [b"/r"]), False),
    ("a first one is not reached", (REFUSED, [b"/s"]), (REFUSED, [b"/r", b"/s"]), False),
    ("one more is answered", (OK + REFUSED, [b"/r"]), (REFUSED, []), False),
    ("asked, and no bytes are broken", (ASKED + OK, [b"/r"]), (OK, [b"/r"]), False),
    ("answered, not refused", (OK, [b"/r"]), (REFUSED, [b"/r"]), False),
]


@pytest.mark.parametrize(
    ("found", "whole", "is_of_time"),
    [each[1:] for each in DIFFERENCES],
    ids=[each[0] for each in DIFFERENCES],
)
def test_only_a_difference_of_time_is_no_finding(
    found: tuple[bytes, list[bytes]], whole: tuple[bytes, list[bytes]], *, is_of_time: bool
) -> None:
    assert connection_runs.differ_by_time(found, whole) is is_of_time
    assert connection_runs.differ_by_time(whole, found) is is_of_time
