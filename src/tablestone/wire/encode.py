"""Encoding: turns a result or an error into an answer, with status, headers and body exactly as the service sends them.

An `Answer` answers one operation, alone or in a batch: `respond` turns it into an HTTP response, and `wire/batch.py`
into a part of a batch. The headers are those of wire 2.2, as recorded from the service.
"""

from __future__ import annotations

import codecs
import functools
import html
from collections.abc import Callable
from typing import Final, NamedTuple

from tablestone.model.edm import format_date_time_fixed
from tablestone.model.entity_json import etag_of
from tablestone.model.errors import StorageError
from tablestone.model.etag import format_etag
from tablestone.model.operations import (
    CreateTable,
    EntitiesPage,
    EntityFound,
    EntityInserted,
    EntityWritten,
    GetEntity,
    InsertEntity,
    Operation,
    QueryEntities,
    Result,
    TableFound,
    TablesPage,
)
from tablestone.wire.address import format_entity_path, format_table_path
from tablestone.wire.atom_payload import AtomWriter
from tablestone.wire.continuation import entity_token_headers, table_token_header
from tablestone.wire.json_payload import JsonWriter, json_error, unreadable
from tablestone.wire.messages import Answer, RawResponse
from tablestone.wire.negotiate import RETURN_NO_CONTENT, AtomForm, Negotiated
from tablestone.wire.versions import VERSION_ECHOED, VERSION_UNNAMED

SERVER: Final = b"Windows-Azure-Table/1.0 Microsoft-HTTPAPI/2.0"
SERVER_OF_FRONT_DOOR: Final = b"Microsoft-HTTPAPI/2.0"
_TEXT_TYPE: Final = b"text/plain;charset=utf-8"
_NO_CACHE: Final = (b"cache-control", b"no-cache")
_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_SERVER: Final = (b"server", SERVER)
_ERROR_NAMESPACE: Final = "http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"


PayloadWriter = JsonWriter | AtomWriter
"""Writes bodies in one form, with links below one base URL."""


class Form(NamedTuple):
    """The form of an operation's answer, known before the operation is executed."""

    negotiated: Negotiated
    base: str
    writer: PayloadWriter
    dated: Callable[[int], PayloadWriter] | None
    """Makes the writer for a time in ticks; None if answers in this form do not contain the time."""

    def at(self, now: int) -> Form:
        """The form of an answer that is written at `now` (ticks)."""
        return self if self.dated is None else self._replace(writer=self.dated(now))


@functools.lru_cache(maxsize=512)
def form_for(base: str, account: str, negotiated: Negotiated) -> Form:
    """The form of answers below `base`, which ends with a slash. Cached, because clients use few forms."""
    if isinstance(negotiated.form, AtomForm):
        dated = functools.partial(AtomWriter, base, account, negotiated.form)
        return Form(negotiated, base, dated(0), dated)
    return Form(negotiated, base, JsonWriter(base, account, negotiated.form), None)


class Stamp(NamedTuple):
    """What the headers of every answer repeat: our id of the request, the client's id of it, and the version."""

    request_id: str
    client_request_id: bytes | None
    version: str


def encode_result(operation: Operation, result: Result, form: Form) -> Answer:
    """The answer to an operation that succeeded. The entities of a page are as the writer's `listed` wrote them."""
    writer = form.writer
    if isinstance(result, EntityFound):
        assert isinstance(operation, GetEntity)
        body = writer.entity(operation.table, result.stored, operation.projection)
        return Answer(200, body, writer.entry_type, etag_of(result.stored))
    if isinstance(result, EntityInserted):
        assert isinstance(operation, InsertEntity)
        return _inserted(operation, result, form)
    if isinstance(result, EntityWritten):
        answer = Answer(204, etag=format_etag(result.version))
        if form.negotiated.preference is not None:  # whichever was sent (wire 3.10)
            answer.preference_applied = RETURN_NO_CONTENT
        return answer
    if isinstance(result, EntitiesPage):
        assert isinstance(operation, QueryEntities)
        extra = None
        if result.token is not None:
            extra = entity_token_headers(result.token, reverse=operation.reverse)
        if operation.counts is not None:
            return Answer(200, b"%d" % result.count, _TEXT_TYPE, extra=extra)
        body = writer.entities(operation.table, result.stored, operation.projection)
        return Answer(200, body, writer.feed_type, extra=extra)
    if isinstance(result, TablesPage):
        extra = None if result.next_table is None else [table_token_header(*result.next_table)]
        return Answer(200, writer.tables(result.tables), writer.feed_type, extra=extra)
    if isinstance(result, TableFound):
        return _table(operation, result, form)
    return Answer(204)


def _inserted(operation: InsertEntity, result: EntityInserted, form: Form) -> Answer:
    table, version = operation.table, result.version
    answer = _created(form, format_entity_path(table, operation.entity.key))
    answer.etag = format_etag(version)
    if answer.status == 201:
        answer.body = form.writer.entity(table, result.render(version), None)
    return answer


def _created(form: Form, path: str) -> Answer:
    """The answer to an insert or create, without the body."""
    answer = Answer(204, location=form.base + path, is_insert=True)
    answer.preference_applied = form.negotiated.preference
    if form.negotiated.preference != RETURN_NO_CONTENT:
        answer.status = 201
        answer.is_of_odata_2 = form.negotiated.form is AtomForm.ODATA_2
        answer.content_type = form.writer.entry_type
    return answer


def _table(operation: Operation, result: TableFound, form: Form) -> Answer:
    if not isinstance(operation, CreateTable):
        return Answer(200, form.writer.table(result.table), form.writer.entry_type)
    answer = _created(form, format_table_path(result.table))
    if answer.status == 201:
        answer.body = form.writer.table(result.table)
    return answer


def encode_error(
    error: StorageError, form: Form, stamp: Stamp, now: int, index: int | None = None
) -> Answer:
    """The answer to an operation that failed (wire 8.1, 8.2). `now` is in ticks; `index` is told in a batch."""
    body = form.writer.error(error.code, message_of(error, stamp, now, index))
    answer = Answer(error.status, body, form.writer.error_type, early=error.early)
    if not error.early:
        answer.preference_applied = form.negotiated.preference
    if error.headers:
        answer.extra = list(error.headers)
    if error.status == 304:
        answer.body, answer.content_type = b"", None
    return answer


def message_of(error: StorageError, stamp: Stamp, now: int, index: int | None = None) -> str:
    """The whole text of an error: its index, its own text, request id and time (wire 8.1)."""
    text = error.text if index is None else f"{index}:{error.text}"
    return f"{text}\nRequestId:{stamp.request_id}\nTime:{format_date_time_fixed(now)}"


@functools.lru_cache(maxsize=256)
def _common_headers(
    version: str, content_type: bytes | None, status: int, *, early: bool
) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that all answers of a kind share (wire 2.2)."""
    headers = [_SERVER, _NOSNIFF]
    if version >= VERSION_ECHOED:
        headers.append((b"x-ms-version", version.encode("latin-1")))
    if not early:
        headers.append(_NO_CACHE)
    if content_type is not None:
        headers.append((b"content-type", content_type))
    elif status == 204:
        headers.append((b"content-length", b"0"))
    return tuple(headers)


def respond(answer: Answer, stamp: Stamp) -> RawResponse:
    """The HTTP response: the answer's own headers, and those of every OData answer (wire 2.2)."""
    headers = [
        *_common_headers(stamp.version, answer.content_type, answer.status, early=answer.early),
        (b"x-ms-request-id", stamp.request_id.encode("ascii")),
    ]
    if answer.etag is not None:
        headers.append((b"etag", answer.etag.encode("ascii")))
    if answer.location is not None:
        location = answer.location.encode("latin-1")
        headers.append((b"location", location))
        if answer.status == 204:
            headers.append((b"dataserviceid", location))
    if answer.preference_applied is not None:
        headers.append((b"preference-applied", answer.preference_applied))
    if answer.extra is not None:
        headers.extend([(name.lower(), value) for name, value in answer.extra])
    if stamp.client_request_id is not None:
        headers.append((b"x-ms-client-request-id", stamp.client_request_id))
    return RawResponse(answer.status, headers, answer.body)


def respond_with_result(
    operation: Operation, result: Result, form: Form, stamp: Stamp
) -> RawResponse:
    return respond(encode_result(operation, result, form), stamp)


_VERSIONS_OF_OLD_FORM: Final = (VERSION_UNNAMED, VERSION_ECHOED)
"""Versions that answer a failed authentication with Atom's old error, whatever Accept says (auth 11)."""


def respond_at_front_door(
    error: StorageError, accept: bytes, stamp: Stamp, now: int
) -> RawResponse:
    """The answer to a request that the service's front door refuses: JSON if requested, else XML.

    As recorded, it has `x-ms-error-code` and no headers of OData answers. It names the service and its version only if
    the request has no credentials (wire 8.3). An unknown version, and a failed authentication with one of the earliest
    versions, have a form of their own (wire 10.2, auth 11).
    """
    headers = [
        (b"server", SERVER_OF_FRONT_DOOR),
        (b"x-ms-request-id", stamp.request_id.encode("ascii")),
    ]
    if stamp.version and error.status in (401, 404):
        headers[0] = _SERVER
        if stamp.version >= VERSION_ECHOED:
            headers.append((b"x-ms-version", stamp.version.encode("latin-1")))
    content_type = b"application/xml"
    is_old = error.code == "AuthenticationFailed" and stamp.version in _VERSIONS_OF_OLD_FORM
    if is_old or (error.code == "InvalidHeaderValue" and error.at_front_door):
        writer = AtomWriter("", "", AtomForm.PLAIN, 0)
        body = codecs.BOM_UTF8 + writer.error(error.code, message_of(error, stamp, now))
    else:
        headers.append((b"x-ms-error-code", error.code.encode("ascii")))
        is_too_large = error.code == "RequestBodyTooLarge"
        accept = accept.lower()
        # A large body is usually a batch. Its Accept names no form, and not every SDK reads XML (wire 8.3).
        if b"application/json" in accept or (is_too_large and b"xml" not in accept):
            content_type = b"application/json"
            body = json_error(error.code, message_of(error, stamp, now))
        else:
            body = xml_error(error, stamp, now, _STORAGE_ERROR if is_too_large else _ODATA_ERROR)
    headers.append((b"content-type", content_type))
    headers.extend((name.lower(), value) for name, value in error.headers)
    if stamp.client_request_id is not None:
        headers.append((b"x-ms-client-request-id", stamp.client_request_id))
    return RawResponse(error.status, headers, body, error.text)


def unreadable_error(stamp: Stamp, now: int) -> bytes:
    """The error for an unreadable part of a batch. Its form is fixed: its Accept cannot be read (wire 7.3)."""
    message = message_of(unreadable(), stamp, now)
    return AtomWriter("", "", AtomForm.ODATA_3, 0).error("InvalidInput", message)


_DECLARATION: Final = '<?xml version="1.0" encoding="utf-8"?>'
_ODATA_ERROR: Final = (
    f'{_DECLARATION}<m:error xmlns:m="{_ERROR_NAMESPACE}"><m:code>{{code}}</m:code>'
    '<m:message xml:lang="en-US">{message}</m:message></m:error>'
)
_STORAGE_ERROR: Final = (
    f"{_DECLARATION}<Error><Code>{{code}}</Code><Message>{{message}}</Message></Error>"
)
"""The error form that all storage services share: for a body that is too large (wire 8.3)."""


def xml_error(error: StorageError, stamp: Stamp, now: int, form: str = _ODATA_ERROR) -> bytes:
    message = html.escape(message_of(error, stamp, now), quote=False)
    return form.format(code=error.code, message=message).encode("utf-8", "replace")
