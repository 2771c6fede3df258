"""Entity group transactions: requests of old and new SDKs, exact answers, every way to fail (wire 7, 12)."""

import re
from typing import Any

import pytest

from signing import VERSION
from spec_tables import Row, load
from tablestone import limits
from tablestone.tables.throughput_targets import SharedSlots, Throughput
from tablestone.wire.batch import parse_batch
from tablestone.wire.messages import RawRequest
from wire.case_tables import (
    batch_answer,
    check,
    error_of,
    expanded,
    fill,
    parameters,
    prepare,
    send,
)
from wire.service_under_test import Headers, Response, ServiceUnderTest

_TABLE = load("batch.toml")
_GUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OPERATION = re.compile(r"(\w+) (\S*)((?: [\w-]+: \S*)*)(?: (\{.*\}))?", re.DOTALL)
_OUTER = re.compile(rf"multipart/mixed; boundary=(batchresponse_{_GUID})")
_INNER = re.compile(
    rf"Content-Type: multipart/mixed; boundary=(changesetresponse_{_GUID})\r\n\r\n--\1\r\n"
)


def _rows(kind: str) -> list[Any]:
    found: list[Row] = _TABLE[kind]
    assert len({row["id"] for row in found}) == len(found)
    assert all(row["source"] for row in found)
    return [pytest.param(row, id=row["id"]) for row in found]


def _readable_parts(response: Response) -> list[str]:
    """The parts of an answer that has everything some SDK insists on; row by row of wire 12.2."""
    assert response.status == 202
    outer = _OUTER.fullmatch(response.headers["content-type"])
    assert outer, "nothing after the boundary, which is not quoted (.NET)"
    text = response.body.decode()
    assert text.startswith(f"--{outer[1]}\r\n"), "no preamble (Java, Go)"
    assert text.endswith(f"--{outer[1]}--\r\n")
    lines = re.sub(
        "\n(?=RequestId:|Time:)", "", text
    )  # the message of an error in XML has line feeds
    assert lines.count("\n") == lines.count("\r\n"), "CRLF only, JSON on one line (JS, .NET)"
    content = text[len(f"--{outer[1]}\r\n") : -len(f"--{outer[1]}--\r\n")]
    boundary = outer[1]
    inner = _INNER.match(content)
    if inner is not None:  # a change set's first line follows at once (Go)
        boundary = inner[1]
        assert content.endswith(f"--{boundary}--\r\n")
        content = content[inner.end() : -len(f"--{boundary}--\r\n")]
    parts = content.split(f"--{boundary}\r\n")
    for part in parts:
        _require_readable(part)
    return parts


def _require_readable(part: str) -> None:
    mime, head, body = part.split("\r\n\r\n", 2)
    assert "Content-Type: application/http" in mime.split("\r\n"), "exactly that (python)"
    assert "content-id" not in mime.lower(), "taken for an index (.NET)"
    status_line, *headers = head.split("\r\n")
    assert re.fullmatch(r"HTTP/1\.1 \d{3} \S.*", status_line), "three fields (.NET)"
    assert all(len(line) <= 4096 for line in headers), "line reader's limit (.NET)"
    assert "transfer-encoding" not in head.lower(), "read as a real response (Go)"
    status = int(status_line.split(" ")[1])
    if status == 204:
        assert body == "\r\n", "any body is a failure (JS)"
        assert "{" not in part, "a brace is taken for a body (JS)"
    if status >= 400 and "application/json" in head:
        assert '"value":"' in body, "compact: the index is looked for after it (.NET)"
    else:
        has_tag = any(line.startswith('ETag: W/"') for line in headers)
        assert has_tag or "Location" not in head, "spelled like this (JS)"


@pytest.mark.parametrize("case", parameters("batch.toml"))
def test_an_answer_is_exact(service: ServiceUnderTest, case: Row) -> None:
    prepare(service, case)
    response = send(service, case)
    check({"status": 202}, response)
    _readable_parts(response)
    text = _named(response)
    expected = case["content"] if "content" in case else batch_answer(case["parts"])
    assert text == fill(expected).replace("\n", "\r\n")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-content-type-options"] == "nosniff"


def _named(response: Response) -> str:
    """The body with its fresh GUIDs as G1, G2 and ID."""
    text = response.body.decode()
    for prefix, short in (("batchresponse_", "G1"), ("changesetresponse_", "G2")):
        text = re.sub(prefix + _GUID, prefix + short, text)
    return re.sub(rf"RequestId:{_GUID}", "RequestId:ID", text)


def _batch(operations: list[str], *, numbered: bool = False) -> bytes:
    """Operations as the parts of one change set, as simply as a client can; `numbered` by a Content-ID from 1 on."""
    lines = ["--b", "Content-Type: multipart/mixed; boundary=c", ""]
    for number, operation in enumerate(operations, 1):
        match = _OPERATION.fullmatch(operation)
        assert match, operation
        lines += ["--c", "Content-Type: application/http", "Content-Transfer-Encoding: binary", ""]
        lines += [f"{match[1]} /devstoreaccount1{match[2]} HTTP/1.1"]
        headers = re.findall(r" ([\w-]+: \S*)", match[3])
        headers += [f"Content-ID: {number}"] if numbered else []
        accept = () if "Accept: " in match[3] else ("Accept: application/json",)
        lines += [*headers, *accept, "Content-Type: application/json", "", match[4] or ""]
    return "\r\n".join([*lines, "--c--", "--b--", ""]).encode()


_OUTER_HEADERS: Headers = [("Content-Type", "multipart/mixed; boundary=b")]


_ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom" xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata">'
    "<content><m:properties /></content></entry>"
)


@pytest.mark.parametrize(
    ("operations", "status", "code", "text"),
    [
        (["POST /tab", "POST /tab"], 400, "PropertiesNeedValue", "0:The values are"),
        (
            ["PUT /tab(PartitionKey='p',RowKey='r')", "DELETE /tab(PartitionKey='p',RowKey='s')"],
            404,
            "ResourceNotFound",
            "1:The specified resource",
        ),
    ],
)
def test_an_error_in_atom_has_its_index_too(
    service: ServiceUnderTest, operations: list[str], status: int, code: str, text: str
) -> None:
    """It has the form of the failed operation (wire 8.2); clients read the digits before the colon (12.8)."""
    given = ['POST /Tables {"TableName":"tab"}', 'POST /tab {"PartitionKey":"p","RowKey":"r"}']
    prepare(service, {"given": given})
    headers = [*_OUTER_HEADERS, ("x-ms-version", "2012-02-12")]
    typed = "Content-Type: application/atom+xml\r\nIf-Match: *"
    body = _batch([f"{line} {{}}" for line in operations]).decode()
    body = body.replace("Content-Type: application/json", typed).replace("{}", _ENTRY)
    body = body.replace("Accept: application/json\r\n", "")
    response = service.send("POST", "/$batch", headers, body.encode())
    assert response.status == 202
    shown = response.body.decode()
    assert shown.count("HTTP/1.1 ") == 1
    assert f"\r\n\r\nHTTP/1.1 {status} " in shown
    assert "\r\nDataServiceVersion: 1.0;\r\nContent-Type: application/xml\r\n" in shown
    error = shown[shown.index("<?xml") : shown.rindex("\r\n--changesetresponse_")]
    assert f"<code>{code}</code>" in error
    assert f'<message xml:lang="en-US">{text}' in error


def _everything(service: ServiceUnderTest) -> list[bytes]:
    return [service.send("GET", path).body for path in ("/Tables", "/tab()", "/other()")]


@pytest.mark.parametrize("row", _rows("failure"))
def test_one_error_answers_all_and_nothing_changes(service: ServiceUnderTest, row: Row) -> None:
    prepare(service, {"given": [*_TABLE["given"], 'POST /Tables {"TableName":"other"}']})
    before = _everything(service)
    operations = [line for text in row["operations"] for line in expanded(text).split("\n") if line]
    outer = list(_OUTER_HEADERS)
    outer += [("x-ms-version", row["version"])] if "version" in row else []
    response = service.send("POST", "/$batch", outer, _batch(operations, numbered=True))
    (part,) = _readable_parts(response)
    _, head, body = part.split("\r\n\r\n", 2)
    content_type = re.search("Content-Type: (.*?)(?:\r|$)", head)
    assert content_type
    headers = response.headers | {"content-type": content_type[1]}
    inner = Response(int(head.split(" ")[1]), headers, body.rstrip("\r\n").encode())
    assert error_of(inner) == (row["code"], row["text"], row.get("form", "json"))
    expected = load_status(row["code"])
    assert inner.status == expected
    is_late = "Cache-Control: no-cache" in head
    index = re.match(r"\d+(?=:)", row["text"])
    # An error of the commit has the headers of the last operation (wire 7.3).
    number = len(operations) if is_late or index is None else int(index[0]) + 1
    assert f"\r\nContent-ID: {number}\r\n" in head
    if "phase" in row:
        assert is_late == (row["phase"] == "late")
        prefers = row.get("applies", "Prefer:" in operations[-1])
        assert ("Preference-Applied: return-no-content" in head) == (is_late and prefers)
    assert _everything(service)[:2] == before[:2]


@pytest.mark.parametrize("row", _rows("query"))
def test_a_lone_query_is_answered_as_outside_of_a_batch(
    service: ServiceUnderTest, row: Row
) -> None:
    prepare(service, {"given": _TABLE["given"]})
    head = f"GET /devstoreaccount1{expanded(row['query'])} HTTP/1.1\r\nAccept: application/json"
    lines = [head, *(f"{name}: {value}" for name, value in row.get("headers", {}).items())]
    request = "\r\n".join(lines)
    body = f"--b\r\n{_PART_HEADERS}{request}\r\n\r\n\r\n--b--\r\n".encode()
    outer = [*_OUTER_HEADERS, ("x-ms-version", row.get("version", VERSION))]
    response = service.send("POST", "/$batch", outer, body)
    (part,) = _readable_parts(response)
    _, inner_head, content = part.split("\r\n\r\n", 2)
    inner = Response(int(inner_head.split(" ")[1]), response.headers, content.encode())
    if "code" in row:
        assert inner.status == load_status(row["code"])
        assert error_of(inner) == (row["code"], row["text"], "json")
        assert ("Cache-Control: no-cache" in inner_head) == (row["phase"] == "late")
    else:
        assert inner.status == row["status"]
    for text in row.get("holds", ()):
        assert text in content


def test_format_wins_over_accept_in_a_batch_too(service: ServiceUnderTest) -> None:
    """Wire 1.5."""
    prepare(service, {"given": _TABLE["given"]})
    request = "GET /devstoreaccount1/tab()?$format=json HTTP/1.1\r\nAccept: */*"
    body = f"--b\r\n{_PART_HEADERS}{request}\r\n\r\n\r\n--b--\r\n".encode()
    (part,) = _readable_parts(service.send("POST", "/$batch", _OUTER_HEADERS, body))
    assert "HTTP/1.1 200 OK\r\n" in part
    assert "Content-Type: application/json;odata=minimalmetadata;" in part
    assert '","value":[{' in part


def load_status(code: str) -> int:
    """The status that errors.toml has for a code."""
    (status,) = [row["status"] for row in load("errors.toml")["error"] if row["code"] == code]
    assert isinstance(status, int)
    return status


@pytest.mark.parametrize("row", _rows("refused"))
def test_what_is_no_batch_is_refused_as_a_whole(service: ServiceUnderTest, row: Row) -> None:
    prepare(service, {"given": _TABLE["given"]})
    before = _everything(service)[1]
    body = row["body"].replace("\n", "\r\n").encode()
    headers = [("Content-Type", row["content_type"])]
    response = service.send("POST", "/$batch", headers, body)
    assert response.status == 400
    text = row.get("text", "One of the request inputs is not valid.")
    assert error_of(response) == ("InvalidInput", text, "json")
    assert "cache-control" not in response.headers
    assert _everything(service)[1] == before


_WITHOUT_ENVELOPE = """--changeset_c
Content-Type: application/http
Content-Transfer-Encoding: binary

POST /devstoreaccount1/tab HTTP/1.1
Accept: application/json
Content-Type: application/json

{"PartitionKey":"p","RowKey":"new"}
--changeset_c--
""".replace("\n", "\r\n")
_WITH_ANOTHER = _batch(['POST /tab {"PartitionKey":"p","RowKey":"new"}']).decode()


@pytest.mark.parametrize("version", ["2019-02-02", "2012-02-12", "2026-06-06"])
@pytest.mark.parametrize("body", [_WITHOUT_ENVELOPE, _WITH_ANOTHER], ids=["recorded", "another"])
def test_a_body_that_never_uses_its_boundary_carries_nothing_out(
    service: ServiceUnderTest, caplog: pytest.LogCaptureFixture, body: str, version: str
) -> None:
    """As recorded at 2019-02-02 of a change set without an envelope: the closing delimiter alone (wire 7.1)."""
    prepare(service, {"given": _TABLE["given"]})
    before = _everything(service)[:2]
    headers = [("Content-Type", "multipart/mixed; boundary=batch_b"), ("x-ms-version", version)]
    response = service.send("POST", "/$batch", headers, body.encode())
    assert response.status == 202
    assert response.headers["content-type"].startswith("multipart/mixed; boundary=batchresponse_")
    assert _named(response) == "--batchresponse_G1--\r\n"
    assert _everything(service)[:2] == before
    (warning,) = [record.getMessage() for record in caplog.records]
    assert response.headers["x-ms-request-id"] in warning
    assert warning.endswith("nothing was written")


@pytest.mark.parametrize("length", ["-", "1", "99999"], ids=["none", "shorter", "longer"])
def test_a_body_without_its_boundary_must_be_whole_by_its_length(
    service: ServiceUnderTest, length: str
) -> None:
    headers = [("Content-Type", "multipart/mixed; boundary=batch_b"), ("Content-Length", length)]
    response = service.send("POST", "/$batch", headers, _WITHOUT_ENVELOPE.encode())
    assert response.status == 400
    assert error_of(response)[0] == "InvalidInput"


@pytest.mark.parametrize("row", _rows("accept"))
def test_a_part_without_accept(service: ServiceUnderTest, row: Row) -> None:
    """Below an outer `*/*` at 2019-12-12 it is refused, whatever its operation; else its own rules hold (wire 5.1)."""
    prepare(service, {"given": _TABLE["given"]})
    before = _everything(service)[:2]
    body = _batch(row["operations"]).replace(b"Accept: application/json\r\n", b"")
    outer = [*_OUTER_HEADERS, ("Accept", row["outer"]), ("x-ms-version", row["version"])]
    text = _named(service.send("POST", "/$batch", outer, body))
    found = re.findall(r"HTTP/1\.1 (\d+) |<code>(\w+)</code>|en-US\">([^\n]*)\n", text)
    assert ["".join(each) for each in found] == [str(each) for each in row["answers"]]
    assert (_everything(service)[:2] == before) == ("<code>" in text)


_UNREADABLE = (
    "HTTP/1.1 400 Bad Request\r\nDataServiceVersion: 1.0;\r\nContent-Type: application/xml;charset=utf-8\r\n\r\n"
    '<?xml version="1.0" encoding="utf-8"?><error xmlns="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata">'
    '<code>InvalidInput</code><message xml:lang="en-US">An error occurred while processing this request.\n'
    "RequestId:ID\nTime:2017-01-05T03:25:45.5889570Z</message></error>\r\n"
)
_PART_HEADERS = "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"


@pytest.mark.parametrize("version", ["2013-08-15", "2019-02-02"])
@pytest.mark.parametrize(
    "head",
    [
        "POST",
        "POST /devstoreaccount1/tab HTTP/1.1\r\nPrefer",
        "POST /devstoreaccount1/tab HTTP/1.1\r\nContent-Length: 69Accept: application/json",
    ],
)
def test_an_operation_that_cannot_be_read_is_answered_in_the_default_form(
    service: ServiceUnderTest, head: str, version: str
) -> None:
    """As recorded from the service: Atom, no index, and two headers (wire 7.3); nothing is applied."""
    prepare(service, {"given": _TABLE["given"]})
    before = _everything(service)[:2]
    good = _batch(['POST /tab {"PartitionKey":"p","RowKey":"a"}']).decode()
    part = f"--c\r\nContent-Type: application/http\r\n\r\n{head}\r\n\r\n"
    body = good.replace("--c--", f"{part}--c--")
    headers = [*_OUTER_HEADERS, ("x-ms-version", version)]
    response = service.send("POST", "/$batch", headers, body.encode())
    assert _named(response) == (
        "--batchresponse_G1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_G2\r\n\r\n"
        f"--changesetresponse_G2\r\n{_PART_HEADERS}{_UNREADABLE}"
        "--changesetresponse_G2--\r\n--batchresponse_G1--\r\n"
    )
    assert _everything(service)[:2] == before


def test_nothing_between_two_delimiters_is_an_operation_that_cannot_be_read(
    service: ServiceUnderTest,
) -> None:
    """As recorded from a pre-release of Python's SDK (test_batch_single_update, 2020-09-09)."""
    body = (
        b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\n--c--\r\n\r\n--b--\r\n"
    )
    response = service.send("POST", "/$batch", [*_OUTER_HEADERS, ("Accept", "*/*")], body)
    assert response.status == 202
    assert _named(response) == (
        "--batchresponse_G1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_G2\r\n\r\n"
        f"--changesetresponse_G2\r\n{_PART_HEADERS}{_UNREADABLE}"
        "--changesetresponse_G2--\r\n--batchresponse_G1--\r\n"
    )


def test_a_change_set_over_a_target_is_refused_without_an_index() -> None:
    """With an index, .NET blames the operation (`TableTransactionFailedException`), not the load (wire 7.3)."""
    service = ServiceUnderTest(throughput=Throughput(0, 2, lambda: 1.0, SharedSlots()))
    prepare(service, {"given": ['POST /Tables {"TableName":"tab"}']})
    operations = [f'POST /tab {{"PartitionKey":"p","RowKey":"{row}"}}' for row in "abc"]
    texts = [
        _named(service.send("POST", "/$batch", _OUTER_HEADERS, _batch(operations)))
        for _ in range(3)
    ]
    service.close()
    assert "\r\nHTTP/1.1 503 " in texts[-1]
    assert '"code":"ServerBusy"' in texts[-1]
    assert '"value":"The server is busy.\\n' in texts[-1]


def test_a_batch_that_nothing_was_added_to_is_a_success(service: ServiceUnderTest) -> None:
    """azure-cosmosdb-table 1.0.6 commits one (`_convert_batch_to_json`), and reads no results from it (wire 7.1)."""
    body = b"--b\nContent-Type: multipart/mixed; boundary=c\n\n--c--\n--b--"
    response = service.send("POST", "/$batch", _OUTER_HEADERS, body)
    assert response.status == 202
    assert _named(response) == (
        "--batchresponse_G1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_G2\r\n\r\n"
        "--changesetresponse_G2--\r\n--batchresponse_G1--\r\n"
    )


def _statuses_as_cpp_reads(text: str) -> list[str]:
    """`TableClient::SubmitTransaction` reads lines until one is empty; at the end of a text `getline` leaves the last.

    So an empty line that ends in LF alone would end it early, and a last line without an end would never (wire 12.2).
    """
    lines = iter(text.split("\n"))
    next(lines)
    found: list[str] = []
    for line in lines:
        if not line:
            assert next(lines, None) is None, "it stops before the end"
            return found
        if "HTTP" in line:
            found.append(line[line.index(" ") + 1 :][:3])
    raise AssertionError("it never stops")


@pytest.mark.parametrize(
    ("operations", "statuses"),
    [
        (
            [
                'POST /tab Prefer: return-no-content {"PartitionKey":"p","RowKey":"a"}',
                "MERGE /tab(PartitionKey='p',RowKey='r') {}",
            ],
            ["204", "204"],
        ),
        (['POST /tab {"PartitionKey":"p","RowKey":"a"}'], ["201"]),
        (['POST /tab {"PartitionKey":"p","RowKey":"r"}'], ["409"]),
        ([], []),
    ],
)
def test_the_reader_of_cpp_stops_at_the_end(
    service: ServiceUnderTest, operations: list[str], statuses: list[str]
) -> None:
    prepare(service, {"given": _TABLE["given"]})
    response = service.send("POST", "/$batch", _OUTER_HEADERS, _batch(operations))
    assert _statuses_as_cpp_reads(response.body.decode()) == statuses


def test_a_lone_query_that_cannot_be_read_is_answered_in_the_default_form(
    service: ServiceUnderTest,
) -> None:
    body = b"--b\r\nContent-Type: application/http\r\n\r\nGET\r\n\r\n--b--\r\n"
    response = service.send("POST", "/$batch", _OUTER_HEADERS, body)
    assert _named(response) == (
        f"--batchresponse_G1\r\n{_PART_HEADERS}{_UNREADABLE}--batchresponse_G1--\r\n"
    )


def test_a_hundred_operations_are_one_transaction(service: ServiceUnderTest) -> None:
    """The most that are allowed (limits.CHANGE_SET_OPERATIONS_MAX), each answered in order (wire 7.1)."""
    prepare(service, {"given": _TABLE["given"]})
    operations = [
        f'POST /tab Prefer: return-no-content {{"PartitionKey":"p","RowKey":"x{number:03}"}}'
        for number in range(100)
    ]
    response = service.send("POST", "/$batch", _OUTER_HEADERS, _batch(operations))
    found = [re.search(r"RowKey='(x\d+)'", part) for part in _readable_parts(response)]
    assert [match and match[1] for match in found] == [f"x{number:03}" for number in range(100)]


def test_of_more_operations_than_there_may_be_no_more_are_looked_at(
    service: ServiceUnderTest,
) -> None:
    """Tens of thousands fit into a body, and parsing each would keep other clients waiting."""
    prepare(service, {"given": _TABLE["given"]})
    operations = [f'POST /tab {{"PartitionKey":"p","RowKey":"x{each}"}}' for each in range(3_000)]
    body = _batch(operations)
    response = service.send("POST", "/$batch", _OUTER_HEADERS, body)
    assert b"99:The batch request operation exceeds the maximum 100 changes" in response.body
    outer = RawRequest("POST", b"/$batch", b"", {})
    taken = parse_batch(b"multipart/mixed; boundary=b", body, outer)
    assert len(taken.parts) == limits.CHANGE_SET_OPERATIONS_MAX + 1


def test_a_query_in_a_batch_is_no_longer_than_a_url(service: ServiceUnderTest) -> None:
    """A longer URL than limits.URL_LENGTH_MAX is refused, as in a single request."""
    prepare(service, {"given": _TABLE["given"]})
    start = "/devstoreaccount1/tab()?$filter=RowKey%20eq%20'"
    for length, status in ((limits.URL_LENGTH_MAX, 202), (limits.URL_LENGTH_MAX + 1, 400)):
        target = f"{start}{'x' * (length - len(start) - 1)}'"
        assert len(target) == length
        part = f"Content-Type: application/http\r\n\r\nGET {target} HTTP/1.1\r\nAccept: application/json\r\n\r\n"
        body = f"--b\r\n{part}\r\n--b--\r\n".encode()
        assert service.send("POST", "/$batch", _OUTER_HEADERS, body).status == status


def test_boundaries_are_fresh(service: ServiceUnderTest) -> None:
    """They never repeat the request's, nor an earlier answer's (wire 7.2, 13)."""
    prepare(service, {"given": _TABLE["given"]})
    body = _batch(["PUT /tab(PartitionKey='p',RowKey='r') {}"])
    answers = [service.send("POST", "/$batch", _OUTER_HEADERS, body).body for _ in range(2)]
    guids = [guid for answer in answers for guid in set(re.findall(_GUID, answer.decode()))]
    assert len(set(guids)) == len(guids) == 4
