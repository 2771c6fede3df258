"""The sample exchanges of wire 15, complete: each file is a sequence of requests and answers, header for header.

A file starts with its source; a line `====` separates exchanges, and a line `--` a request from its answer. ID stands
for the request id, G1 and G2 for the GUIDs of a batch's boundaries; lines of a batch end in CRLF.
"""

import re
from http import HTTPStatus
from pathlib import Path

import pytest

from spec_tables import SPEC
from wire.service_under_test import Response, ServiceUnderTest

_FILES = sorted((SPEC / "exchanges").glob("*.http"))
_GUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def _message(text: str) -> tuple[str, list[tuple[str, str]], str]:
    """First line, headers, body."""
    head, _, body = text.partition("\n\n")
    first, *lines = head.split("\n")
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    return first, headers, body.removesuffix("\n")


def _normalised(text: str) -> str:
    text = re.sub(rf"batchresponse_{_GUID}", "batchresponse_G1", text)
    text = re.sub(rf"changesetresponse_{_GUID}", "changesetresponse_G2", text)
    return re.sub(_GUID, "ID", text)


def _is_batch(headers: list[tuple[str, str]]) -> bool:
    return any(value.startswith("multipart/") for _, value in headers)


def _written(response: Response) -> tuple[str, dict[str, str], str]:
    status_line = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"
    headers = {name: _normalised(value) for name, value in response.headers.items()}
    return status_line, headers, _normalised(response.body.decode())


def test_there_are_exchanges() -> None:
    assert len(_FILES) == 5


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_the_exchange_is_the_documented_one(service: ServiceUnderTest, path: Path) -> None:
    source, _, text = path.read_text(encoding="utf-8").partition("\n")
    assert source.startswith("# wire 15")
    for exchange in text.split("\n====\n"):
        asked, _, answered = exchange.partition("\n--\n")
        line, headers, body = _message(asked)
        method, target, _ = line.split(" ")
        status_line, expected_headers, expected_body = _message(answered)
        if _is_batch(headers):
            body = body.replace("\n", "\r\n")
            expected_body = expected_body.replace("\n", "\r\n")
        response = service.exchange(method, target, headers, body.encode())
        expected = {name.lower(): value for name, value in expected_headers}
        assert _written(response) == (status_line, expected, expected_body)
