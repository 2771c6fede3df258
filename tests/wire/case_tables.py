"""The tables of tests/spec whose rows are requests: a row is read, sent, and compared with the answer.

tests/spec/README.md describes a row.
"""

import codecs
import json
import re
from typing import Any, Protocol
from xml.etree import ElementTree as ET

import pytest

from spec_tables import Row, load
from wire.service_under_test import ACCOUNT, HOST, Headers, Response

BASE = f"http://{HOST}/{ACCOUNT}"
TIME = "2017-01-05T03:25:45.588957Z"
SECOND = "2017-01-05T03:25:45Z"
TAG = "W/\"datetime'2017-01-05T03%3A25%3A45.588957Z'\""

_ROW_KEYS = {
    *("id", "source", "given", "send", "target", "headers", "body", "entry", "newline"),
    *("status", "code", "text", "phase", "form", "answer", "content", "parts", "holds", "limit"),
    *("live", "first", "second", "forgets"),
}
# A row has one of the two.
_INSTEAD = {"send": "target", "status": "code"}
_DEFAULTS = ("given", "phase", "headers", "source", "send", "status")
_PART = (
    "--changesetresponse_G2\nContent-Type: application/http\nContent-Transfer-Encoding: binary\n\n"
    "HTTP/1.1 "
)
_ODATA_LINES = "X-Content-Type-Options: nosniff\nCache-Control: no-cache"
_REPEATED = re.compile(r"<<((?:(?!<<).)+?)\*(\d+)>>", re.DOTALL)
_GIVEN = re.compile(r"(\w+) (\S+)(?: ([{<].*))?", re.DOTALL)
_MESSAGE = re.compile(
    r"(?s)(.*)\nRequestId:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\n"
    r"Time:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z"
)
_DATA = "http://schemas.microsoft.com/ado/2007/08/dataservices"
_NAMESPACE = f"{{{_DATA}/metadata}}"
_PREFIXES = f'xmlns:d="{_DATA}" xmlns:m="{_DATA}/metadata"'
_ATOM = "http://www.w3.org/2005/Atom"
# The text around the properties, as the service's own libraries sent it (wire 5.7).
_ENTRY = (
    f'<?xml version="1.0" encoding="utf-8" standalone="yes"?><entry {_PREFIXES} xmlns="{_ATOM}"><title />'
    "<updated>2008-09-18T23:46:19.3857256Z</updated><author><name /></author><id />"
    '<content type="application/xml"><m:properties>%s</m:properties></content></entry>'
)
_ATOM_ERROR = re.compile(
    rb'<\?xml version="1.0" encoding="utf-8"( standalone="yes"\?>\r\n|\?>)<error xmlns="'
)
_STORAGE_ERROR = re.compile(
    rb'<\?xml version="1.0" encoding="utf-8"\?><Error><Code>(\w+)</Code><Message>([^<]+)</Message></Error>'
)
_VERSION_ERROR = re.compile(
    rb'\xef\xbb\xbf<\?xml version="1.0" encoding="utf-8" standalone="yes"\?>\r\n<error xmlns="[^"]+">\r\n'
    rb'  <code>\w+</code>\r\n  <message xml:lang="en-US">[^<]+</message>\r\n</error>'
)


class Sender(Protocol):
    """Where a row is sent: the service in this process, or a live one."""

    def exchange(
        self, method: str, target: str, headers: Headers = (), body: bytes = b""
    ) -> Response: ...


def rows(name: str) -> list[Row]:
    """The rows under `case`, with what the head of the file gives them."""
    table = load(name)
    head = {key: table[key] for key in _DEFAULTS if key in table}
    return [
        {key: value for key, value in head.items() if _INSTEAD.get(key) not in row} | row
        for row in table["case"]
    ]


def parameters(name: str, *, live_only: bool = False) -> list[Any]:
    """The rows of a file as parameters of a test, named by their ids."""
    found = rows(name)
    ids = [row["id"] for row in found]
    assert len(set(ids)) == len(ids)
    for row in found:
        assert row["source"], row["id"]
        assert row.keys() <= _ROW_KEYS, row.keys() - _ROW_KEYS
    return [pytest.param(row, id=row["id"]) for row in found if row.get("live") or not live_only]


_ERRORS: dict[str, Row] = {row["code"]: row for row in load("errors.toml")["error"]}


def expanded(text: str) -> str:
    """A text with its repetitions written out, innermost first."""

    def repeat(match: re.Match[str]) -> str:
        return "".join(match[1].replace("#", str(number)) for number in range(int(match[2])))

    while _REPEATED.search(text):
        text = _REPEATED.sub(repeat, text)
    return text


def prepare(sender: Sender, row: Row) -> None:
    """Send the requests in `given`, such as `POST /t {...}`; every write to an entity but an insert gets If-Match: *.

    A body is JSON, or XML if `comp` names a resource in XML.
    """
    for line in row.get("given", ()):
        match = _GIVEN.fullmatch(line)
        assert match, line
        headers = [("If-Match", "*")] if match[1] != "POST" and "PartitionKey=" in line else []
        headers += [("Accept", "application/xml")] if "comp=" in line else []
        body = "" if match[3] is None else expanded(str(match[3]))
        response = sender.exchange(match[1], f"/{ACCOUNT}{match[2]}", headers, body.encode())
        assert response.status < 300, (line, response)


def send(sender: Sender, row: Row) -> Response:
    """The row's own request."""
    line = row["target"] if "target" in row else row["send"]
    method, _, path = expanded(line).partition(" ")
    target = path if "target" in row else f"/{ACCOUNT}{path}"
    body = expanded(row.get("body", ""))
    if row.get("newline") == "CRLF":
        body = body.replace("\n", "\r\n")
    headers = [(name, expanded(value)) for name, value in row.get("headers", {}).items()]
    if "entry" in row:
        body = _ENTRY % expanded(row["entry"])
        if not any(name.lower() == "content-type" for name, _ in headers):
            headers.append(("Content-Type", "application/atom+xml"))
    return sender.exchange(method, target, headers, body.encode())


def check(row: Row, response: Response) -> None:
    """Compare every expectation in the row."""
    expected_status = row.get("status") or _ERRORS[row["code"]]["status"]
    assert response.status == expected_status, response
    if "code" in row:
        _check_error(row, response)
    for name, value in row.get("answer", {}).items():
        expected = None if value == "-" else fill(expanded(value))
        assert response.headers.get(name.lower()) == expected, (name, response.headers)
    if "content" in row:
        expected = fill(row["content"])
        if expected.startswith("<"):
            expected = expected.strip("\n").replace("\n", "\r\n")
        assert response.body.decode() == expected
    for text in row.get("holds", ()):
        assert fill(text) in response.body.decode(), response.body


def batch_answer(parts: list[list[str]]) -> str:
    """The answer to a batch with one change set, from the lines of each part after `HTTP/1.1 `.

    An empty line stands before a body; without one, a part has none. Lines end in LF here.
    """
    text = "--batchresponse_G1\nContent-Type: multipart/mixed; boundary=changesetresponse_G2\n\n"
    for part in parts:
        answer = "\n".join(part if "" in part else [*part, "", ""])
        text += f"{_PART}{answer.replace('ODATA', _ODATA_LINES)}\n"
    return f"{text}--changesetresponse_G2--\n--batchresponse_G1--\n"


def fill(text: str) -> str:
    """Fill in the placeholders of an expectation: BASE, TAG (as in a header), JSONTAG (inside JSON) and TIME."""
    json_tag = TAG.replace('"', '\\"')
    return (
        text.replace("BASE", BASE)
        .replace("NAMESPACES", _PREFIXES)
        .replace("XMLHEAD", '\ufeff<?xml version="1.0" encoding="utf-8"?>')
        .replace("SECOND", SECOND)
        .replace("JSONTAG", json_tag)
        .replace("TAG", TAG)
        .replace("TIME", TIME)
    )


def error_of(response: Response) -> tuple[str, str, str]:
    """Code, text and form of an error, whose envelope must be exact (wire 8.1, 8.2)."""
    if found := _STORAGE_ERROR.fullmatch(response.body):
        code, message, form = found[1].decode(), found[2].decode(), "storage"
        assert response.headers["content-type"] == "application/xml"
    elif response.body.startswith((b"<", codecs.BOM_UTF8)):
        root = ET.fromstring(response.body)  # noqa: S314 - our own server's answer
        assert root.tag == f"{_NAMESPACE}error"
        code, message = root.findtext(f"{_NAMESPACE}code"), root.findtext(f"{_NAMESPACE}message")
        assert code
        assert message
        atom = _ATOM_ERROR.match(response.body)
        form = "atom" if atom else "version" if _VERSION_ERROR.fullmatch(response.body) else "xml"
        charset = ";charset=utf-8" if atom and b"standalone" not in atom[1] else ""
        assert response.headers["content-type"] == f"application/xml{charset}"
    else:
        error = json.loads(response.body)["odata.error"]
        assert error.keys() == {"code", "message"}
        assert error["message"].keys() == {"lang", "value"}
        code, message, form = error["code"], error["message"]["value"], "json"
    match = _MESSAGE.fullmatch(message)
    assert match, message
    assert match[2] == response.headers["x-ms-request-id"]
    return code, match[1], form


def _check_error(row: Row, response: Response) -> None:
    code, text, form = error_of(response)
    expected = row.get("text") or _ERRORS[row["code"]]["text"]
    assert (code, text) == (row["code"], expanded(expected))
    phase = row.get("phase")
    if phase == "gateway":
        # Recorded from requests without credentials: the service's name and version (wire 8.3).
        own = "Windows-Azure-Table/1.0 " if "x-ms-version" in response.headers else ""
        if "Server" not in row.get("answer", {}):
            assert response.headers["server"] == f"{own}Microsoft-HTTPAPI/2.0"
        assert not own or response.status in (401, 404)
        assert response.headers["x-ms-error-code"] == code
        assert "x-content-type-options" not in response.headers
        assert form == row.get("form", "json")
        return
    if phase == "version":
        assert form == "version"
        assert response.headers["server"] == "Microsoft-HTTPAPI/2.0"
        assert "x-ms-error-code" not in response.headers
        assert "x-content-type-options" not in response.headers
        return
    if phase == "service":
        assert form == row.get("form", "xml")
        # Versions before 2017-07-29 have no such header (wire 10.1).
        has_code = response.headers.get("x-ms-version", "9") >= "2017-07-29"
        assert response.headers.get("x-ms-error-code") == (code if has_code else None)
        assert "x-content-type-options" not in response.headers
        assert "cache-control" not in response.headers
        return
    assert form == row.get("form", "json")
    assert response.headers["x-content-type-options"] == "nosniff"
    if phase is not None:
        is_late = phase == "late"
        assert ("cache-control" in response.headers) == is_late, response.headers
        prefers = "prefer" in {name.lower() for name in row.get("headers", {})}
        assert ("preference-applied" in response.headers) == (is_late and prefers)
