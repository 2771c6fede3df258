"""What the log says of what a client sent: never a signature or a token, wherever the client put it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest

from tablestone.server.logged import loggable_path
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
