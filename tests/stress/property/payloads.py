"""The model's operations as requests, and the JSON of the expected answers, both written in a slow and obvious way.

Written from wire 1.3, 3.9, 5.2, 5.3 and 7.1. Texts are compared as lists of members in order, with numbers told apart
by their form.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from stress.property.model import Key, Properties, Stored, Value, Write, without_nulls

ACCOUNT = "devstoreaccount1"
LEVELS = ("nometadata", "minimalmetadata", "fullmetadata")
ANNOTATED = ("Edm.Int64", "Edm.Guid", "Edm.Binary", "Edm.DateTime")
BATCH_TYPE = "multipart/mixed; boundary=batch_1"

Members = list[tuple[str, Any]]


@dataclass(frozen=True)
class Request:
    """A request below the account, before it is signed.

    `key` is None for the account that always exists, and "" for no signature in a header.
    """

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    account: str = ACCOUNT
    key: str | None = None


def base_of(account: str) -> str:
    return f"http://127.0.0.1:10002/{account}/"


BASE = base_of(ACCOUNT)


def entity_path(table: str, key: Key) -> str:
    """The URL of an entity as it is echoed: quotes doubled, then percent-encoded (wire 1.3)."""
    partition, row = (quote(text.replace("'", "''"), safe="-_.~'!*()") for text in key)
    return f"{table}(PartitionKey='{partition}',RowKey='{row}')"


def write_request(table: str, write: Write, verb: str = "") -> Request:
    """A write. `verb` chooses among the ways to say a merge: MERGE, PATCH, or POST with X-HTTP-Method (wire 3.10)."""
    headers = {} if write.if_match is None else {"If-Match": write.if_match}
    path = f"/{entity_path(table, write.key)}"
    if write.kind == "delete":
        return Request("DELETE", path, headers)
    body = request_body(write.key, write.properties)
    headers["Content-Type"] = "application/json"
    if write.kind == "insert":
        return Request("POST", f"/{table}", headers, body)
    if "merge" not in write.kind:
        return Request("PUT", path, headers, body)
    if verb == "POST":
        return Request("POST", path, {**headers, "X-HTTP-Method": "MERGE"}, body)
    return Request(verb or "PATCH", path, headers, body)


def batch_request(table: str, writes: Sequence[Write], account: str = ACCOUNT) -> Request:
    """One change set (wire 7.1)."""
    lines = ["--batch_1", "Content-Type: multipart/mixed; boundary=changeset_1", ""]
    for write in writes:
        part = write_request(table, write)
        lines += ["--changeset_1", "Content-Type: application/http"]
        lines += ["Content-Transfer-Encoding: binary", ""]
        lines += [f"{part.method} {base_of(account)}{part.path[1:]} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in part.headers.items()]
        lines += ["Accept: application/json;odata=minimalmetadata", "", part.body.decode()]
    lines += ["--changeset_1--", "--batch_1--", ""]
    return Request("POST", "/$batch", {"Content-Type": BATCH_TYPE}, "\r\n".join(lines).encode())


def request_body(key: Key, properties: Properties) -> bytes:
    """The entity as a client sends it."""
    members: dict[str, Any] = {"PartitionKey": key[0], "RowKey": key[1]}
    for name, (kind, content) in properties.items():
        if kind in ANNOTATED or (kind == "Edm.Double" and _is_text(content)):
            members[f"{name}@odata.type"] = kind
        members[name] = json_content((kind, content))
    return json.dumps(members).encode()


def json_content(value: Value) -> Any:
    """A value as the service writes it (wire 5.3)."""
    kind, content = value
    if kind == "Edm.Int64":
        return str(content)
    if kind == "Edm.Binary":
        return base64.b64encode(content).decode()
    if kind == "Edm.DateTime":
        return trimmed(content)
    if kind == "Edm.Double" and _is_text(content):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[str(content)]
    return content


def _is_text(number: float) -> bool:
    return number - number != 0


def trimmed(moment: str) -> str:
    """A time without the zeros at the end of its fraction, and without the point if none is left (wire 4)."""
    return moment.removesuffix("Z").rstrip("0").rstrip(".") + "Z"


def parse_members(text: bytes) -> Any:
    """JSON with its members in order; a number with a point or an exponent is ("Edm.Double", number)."""
    return json.loads(
        text,
        object_pairs_hook=lambda pairs: pairs,
        parse_float=lambda number: ("Edm.Double", float(number)),
    )


def _custom_members(properties: Properties) -> Members:
    members: Members = []
    for name, value in properties.items():
        content = json_content(value)
        is_text_double = value[0] == "Edm.Double" and isinstance(content, str)
        if value[0] in ANNOTATED or is_text_double:
            members.append((f"{name}@odata.type", value[0]))
        if value[0] == "Edm.Double" and not is_text_double:
            content = ("Edm.Double", content)
        members.append((name, content))
    return members


def expected_members(
    table: str,
    key: Key,
    stored: Stored,
    level: str,
    select: Sequence[str] = (),
    account: str = ACCOUNT,
) -> Members:
    """An entity at a metadata level, without `odata.metadata` (wire 5.2, 5.6, 3.11)."""
    own: Members = [
        ("PartitionKey", key[0]),
        ("RowKey", key[1]),
        ("Timestamp@odata.type", "Edm.DateTime"),
        ("Timestamp", trimmed(stored.timestamp)),
        *_custom_members(without_nulls(stored.properties)),
    ]
    if select:
        own = [(name, content) for name, content in own if name.split("@")[0] in select]
        present = {name for name, _ in own}
        own += [(name, None) for name in dict.fromkeys(select) if name not in present]
    if level == "nometadata":
        return [(name, content) for name, content in own if not name.endswith("@odata.type")]
    path = entity_path(table, key)
    about: Members = [("odata.etag", stored.etag)]
    if level == "fullmetadata":
        about = [
            ("odata.type", f"{account}.{table}"),
            ("odata.id", base_of(account) + path),
            *about,
            ("odata.editLink", path),
        ]
    else:
        own = [(name, content) for name, content in own if name != "Timestamp@odata.type"]
    return about + own
