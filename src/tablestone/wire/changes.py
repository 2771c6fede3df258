"""The feed of changes on the wire: `GET /TABLE?comp=changes&since=CURSOR&wait=30`, answered in JSON lines.

The service has no such feed (docs/protocol/changes.md). While no changes are kept, the answer is the service's for an
unknown `comp`.
"""

import base64
import binascii
import dataclasses
import json
import re
from collections.abc import Collection
from typing import Final
from urllib.parse import unquote_to_bytes

from tablestone import limits
from tablestone.model.edm import format_date_time_fixed
from tablestone.model.errors import StorageError
from tablestone.model.etag import format_etag
from tablestone.model.keys import decode_key
from tablestone.model.operations import (
    CURSOR_HEADER,
    MORE_HEADER,
    ChangeCursor,
    ChangesFound,
    ChangesSince,
    CommitFound,
    Operation,
    ReadAccountChanges,
    ReadTableChanges,
    Since,
)
from tablestone.model.shared_access import parse_instant
from tablestone.wire.decode import DecodedRequest, table_in_url
from tablestone.wire.encode import Form, Stamp
from tablestone.wire.messages import RawRequest, RawResponse, Wait
from tablestone.wire.service_resources import headers_of

_CONTENT_TYPE: Final = b"application/x-ndjson"
_CURSOR: Final = re.compile(r"([\w-]{22,400})\.(\d{1,18})\.(\d{1,18})", re.ASCII)


def decode_table_changes(decoded: DecodedRequest) -> Operation:
    wait, since = _wait(decoded), _since(decoded.parameters.get("since"))
    return ReadTableChanges(table_in_url(decoded.address), since, wait)


def decode_account_changes(decoded: DecodedRequest) -> Operation:
    wait, since = _wait(decoded), _since(decoded.parameters.get("since"))
    return ReadAccountChanges(since, wait)


def _wait(decoded: DecodedRequest) -> int:
    """The seconds to wait for a change."""
    wait = decoded.parameters.get("wait", "0")
    is_number = wait.isascii() and wait.isdecimal() and len(wait) < 3
    if not is_number or int(wait) > limits.CHANGE_WAIT_SECONDS_MAX:
        text = f"wait is a number of seconds from 0 to {limits.CHANGE_WAIT_SECONDS_MAX}."
        raise StorageError("InvalidQueryParameterValue", text)
    return int(wait)


def _since(text: str | None) -> ChangesSince:
    if text is None:
        return Since.OLDEST
    if text == Since.NOW.value:
        return Since.NOW
    try:
        return parse_instant(text)
    except ValueError:
        return parse_cursor(text)


def _feed_text(cursor: ChangeCursor) -> str:
    """The start of all cursors of one feed."""
    packed = cursor.storage + cursor.epoch + cursor.scope
    return base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")


def format_cursor(cursor: ChangeCursor) -> str:
    return f"{_feed_text(cursor)}.{cursor.number}.{cursor.time}"


def parse_cursor(text: str) -> ChangeCursor:
    """The cursor in a text; raises `InvalidQueryParameterValue` for any other text."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise _no_cursor()
    feed, number, time = found.groups()
    try:
        packed = base64.b64decode(feed + "=" * (-len(feed) % 4), b"-_", validate=True)
    except binascii.Error as error:
        raise _no_cursor() from error
    storage, epoch, scope = packed[:8], packed[8:16], packed[16:]
    return ChangeCursor(storage, epoch, int(number), int(time), scope)


def _no_cursor() -> StorageError:
    sentence = "since is now, a time such as 2026-01-31T10:14:00Z, or a cursor of this feed."
    return StorageError("InvalidQueryParameterValue", sentence)


def respond_with_changes(
    operation: ReadTableChanges | ReadAccountChanges,
    result: ChangesFound,
    _form: Form,
    stamp: Stamp,
) -> RawResponse:
    """The page as JSON lines. The pipeline says for which caller it may wait."""
    body = b"".join(lines_of(result))
    headers = [
        *headers_of(stamp),
        (b"content-type", _CONTENT_TYPE),
        (b"cache-control", b"no-cache"),
        (CURSOR_HEADER.encode("ascii"), format_cursor(result.cursor).encode("ascii")),
    ]
    if result.has_more:
        headers.append((MORE_HEADER.encode("ascii"), b"true"))
    wait = None
    if operation.wait_seconds and not body:
        wait = Wait(operation.wait_seconds, result.cursor, result.has_more, ())
    return RawResponse(200, headers, body, wait=wait)


def asked_from(request: RawRequest, cursor: ChangeCursor) -> RawRequest:
    """The same request from this cursor on. It stays authentic: no signature covers `since`."""
    since = b"since=" + format_cursor(cursor).encode("ascii")
    others = other_parameters(request.query_string, (b"since",))
    return dataclasses.replace(request, query_string=b"&".join([*others, since]))


def other_parameters(query_string: bytes, names: Collection[bytes]) -> list[bytes]:
    """The parameters without these names, as they were sent."""
    pairs = query_string.split(b"&")
    return [pair for pair in pairs if unquote_to_bytes(pair.partition(b"=")[0]) not in names]


def lines_of(result: ChangesFound) -> list[bytes]:
    """The lines of a page, each with its line end."""
    feed = _feed_text(result.cursor)
    return [line for commit in result.commits for line in _lines(commit, feed)]


def _lines(commit: CommitFound, feed: str) -> list[bytes]:
    """The lines of a commit. All but the last have the cursor of the commit before, so no cursor divides a commit."""
    kind, table, number, time, partition_key, entities = commit
    end = f'","table":"{table}","time":"{format_date_time_fixed(time)}"'.encode("ascii")
    after = f'{{"cursor":"{feed}.{number}.{time}","kind":"'.encode("ascii")
    if not entities:
        return [b"%b%b%b}\n" % (after, kind.encode("ascii"), end)]
    before = f'{{"cursor":"{feed}.{number - 1}.0","kind":"'.encode("ascii")
    deleted = b"%bexpired%b" if kind == "expired" else b"%bdelete%b"
    lines: list[bytes] = []
    following = len(entities)
    for row, version, stored, replaced in entities:
        following -= 1
        begin = b"%bput%b" if stored is not None else deleted
        begin %= (before if following else after, end)
        if following:
            begin += b',"following":%d' % following
        if stored is None:
            lines.append(begin + _key(partition_key, row, version))
        elif replaced is None:
            lines.append(b'%b,"entity":%b}\n' % (begin, stored))
        else:
            lines.append(b'%b,"entity":%b,"before":%b}\n' % (begin, stored, replaced))
    return lines


def _key(partition_key: str, row: bytes, version: int) -> bytes:
    """The rest of the line of a deleted entity. `json`, because keys may have surrogates, which orjson refuses."""
    members = {
        "PartitionKey": partition_key,
        "RowKey": decode_key(row),
        "etag": format_etag(version),
    }
    return b"," + json.dumps(members, separators=(",", ":")).encode("ascii")[1:] + b"\n"
