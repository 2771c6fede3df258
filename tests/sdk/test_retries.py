"""How each SDK retries a failed request, and how often: the control API makes the faults and counts the requests.

A program in each language runs single operations with its SDK's default retries (tests/sdk/interchange/README.md,
`attempt`). Each case has its own table, to which its rule applies.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from controlled_process import ControlClient, served
from sdk.endpoint import Endpoint
from sdk.install import LANGUAGES
from sdk.test_interchange import run_program, skip_unless_prepared
from storage.cluster_engine import URL

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.slow,
    pytest.mark.skipif(
        URL is not None, reason="only a server on the memory engine has the control API"
    ),
]

DONE, LOST = 0, -1
"""Outcomes of an operation besides an error's status: success, and an error without an answer."""


class Case(NamedTuple):
    """A fault, an operation, and by language its outcome and the statuses of its requests.

    0 means no answer. Any success counts as 200: some SDKs ask for the stored entity (201), others do not (204).
    """

    fault: dict[str, Any]
    operation: str
    outcomes: dict[str, tuple[int, list[int]]]


def in_all(outcome: int, *statuses: int) -> dict[str, tuple[int, list[int]]]:
    return {language: (outcome, list(statuses)) for language in LANGUAGES}


CASES = {
    "busytwice": Case(
        {"error": "ServerBusy", "count": 2, "retry_after": 0}, "insert", in_all(DONE, 503, 503, 200)
    ),
    "retryafter": Case(
        {"error": "ServerBusy", "count": 1, "retry_after": 1}, "insert", in_all(DONE, 503, 200)
    ),
    "internal": Case({"error": "InternalError", "count": 1}, "get", in_all(DONE, 500, 200)),
    "timedout": Case({"error": "OperationTimedOut", "count": 1}, "insert", in_all(DONE, 500, 200)),
    # The first attempt was committed; the second finds its own entity.
    "committed": Case(
        {"error": "OperationTimedOut", "committed": True, "count": 1},
        "insert",
        in_all(409, 500, 409),
    ),
    "noanswer": Case({"reset": "before", "count": 1}, "get", in_all(DONE, 0, 200)),
    # Python's SDK does not retry an insert of unknown outcome. The others find the entity of their first attempt.
    "unknown": Case(
        {"reset": "after", "count": 1}, "insert", in_all(409, 0, 409) | {"python": (LOST, [0])}
    ),
    # JavaScript's SDK has read the head, and does not retry for the body.
    "halved": Case(
        {"reset": "within", "count": 1}, "get", in_all(DONE, 0, 200) | {"javascript": (LOST, [0])}
    ),
    "slow": Case({"latency": 0.2, "count": 1}, "get", in_all(DONE, 200)),
    # A failed condition is no reason to retry: the program has to read again.
    "overtaken": Case({"conflict": True, "count": 1}, "update", in_all(412, 200, 412)),
    "refused": Case({"error": "AuthorizationFailure", "count": 1}, "get", in_all(403, 403)),
}


class Attempts(NamedTuple):
    """One language's operations: by table, the outcome and the statuses of the requests."""

    language: str
    outcomes: dict[str, tuple[int, list[int]]]


@pytest.fixture(scope="module")
def control() -> Iterator[ControlClient]:
    with served("--control", "0") as ready:
        yield ControlClient(ready.said["control"])


@pytest.fixture(scope="module", params=LANGUAGES)
def attempts(request: pytest.FixtureRequest, control: ControlClient) -> Attempts:
    """All cases in one run of a language's program, on its own account."""
    language: str = request.param
    skip_unless_prepared(language)
    account = control.done("POST", "/accounts")
    entity = {"PartitionKey": "p", "RowKey": "r"}
    present = {name: [] if case.operation == "insert" else [entity] for name, case in CASES.items()}
    control.done("POST", f"/seed?account={account['name']}", present)
    for name, case in CASES.items():
        control.done("POST", "/faults", case.fault | {"account": account["name"], "table": name})
    before = control.done("GET", "/requests")["count"]
    lines = run_program(
        language,
        Endpoint(account["endpoint"], account["name"], account["key"]),
        "attempt",
        *(f"{case.operation}:{name}" for name, case in CASES.items()),
    )
    made = control.done("GET", f"/requests?since={before}")["requests"]
    control.done("DELETE", "/faults")
    outcomes = {}
    for line in lines:
        table = line["attempt"].partition(":")[2]
        statuses = [
            200 if each["status"] in {201, 204} else each["status"]
            for each in made
            if each["table"] == table
        ]
        outcomes[table] = (line["status"], statuses)
    return Attempts(language, outcomes)


@pytest.mark.parametrize("name", CASES)
def test_an_operation_is_repeated_as_often_as_it_may_be(attempts: Attempts, name: str) -> None:
    assert attempts.outcomes[name] == CASES[name].outcomes[attempts.language]
