"""The client's texts in the log: never a signature or a token, even in the wrong place of a request."""

import io
import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta

import pytest

from tablestone.engines.contract import EngineUnavailable
from tablestone.server.requests import pipeline
from tablestone.server.requests.pipeline import loggable_path
from tablestone.telemetry.logs import LineFormatter
from wire.service_under_test import ACCOUNT, ServiceUnderTest

PATHS = {
    "a path": (b"/a/Tables('t')", "/a/Tables('t')"),
    "an encoded question mark": (b"/a/Tables%3Fsig=SECRET", "/a/Tables%3F..."),
    "encoded twice": (b"/a/t%253fsv=1%2526sig%253dSECRET", "/a/t%3F..."),
    "another sign for it": (b"/a/t&sig=SECRET&se=2", "/a/t&sig=...&se=2"),
    "in capitals": (b"/a/t;SIG%3DSECRET", "/a/t;SIG%3D..."),
    "bytes of no text": (b"/a/\xff", "/a/\xff"),
}


@pytest.mark.parametrize(("path", "logged"), PATHS.values(), ids=PATHS)
def test_a_path_without_its_signature(path: bytes, logged: str) -> None:
    assert loggable_path(path) == logged


@pytest.fixture
def service() -> Iterator[ServiceUnderTest]:
    with closing(ServiceUnderTest()) as service:
        yield service


CREDENTIALS = {
    "a signature before a colon": ("/Tables", f"SharedKey {ACCOUNT}:SECRET:"),
    "a token after another scheme": ("/Tables", "SharedKey Bearer SECRET:x"),
    "no account at all": ("/Tables", "SharedKeyLite SECRET:"),
    "a signature in the path": ("/Tables%3Fsig=SECRET", f"SharedKey {ACCOUNT}:x"),
    "a signature encoded in the path": ("/t%3Fse=1%26sig%3DSECRET", f"SharedKey {ACCOUNT}:x"),
}


@pytest.mark.parametrize(("path", "authorization"), CREDENTIALS.values(), ids=CREDENTIALS)
def test_why_a_request_was_refused_says_no_secret(
    service: ServiceUnderTest, caplog: pytest.LogCaptureFixture, path: str, authorization: str
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = service.send("GET", path, [("Authorization", authorization)])
    assert answer.status == 403
    assert "AuthenticationFailed" in caplog.text
    assert "SECRET" not in caplog.text


FORGED = "2026-11-21T23:00:00.000Z [1] ERROR tablestone: forged"
LINE_ENDS = {
    "a line feed": ("&#10;", r"\n"),
    "a carriage return": ("&#13;", r"\r"),
    "a line end of its own": ("&#x85;", r"\x85"),
    "a line separator": ("&#x2028;", r"\u2028"),
}


@pytest.mark.parametrize(("sent", "written"), LINE_ENDS.values(), ids=LINE_ENDS)
def test_no_client_writes_a_line_of_the_log(
    service: ServiceUnderTest, sent: str, written: str
) -> None:
    """As `serve` logs it: the name of a namespace comes from the client, and is part of the logged reason."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    logger = logging.getLogger("tablestone")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        body = f'<q:a xmlns:q="x{sent}{FORGED}"/>'.encode()
        answer = service.send("PUT", "/?restype=service&comp=properties", body=body)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert answer.status == 400
    (line,) = stream.getvalue().splitlines()
    assert f"{written}{FORGED}" in line


def test_the_text_of_an_error_does_not_begin_a_line_of_the_log() -> None:
    error = ValueError(f"x\n{FORGED}\r{FORGED}")
    raised = (ValueError, error, None)
    record = logging.LogRecord("tablestone", logging.ERROR, "", 0, "it failed", (), raised)
    first, *others = LineFormatter().format(record).splitlines()
    assert first.endswith("ERROR tablestone: it failed")
    assert datetime.fromisoformat(first.partition(" ")[0]).utcoffset() == timedelta()
    assert len(others) == 3
    assert all(line.startswith("    ") for line in others)


def test_a_date_is_logged_as_it_was_sent(
    service: ServiceUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    headers = [
        ("Authorization", f"SharedKey {ACCOUNT}:x"),
        ("x-ms-date", "Sat, 01 Jan 2000 00:00:00 GMT"),
    ]
    with caplog.at_level(logging.DEBUG):
        service.send("GET", "/Tables", headers)
    reason = "the date is more than 15 minutes from the server's"
    assert f"{reason}: 'Sat, 01 Jan 2000 00:00:00 GMT'" in caplog.text


def test_storage_that_does_not_answer_is_logged_every_few_seconds(
    service: ServiceUnderTest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, why = 100.0, "the disk is away"

    async def fail(*_: object, **_how: object) -> None:
        raise EngineUnavailable(why)

    monkeypatch.setattr(pipeline, "monotonic_seconds", lambda: now)
    for method in ("get", "read", "snapshot"):
        monkeypatch.setattr(service.engine, method, fail)

    def logged(requests: int) -> list[str]:
        caplog.clear()
        for _ in range(requests):
            assert service.send("GET", "/Gone()").status == 503
        return [each.message.partition(": ")[2] for each in caplog.records]

    assert logged(3) == [why]
    now += pipeline.AWAY_SECONDS
    assert logged(2) == [f"{why} (2 more requests since the last such line)"]
    why = "something else"
    assert logged(2) == [why]
