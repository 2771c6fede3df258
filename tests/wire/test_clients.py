"""Requests of clients that cannot run here, byte for byte as their sources build them, and the service's answers.

`tests/spec/clients` has a file for each client; tests/spec/README.md describes it. Each row goes through the real HTTP
parser to the whole application, on a server that only has what the row's `given` created.
"""

import base64
import re
from typing import Any
from urllib.parse import quote

import pytest

from signing import shared_key, shared_key_lite, signature
from spec_tables import SPEC, Row, load
from wire.case_tables import BASE, batch_answer, check, expanded, prepare
from wire.served_bytes import ServedBytes, head_of, served
from wire.service_under_test import ACCOUNT, HOST, KEY, Response

__all__ = ["served"]

_FILES = sorted(path.name for path in (SPEC / "clients").glob("*.toml"))
_ROW_KEYS = {
    *("id", "source", "recorded", "given", "send", "headers", "body", "body_base64", "newline"),
    *("status", "code", "text", "phase", "form", "answer", "content", "parts", "holds", "after"),
}
_FILE_KEYS = {"package", "version", "repository", "phase", "signs", "given", "sets", "sas", "case"}
_OF_EVERY_ANSWER = {"server", "date", "x-ms-request-id", "content-length", "x-ms-version"}
_ODATA = {"x-content-type-options": "nosniff", "cache-control": "no-cache"}
"""The headers of an answer unless its row says otherwise ("-" for none)."""
_GUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SAS = re.compile(r"SAS:(\w+)")


def _cases() -> list[Any]:
    found = []
    for name in _FILES:
        table = load(f"clients/{name}")
        assert table.keys() <= _FILE_KEYS, table.keys() - _FILE_KEYS
        assert len({row["id"] for row in table["case"]}) == len(table["case"]), name
        for row in table["case"]:
            assert row.keys() <= _ROW_KEYS, (row["id"], row.keys() - _ROW_KEYS)
            assert re.match(r"[\w./-]+\.\w+, \S", row["source"]), row["source"]
            defaults = {"given": [], "sas": {}} | {
                key: table[key] for key in ("given", "sas", "signs", "phase") if key in table
            }
            request = defaults | _written_out(row, table["sets"])
            found.append(pytest.param(request, id=f"{name.removesuffix('.toml')}: {row['id']}"))
    return found


def _written_out(row: Row, sets: dict[str, list[str]]) -> Row:
    """A row with its headers as pairs, and the answer to a batch as its text."""
    lines = [line for item in row["headers"] for line in ([item] if ": " in item else sets[item])]
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    if "parts" in row:
        kind = {"content-type": "multipart/mixed; boundary=batchresponse_G1"}
        text = batch_answer(row["parts"])
        row = row | {"status": 202, "content": text, "answer": kind | row.get("answer", {})}
    elif row.get("status") == 204:
        row = {"content": ""} | row
    return row | {"headers": headers}


def _signed_query(sas: Row) -> str:
    """The query that a client appends to its URLs, with the signature of the string that the client signs."""
    made = quote(signature(KEY, sas["to_sign"]), safe=sas["keeps"])
    query: str = sas["query"]
    return query.replace("SIG", made)


def _request(row: Row, date: str) -> tuple[bytes, bytes]:
    """Head and body as they are sent."""

    def fill(text: str) -> str:
        text = _SAS.sub(lambda match: _signed_query(row["sas"][match[1]]), expanded(text))
        return text.replace("BASE", BASE).replace("HOST", HOST).replace("DATE", date)

    text = fill(row.get("body", ""))
    body = (text.replace("\n", "\r\n") if row.get("newline") == "CRLF" else text).encode()
    if "body_base64" in row:
        body = base64.b64decode(row["body_base64"])
    line = fill(row["send"])
    headers = [
        (name, fill(value).replace("LENGTH", str(len(body)))) for name, value in row["headers"]
    ]
    method, target, _ = line.split(" ")
    sent = {name.lower(): value for name, value in headers}
    dated = sent.get("x-ms-date", sent.get("date", ""))
    if row["signs"] == "lite":
        authorization = shared_key_lite(ACCOUNT, KEY, target=target, date=dated)
    else:
        assert row["signs"] == "shared key", row["signs"]
        authorization = shared_key(
            ACCOUNT,
            KEY,
            method=method,
            target=target,
            date=dated,
            content_type=sent.get("content-type", ""),
            content_md5=sent.get("content-md5", ""),
        )
    headers = [(name, value.replace("AUTHORIZATION", authorization)) for name, value in headers]
    return head_of(line, headers), body


def _normalised(response: Response) -> Response:
    """The text with the GUIDs of a batch replaced by the short names in the rows."""
    headers, text = dict(response.headers), response.body.decode()
    if headers.get("content-type", "").startswith("multipart/"):
        for prefix, short in (("batchresponse_", "G1"), ("changesetresponse_", "G2")):
            text = re.sub(prefix + _GUID, prefix + short, text)
            headers["content-type"] = re.sub(
                prefix + _GUID, prefix + short, headers["content-type"]
            )
        text = re.sub(rf"RequestId:{_GUID}", "RequestId:ID", text)
        inside_an_error_in_xml = text.count("\nRequestId:") + text.count("\nTime:")
        assert text.count("\n") == text.count("\r\n") + inside_an_error_in_xml, "lines end in CRLF"
        text = text.replace("\r\n", "\n")
    return Response(response.status, headers, text.encode())


def _check_headers(row: Row, response: Response) -> None:
    """Compare all of them, so that a missing or an extra one is noticed."""
    expected = _ODATA | {name.lower(): value for name, value in row.get("answer", {}).items()}
    given = {name: value for name, value in expected.items() if value != "-"}
    assert response.headers["x-ms-request-id"]
    unexpected = response.headers.keys() - _OF_EVERY_ANSWER - {"x-ms-client-request-id"}
    assert unexpected == given.keys(), response.headers


@pytest.mark.parametrize("row", _cases())
def test_the_service_answers_what_the_client_sends(served: ServedBytes, row: Row) -> None:
    prepare(served, row)
    response = _normalised(served.send(*_request(row, served.clock.http_date())))
    check(row | {"headers": dict(row["headers"])}, response)
    _check_headers(row, response)
    for path, expected in row.get("after", ()):
        found = served.exchange("GET", f"/{ACCOUNT}{path}")
        if isinstance(expected, int):
            assert found.status == expected, found
        else:
            assert expected in found.body.decode(), found.body
