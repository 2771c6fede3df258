"""A real server gives every request an answer of the service: kept requests, new ones, and changes of both.

The long form is `python -m tests.stress.fuzz requests --inputs 1000000`.
"""

import json
import sys
from pathlib import Path

import pytest

from server_process import ServerProcess, start_server
from stress.fuzz import drafts, request_runs
from stress.fuzz.http_session import Answer
from stress.fuzz.judging import problems
from stress.fuzz.planted_server import DESCRIPTORS, ERROR, MEMORY

pytestmark = pytest.mark.slow

SEED = 20261122
INPUTS = 3_500
PLANTED = Path(__file__).with_name("planted_server.py")


def start_planted(bug: str, directory: Path) -> ServerProcess:
    return start_server(
        directory,
        "--workers",
        "1",
        environment={"PLANTED_BUG": bug},
        command=[sys.executable, str(PLANTED)],
    )


def test_no_request_makes_the_server_fail() -> None:
    assert list(request_runs.run(INPUTS, SEED)) == []


@pytest.mark.parametrize(
    ("bug", "inputs", "expected"),
    [
        (ERROR, 1500, ("status 500", "the server logged an error")),
        (DESCRIPTORS, 600, ("descriptors were left open",)),
        (MEMORY, 600, ("the memory grew from",)),
    ],
)
def test_a_planted_bug_is_found(bug: str, inputs: int, expected: tuple[str, ...]) -> None:
    found = "\n".join(request_runs.run(inputs, SEED, start=lambda path: start_planted(bug, path)))
    assert all(problem in found for problem in expected), found


def error(code: str) -> bytes:
    return json.dumps({"odata.error": {"code": code}}).encode()


SERVICE = {"x-ms-request-id": "1", "content-type": "application/json"}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Answer(200, SERVICE, b'{"value":[]}'), None),
        (Answer(404, SERVICE, error("TableNotFound")), None),
        (Answer(501, SERVICE, error("NotImplemented")), None),
        (Answer(400, {}, b"Invalid HTTP request received."), None),
        (Answer(500, SERVICE, error("InternalError")), "status 500"),
        (Answer(503, SERVICE, error("ServerBusy")), "status 503"),
        (Answer(202, SERVICE, b"--b\r\n\r\nHTTP/1.1 500 Internal\r\n"), "inside a batch"),
        (Answer(404, SERVICE, error("NoSuchCode")), "without a code"),
        (Answer(403, {}, b""), "a plain 403"),
        (Answer(200, SERVICE, b'{"value":['), "cannot be read"),
        (Answer(200, {**SERVICE, "content-type": "application/xml"}, b"<a>"), "cannot be read"),
    ],
)
def test_answers_are_judged(answer: Answer, problem: str | None) -> None:
    if answer.status == 202:
        answer = Answer(202, {"x-ms-request-id": "1"}, answer.body)
    found = list(problems(answer))
    assert found == [] if problem is None else problem in found[0]


@pytest.mark.parametrize(
    "draft",
    [b"", b"\n\n", b"GET", b"G\0T /\xff a#b\nx-\xfc: \xff\0\n: \n\n\0", b"PUT /\nsign: ?\n\nx"],
)
def test_every_draft_is_one_request(draft: bytes) -> None:
    head, _, _ = drafts.written(drafts.read(draft), "account", "AAAA", "h").partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert len(first.split(b" ")) == 3
    assert all(line.partition(b":")[1] for line in lines)
    assert b"\0" not in head
