"""Bytes that are HTTP, nearly HTTP, or two requests to a careless reader: each is answered, none is smuggled in.

The long form is `python -m tests.stress.fuzz sockets --inputs 100000`.
"""

from collections.abc import Iterator

import pytest

from stress.fuzz import socket_runs
from stress.fuzz.planted_server import TWO_LENGTHS
from stress.fuzz.request_runs import Server, served
from stress.fuzz.socket_cases import CASES, TWO_FRAMINGS, SocketCase
from stress.fuzz.socket_runs import Target, prepare, problems_of_case, start_impatient
from stress.fuzz.test_requests import start_planted

pytestmark = pytest.mark.slow

SEED = 20261122
INPUTS = 2_500


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served(start_impatient) as (server, ended):
        prepare(server)
        yield server
    assert ended == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_gets_its_answer(server: Server, case: SocketCase) -> None:
    assert list(problems_of_case(server, Target(server.process), case)) == []


def test_no_bytes_make_the_server_fail() -> None:
    assert list(socket_runs.changed(INPUTS, SEED)) == []


def test_a_server_that_takes_two_lengths_is_found() -> None:
    """It carries out the hidden write."""
    with served(lambda directory: start_planted(TWO_LENGTHS, directory)) as (server, _ended):
        prepare(server)
        target = Target(server.process)
        found = [
            problem for case in TWO_FRAMINGS for problem in problems_of_case(server, target, case)
        ]
    assert any("the hidden write was carried out" in problem for problem in found)


def test_names_of_cases_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
