"""Failures that are not the client's fault: storage that cannot answer, and bugs of the server (wire 11.2)."""

import logging
from collections.abc import Sequence

import pytest

from spec_tables import load
from tablestone.engines.contract import EngineBusy, EngineDamaged, EngineUnavailable, OutcomeUnknown
from tablestone.engines.memory import MemoryEngine
from wire.case_tables import error_of, prepare
from wire.service_under_test import Response, ServiceUnderTest

_GIVEN = {"given": ['POST /Tables {"TableName":"tab"}']}
_TEXTS = {row["code"]: (row["status"], row["text"]) for row in load("errors.toml")["error"]}


@pytest.fixture(params=["/tab()", "/tab(PartitionKey='p',RowKey='r')"])
def path(request: pytest.FixtureRequest) -> str:
    """A scan and a point read: they ask the engine in two ways."""
    return str(request.param)


def _answer_when(
    raised: Exception,
    service: ServiceUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    headers: Sequence[tuple[str, str]] = (),
) -> Response:
    prepare(service, _GIVEN)

    async def fail(*_arguments: object, **_named: object) -> None:
        raise raised

    monkeypatch.setattr(MemoryEngine, "read", fail)
    monkeypatch.setattr(MemoryEngine, "get", fail)
    return service.send("GET", path, headers)


def test_storage_that_cannot_answer_is_a_busy_server(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    response = _answer_when(EngineUnavailable("no disk"), service, monkeypatch, path)
    code, text, _ = error_of(response)
    assert (code, response.status, text) == ("ServerBusy", *_TEXTS["ServerBusy"])
    assert "retry-after" not in response.headers


@pytest.mark.parametrize("accept", ["application/json", "application/atom+xml"])
def test_storage_that_others_keep_busy_says_when_to_try_again(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch, path: str, accept: str
) -> None:
    headers = (("Accept", accept), ("x-ms-version", "2013-08-15"))
    response = _answer_when(EngineBusy("no quorum"), service, monkeypatch, path, headers)
    assert (response.status, response.headers["retry-after"]) == (503, "1")
    assert b"ServerBusy" in response.body


@pytest.mark.parametrize("raised", [OutcomeUnknown("?"), EngineDamaged("x"), KeyError("x")])
def test_an_answer_that_may_be_final_does_not_ask_to_be_sent_again(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch, path: str, raised: Exception
) -> None:
    """A write that was applied and is sent again gets 409 or 412 (auth 10)."""
    response = _answer_when(raised, service, monkeypatch, path)
    assert response.status == 500
    assert "retry-after" not in response.headers


@pytest.mark.parametrize("path", ["/absent()", "/tab()?$filter=a%20b", "/tab('x')"])
def test_a_refusal_does_not_ask_to_be_sent_again(service: ServiceUnderTest, path: str) -> None:
    """A client retries after any answer with Retry-After, whatever its status (auth 10)."""
    prepare(service, _GIVEN)
    response = service.send("GET", path)
    assert 400 <= response.status < 500
    assert "retry-after" not in response.headers


def test_a_bug_of_ours_is_an_internal_error(
    service: ServiceUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
) -> None:
    """The client learns its request id and nothing else; the log has the id and the traceback."""
    with caplog.at_level(logging.ERROR):
        response = _answer_when(KeyError("a secret"), service, monkeypatch, path)
    code, text, _ = error_of(response)
    assert (code, response.status, text) == ("InternalError", *_TEXTS["InternalError"])
    assert b"secret" not in response.body
    assert response.headers["x-ms-request-id"] in caplog.text
    assert "KeyError: 'a secret'" in caplog.text
