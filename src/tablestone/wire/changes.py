"""The feed of changes on the wire: `GET /TABLE?comp=changes&since=CURSOR&wait=30`, answered in JSON lines.

The service has no such feed (docs/protocol/changes.md). While no changes are kept, the request gets the service's
answer to a `comp` that it does not know.
"""

import base64
import binascii
import json
import struct
from typing import Final

from tablestone import limits
from tablestone.model.edm import format_date_time_fixed
from tablestone.model.errors import StorageError
from tablestone.model.etag import format_etag
from tablestone.model.operations import (
    ChangeCursor,
    ChangeFound,
    ChangesFound,
    ChangesSince,
    Operation,
    ReadAccountChanges,
    ReadTableChanges,
    Since,
)
from tablestone.model.shared_access import parse_instant
from tablestone.wire.address import AddressKind, Parameters
from tablestone.wire.decode import DecodedRequest, table_in_url
from tablestone.wire.encode import Stamp
from tablestone.wire.messages import RawResponse, Wait
from tablestone.wire.service_resources import headers_of

CURSOR_HEADER: Final = b"x-tablestone-cursor"
"""The cursor behind all that a page has examined."""
_CONTENT_TYPE: Final = b"application/x-ndjson"
_CURSOR: Final = struct.Struct(">8s8sQQ")


def is_changes_request(parameters: Parameters) -> bool:
    return parameters.get("comp") == "changes"


def decode_changes(method: str, decoded: DecodedRequest) -> Operation:
    """The operation of the request; raises the service's error if the request is wrong."""
    kind, restype = decoded.address.kind, decoded.parameters.get("restype")
    is_of_table = kind is AddressKind.ENTITY_SET and restype is None
    if not is_of_table and not (kind is AddressKind.SERVICE and restype == "service"):
        raise StorageError("InvalidQueryParameterValue", early=True, at_front_door=True)
    if method != "GET":
        raise StorageError("MethodNotAllowed", early=True)
    wait = decoded.parameters.get("wait", "0")
    if not (
        wait.isascii()
        and wait.isdecimal()
        and len(wait) < 3
        and int(wait) <= limits.CHANGE_WAIT_SECONDS_MAX
    ):
        text = f"wait is a number of seconds from 0 to {limits.CHANGE_WAIT_SECONDS_MAX}."
        raise StorageError("InvalidQueryParameterValue", text, early=True)
    since = _since(decoded.parameters.get("since"))
    if is_of_table:
        return ReadTableChanges(table_in_url(decoded.address), since, int(wait))
    return ReadAccountChanges(since, int(wait))


def _since(text: str | None) -> ChangesSince:
    if text is None:
        return Since.OLDEST
    if text == Since.NOW.value:
        return Since.NOW
    try:
        return parse_instant(text)
    except ValueError:
        return parse_cursor(text)


def format_cursor(cursor: ChangeCursor) -> str:
    packed = _CURSOR.pack(cursor.storage, cursor.epoch, cursor.number, cursor.time) + cursor.scope
    return base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")


def parse_cursor(text: str) -> ChangeCursor:
    """The cursor of its text; raises if no cursor is written like this."""
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        storage, epoch, number, time = _CURSOR.unpack_from(packed)
    except (binascii.Error, ValueError, struct.error) as error:
        sentence = "since is now, a time such as 2026-01-31T10:14:00Z, or a cursor of this feed."
        raise StorageError("InvalidQueryParameterValue", sentence, early=True) from error
    return ChangeCursor(storage, epoch, number, time, packed[_CURSOR.size :])


def respond_with_changes(
    operation: ReadTableChanges | ReadAccountChanges, result: ChangesFound, stamp: Stamp
) -> RawResponse:
    """The page as JSON lines."""
    body = b"".join(map(write_line, result.changes))
    headers = [
        *headers_of(stamp),
        (b"content-type", _CONTENT_TYPE),
        (b"cache-control", b"no-cache"),
        (CURSOR_HEADER, format_cursor(result.cursor).encode("ascii")),
    ]
    wait = None
    if operation.wait_seconds and not body:
        wait = Wait(operation.wait_seconds, result.has_more)
    return RawResponse(200, headers, body, wait=wait)


def write_line(change: ChangeFound) -> bytes:
    """A change as a line of JSON."""
    members = {
        "cursor": format_cursor(change.cursor),
        "kind": change.kind.value,
        "table": change.table,
        "time": format_date_time_fixed(change.time),
    }
    if change.key is None:
        return json.dumps(members).encode("ascii") + b"\n"
    number, lines = change.place
    of_entity = {
        **members,
        "PartitionKey": change.key.partition_key,
        "RowKey": change.key.row_key,
        "etag": format_etag(change.version),
        "line": number,
        "lines": lines,
    }
    parts = [
        json.dumps(of_entity).encode("ascii")[:-1]
    ]  # keys may have characters that no UTF-8 has
    for name, stored in ((b"entity", change.stored), (b"before", change.before)):
        if stored is not None:
            parts += (b', "', name, b'": ', stored)
    return b"".join((*parts, b"}\n"))
