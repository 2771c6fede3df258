"""The parser of batches alone: the grammar of wire 7.1 as cases, and its speed."""

import time
from contextlib import suppress

import pytest

from spec_tables import Row, load
from tablestone import limits
from tablestone.model.errors import StorageError
from tablestone.wire.batch import BatchRequest, parse_batch
from tablestone.wire.messages import RawRequest
from wire.case_tables import expanded

_TABLE = load("batch_grammar.toml")
_OUTER = RawRequest("POST", b"/a/$batch", b"", {})
_CONTENT_TYPE = b"multipart/mixed; boundary=b"


def _read(row: Row) -> BatchRequest:
    text = expanded(row["envelope"])
    if "replaces" in row:
        text = text.replace(*row["replaces"])
    body = (text.replace("\n", "\r\n") if row.get("newline") == "CRLF" else text).encode()
    content_type = row.get("content_type", _TABLE["content_type"])
    return parse_batch(content_type.encode(), body, _OUTER)


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in _TABLE["case"]])
def test_a_batch_is_read(row: Row) -> None:
    assert row["source"]
    if row.get("refused"):
        with pytest.raises(StorageError, match="InvalidInput"):
            _read(row)
        return
    batch = _read(row)
    found = []
    for part in batch.parts:
        request = part.request
        target = request.raw_path + (b"?" + request.query_string if request.query_string else b"")
        found.append([f"{request.method} {target.decode()}", part.body.decode()])
    assert found == row["reads"]
    assert batch.ends_unreadable == row.get("ends_unreadable", False)
    assert batch.is_change_set == row.get("is_change_set", batch.is_change_set)


_START = b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: application/http\r\n\r\n"
_HEAD = b"POST /a/t HTTP/1.1\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"--c" * 1_000_000,
        b"--c--" * 700_000,
        b"--b\n" * 900_000,
        b"--c\n" * 900_000,
        _START + b"--b " * 900_000 + b"--c--",
        _START + b"\n" * 3_500_000 + b"--c--",
        _START + b"\n " * 1_700_000 + b"--c--",
        _START + b"POST " + b" " * 3_500_000 + b"HTTP/1.1\n\n{}--c--",
        _START + _HEAD + b"Content-Length: 99\n" * 180_000 + b"\n{}--c--",
        _START + _HEAD + b"\n" + b"\r\n" * 1_700_000 + b"--c--",
        (_START + _HEAD + b"Content-Length: 3\n\n{}--cx") * 30_000 + b"--c--",
        _START
        + (_HEAD + b"Content-Length: 2\n\n{}\n--c\nContent-Type: application/http\n\n") * 40_000,
    ],
    ids=range(12),
)
def test_four_megabytes_are_read_in_no_time(body: bytes) -> None:
    """Linear in the length: the worst takes a few hundredths of a second of CPU; quadratic code would take hours."""
    assert len(body) <= limits.BODY_BYTES_MAX
    started = time.process_time()
    for boundary in (_CONTENT_TYPE, b'multipart/mixed; boundary="%b"' % (b"-" * 200)):
        with suppress(StorageError):
            parse_batch(boundary, body, _OUTER)
    assert time.process_time() - started < 5
