"""The same batch in the bytes of each client library.

A shape has a library's peculiarities, read from its source: line ends, blank lines, lengths, closing dashes, envelope
headers, URLs, keys.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from stress.property.model import Key, Write
from stress.property.payloads import ACCOUNT, BASE, Request, request_body

BATCH = "batch_0c1f4c3a-6d1c-4bb5-8a57-0d5a7a3e2b11"
CHANGE_SET = "changeset_63ce3ea1-3e7b-41a1-bcd6-588e3854786f"
_ANY_HEX = re.compile("%(?=[0-9A-Fa-f]{2})")

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Shape:
    """How a library writes a batch. `source` is the place in its source code."""

    name: str
    source: str
    newline: str = "\r\n"
    inner_newline: str = ""
    """The line end inside the requests, where it differs."""
    content_type: str = "multipart/mixed; boundary={}"
    inner_content_type: str = "Content-Type: multipart/mixed; boundary={}"
    after_inner_content_type: str = ""
    """Blank lines beyond the required one."""
    mime: Sequence[str] = ("Content-Type: application/http", "Content-Transfer-Encoding: binary")
    """The headers of a part; {} is replaced with the operation's index."""
    base: str = BASE
    encode: Callable[[str], str] = lambda text: quote(text, safe="-_.~'!*()")
    key_predicate: str = "(PartitionKey='{}',RowKey='{}')"
    query: str = ""
    headers: Callable[[str, int], Headers] = lambda _method, _index: []
    """The headers besides Content-Type, If-Match and Content-Length."""
    in_lower_case: bool = False
    merge: str = "PATCH"
    has_length: bool = False
    before_body: str = ""
    after_body: str = "{newline}"
    after_deletion: str = "{newline}"
    """The bytes between the last header of a DELETE and its delimiter."""
    before_end: str = ""
    between_ends: str = ""
    last_line: str = "--{}--{newline}"


def _accepting(level: str, *more: tuple[str, str]) -> Callable[[str, int], Headers]:
    return lambda _method, _index: [("Accept", level), *more]


def _inserts_prefer(*more: tuple[str, str]) -> Callable[[str, int], Headers]:
    """Inserts are not echoed."""

    def headers(method: str, _index: int) -> Headers:
        return [*more, *([("Prefer", "return-no-content")] if method == "POST" else [])]

    return headers


def _numbered(*more: tuple[str, str]) -> Callable[[str, int], Headers]:
    return lambda _method, index: [("Content-ID", str(index + 1)), *more]


def _numbered_from_the_second(*more: tuple[str, str]) -> Callable[[str, int], Headers]:
    return lambda _method, index: [*([("Content-ID", str(index))] if index else []), *more]


def _quotes_encoded(text: str) -> str:
    return quote(text, safe="-_.~!*()")


def _as_it_is(text: str) -> str:
    """Encodes nothing: a percent sign before two hexadecimal digits would be misread."""
    return _ANY_HEX.sub("%25", text)


MINIMAL = "application/json;odata=minimalmetadata"
FORMAT = "?%24format=application%2Fjson%3Bodata%3Dminimalmetadata"
SHAPES = (
    Shape(
        "Python azure-data-tables",
        "azure-core 1.41, azure/core/utils/_pipeline_transport_rest_shared.py, _prepare_multipart_body_helper",
        mime=(
            "Content-Type: application/http",
            "Content-Transfer-Encoding: binary",
            "Content-ID: {}",
        ),
        headers=_accepting(MINIMAL, ("DataServiceVersion", "3.0"), ("x-ms-version", "2019-02-02")),
        has_length=True,
        between_ends="{newline}",
    ),
    Shape(
        "JavaScript @azure/data-tables",
        "@azure/data-tables 13.3.2, dist/esm/TablePolicies.js, getNextSubrequestBodyPart",
        inner_content_type="content-type: multipart/mixed; boundary={}",
        after_inner_content_type="{newline}{newline}",
        mime=("content-type: application/http", "content-transfer-encoding: binary"),
        headers=_accepting(MINIMAL),
        in_lower_case=True,
        before_body="{newline}",
        after_deletion="{newline}{newline}",
    ),
    Shape(
        "Go aztables",
        "Azure/azure-sdk-for-go, sdk/data/aztables/transactional_batch.go",
        mime=("Content-Transfer-Encoding: binary", "Content-Type: application/http"),
        key_predicate="%28PartitionKey='{}',RowKey='{}'%29",
        query=FORMAT,
        headers=_inserts_prefer(("Accept", MINIMAL), ("DataServiceVersion", "3.0")),
        between_ends="{newline}",
    ),
    Shape(
        "Java azure-data-tables",
        "Azure/azure-sdk-for-java, sdk/tables/azure-data-tables/src/main/java/com/azure/data/tables/implementation",
        base=f"/{ACCOUNT}/",
        headers=_inserts_prefer(("DataServiceVersion", "3.0"), ("Accept", MINIMAL)),
        after_deletion="{newline}{newline}",
        last_line="--{}--",
    ),
    Shape(
        ".NET Azure.Data.Tables",
        "Azure/azure-sdk-for-net, sdk/core/Azure.Core/src/Shared/Multipart/MultipartContent.cs",
        query=FORMAT.replace("%24", "$"),
        headers=_inserts_prefer(
            ("Host", "127.0.0.1:10002"),
            ("x-ms-version", "2020-12-06"),
            ("Accept", "application/json"),
        ),
        between_ends="{newline}",
    ),
    Shape(
        "C++ azure-data-tables-cpp",
        "Azure/azure-sdk-for-cpp, sdk/tables/azure-data-tables/src/table_clients.cpp, TableClient::PreparePayload",
        newline="\n",
        encode=_as_it_is,
        headers=_inserts_prefer(("Accept", MINIMAL), ("DataServiceVersion", "3.0;")),
        merge="MERGE",
        after_body="",
        after_deletion="",
        before_end="{newline}{newline}",
        last_line="--{}{newline}",
    ),
    Shape(
        "Rust azure_data_tables",
        "Azure/azure-sdk-for-rust, sdk/data_tables/src/transaction.rs, Transaction::to_string",
        newline="\n",
        headers=_accepting("application/json;odata=fullmetadata"),
        in_lower_case=True,
        merge="MERGE",
        last_line="--{}{newline}",
    ),
    Shape(
        "Node azure-storage",
        "Azure/azure-storage-node, lib/services/table/models/batchresult.js",
        newline="\n",
        content_type='multipart/mixed; charset="utf-8"; boundary={}',
        inner_content_type='Content-Type: multipart/mixed;charset="utf-8";boundary={}',
        encode=_quotes_encoded,
        key_predicate="(PartitionKey=%27{}%27,RowKey=%27{}%27)",
        headers=_numbered_from_the_second(("Accept", MINIMAL), ("DataServiceVersion", "3.0;")),
        merge="MERGE",
        last_line="--{}--",
    ),
    Shape(
        "Python azure-cosmosdb-table",
        "azure-cosmosdb-table 1.0.6, azure/cosmosdb/table/_serialization.py, _convert_batch_to_json",
        newline="\n",
        base="/",
        headers=_numbered(("Accept", MINIMAL)),
        merge="MERGE",
        has_length=True,
        after_body="{newline}{newline}",
        last_line="--{}--",
    ),
    # Its bodies are Atom (tests/spec/batch.toml, tests/sdk/test_legacy.py); here its envelope holds JSON and asks for
    # it, as all do.
    Shape(
        "Python azure-storage",
        "azure-storage 0.20.3, azure/storage/_http/batchclient.py, commit_batch_requests",
        newline="\n",
        encode=lambda text: quote(text, safe="/()$=',"),
        headers=_numbered(("Accept", MINIMAL)),
        merge="MERGE",
        has_length=True,
        last_line="--{}--",
    ),
    Shape(
        "Java azure-storage",
        "Azure/azure-storage-java, com/microsoft/azure/storage/table/MimePart.java, toRequestString",
        headers=_numbered(("Accept", MINIMAL), ("MaxDataServiceVersion", "3.0;NetFx")),
        merge="MERGE",
        has_length=True,
        after_body="",
    ),
    Shape(
        "PHP azure-storage-table",
        "Azure/azure-storage-php, azure-storage-table/src/Table/Internal/MimeReaderWriter.php, encodeMimeMultipart",
        inner_newline="\n",
        base="http://127.0.0.1:10002/",
        content_type='multipart/mixed; boundary="{}"',
        inner_content_type='Content-Type: multipart/mixed; boundary="{}"',
        mime=("Content-Transfer-Encoding: binary", "Content-Type: application/http"),
        headers=_numbered(("Accept", MINIMAL)),
        merge="MERGE",
        has_length=True,
        between_ends="{newline}",
    ),
    Shape(
        "Ruby azure-storage-table",
        "Azure/azure-storage-ruby, table/lib/azure/storage/table/batch.rb, Batch#to_body",
        newline="\n",
        headers=_accepting(MINIMAL, ("DataServiceVersion", "3.0;NetFx")),
        merge="MERGE",
        has_length=True,
    ),
)


def batch_in(shape: Shape, table: str, writes: Sequence[Write]) -> Request:
    """The operations as one change set, as that library sends it."""
    lines = [f"--{BATCH}", shape.inner_content_type.format(CHANGE_SET), ""]
    text = "{newline}".join([*lines, shape.after_inner_content_type])
    pieces = [_line_ends(shape, text)]
    for index, write in enumerate(writes):
        pieces.append(_operation(shape, table, write, index))
    ends = [shape.before_end, f"--{CHANGE_SET}--{{newline}}", shape.between_ends]
    pieces += [_line_ends(shape, text) for text in ends]
    pieces.append(_line_ends(shape, shape.last_line).replace("{}", BATCH))
    headers = {"Content-Type": shape.content_type.format(BATCH)}
    return Request("POST", "/$batch", headers, "".join(pieces).encode())


def _line_ends(shape: Shape, text: str) -> str:
    return text.replace("{newline}", shape.newline)


def _operation(shape: Shape, table: str, write: Write, index: int) -> str:
    method = _method(shape, write)
    target = f"{shape.base}{table}"
    if method != "POST":
        target += _predicate(shape, write.key)
    headers = shape.headers(method, index)
    if write.if_match is not None:
        headers.append(("If-Match", write.if_match))
    body = ""
    if write.kind != "delete":
        body = request_body(write.key, write.properties).decode()
        headers.append(("Content-Type", "application/json"))
        if shape.has_length:
            headers.append(("Content-Length", str(len(body.encode()))))
    if shape.in_lower_case:
        headers = [(name.lower(), value) for name, value in headers]
    part = [f"--{CHANGE_SET}", *(line.replace("{}", str(index)) for line in shape.mime), ""]
    request_lines = [f"{method} {target}{shape.query} HTTP/1.1"]
    request_lines += [f"{name}: {value}" for name, value in headers]
    inner = shape.inner_newline or shape.newline
    head = "".join([line + shape.newline for line in part])
    head += "".join([line + inner for line in request_lines])
    if write.kind == "delete":
        return head + _line_ends(shape, shape.after_deletion)
    after = _line_ends(shape, shape.after_body)
    return f"{head}{inner}{_line_ends(shape, shape.before_body)}{body}{after}"


def _method(shape: Shape, write: Write) -> str:
    if write.kind == "insert":
        return "POST"
    if write.kind == "delete":
        return "DELETE"
    return shape.merge if "merge" in write.kind else "PUT"


def _predicate(shape: Shape, key: Key) -> str:
    return shape.key_predicate.format(*(shape.encode(text.replace("'", "''")) for text in key))
