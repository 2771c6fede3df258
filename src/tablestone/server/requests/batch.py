"""Carrying out a batch: its parts become operations in the same steps as single requests, its answers one envelope.

A change set becomes one entity group transaction; a lone query is simply answered. The outer status is always 202. A
change set that failed is answered with the failing operation's answer alone (wire 7.2, 7.3).
"""

import logging
import uuid
from collections.abc import Sequence

from tablestone import limits
from tablestone.auth.permissions import OWNER
from tablestone.model.errors import StorageError
from tablestone.model.operations import (
    EntitiesPage,
    EntityGroupTransaction,
    EntityWrite,
    GetEntity,
    Operation,
    QueryEntities,
    Result,
    TransactionCommitted,
    entity_key,
)
from tablestone.server.requests.authenticated import Authenticated, error_to_answer
from tablestone.server.requests.page_writing import written_page
from tablestone.tables.writes import EntityGroup
from tablestone.telemetry.request_record import RefusedTable
from tablestone.wire.address import (
    NO_PARAMETERS,
    AddressKind,
    is_service_request,
    parse_query_string,
    parse_resource,
)
from tablestone.wire.batch import (
    BatchPart,
    BatchRequest,
    format_batch_answer,
    format_part,
    format_unreadable_part,
    parse_batch,
)
from tablestone.wire.decode import DecodedRequest, effective_method, require_answerable
from tablestone.wire.encode import Form, encode_error, encode_result, form_for, unreadable_error
from tablestone.wire.messages import Answer, RawRequest
from tablestone.wire.negotiate import AtomForm, negotiate
from tablestone.wire.routes import decode_operation, operation_asked
from tablestone.wire.versions import VERSION_EXACT_TEXTS

log = logging.getLogger("tablestone")

# In a change set of one operation, only early errors have an index before their text (wire 7.3), and these, among them
# the one of a caller without permission (auth 3.7).
_INDEXED_ALWAYS = frozenset(
    (
        *("PropertiesNeedValue", "OutOfRangeInput", "AuthenticationFailed", "AuthorizationFailure"),
        *("AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch"),
    )
)

_VERSION_NEEDING_ACCEPT = "2019-12-12"
"""The one version where, below an outer `*/*`, a part without Accept is known to be refused (wire 5.1)."""


async def answer_batch(step: Authenticated, method: str) -> Answer:
    """The outer answer. Raises only for an envelope that cannot be read, and for changes at the secondary."""
    if method != "POST":
        raise StorageError("MethodNotAllowed")
    step.record.is_batch = True
    body = await step.read_body(limits.BODY_BYTES_MAX)
    batch = parse_batch(step.request.headers.get(b"content-type"), body, step.request)
    if batch.is_change_set and step.found.is_secondary:
        raise StorageError("InsufficientAccountPermissions")
    forms: list[Form] = []
    for part in batch.parts:
        if part.head == len(forms):
            forms.append(_form(step, part.request))
    if batch.is_change_set:
        answers = await _change_set(step, batch, forms)
    elif batch.ends_unreadable:
        answers = [_unreadable(step)]
    elif not batch.parts:
        log.warning(
            "request %s is a batch whose body never uses the boundary of its Content-Type: nothing was written",
            step.stamp.request_id,
        )
        answers = []
    else:
        answers = [await _query(step, batch.parts[0], forms[0])]
    guids = (str(uuid.uuid4()), str(uuid.uuid4()))
    content_type, content = format_batch_answer(answers, guids, change_set=batch.is_change_set)
    return Answer(202, content, content_type)


def _form(step: Authenticated, request: RawRequest) -> Form:
    """The form of a part's answer; a part that cannot be read gets the default form."""
    try:
        parameters = parse_query_string(request.query_string)
    except StorageError:
        parameters = NO_PARAMETERS
    negotiated = negotiate(request.headers, parameters, step.stamp.version)
    outer = step.form.negotiated.form
    if negotiated.form is AtomForm.ODATA_3 and outer is AtomForm.ODATA_2:
        # Old clients declare their OData outside only.
        negotiated = negotiated._replace(form=outer)
    form = form_for(step.form.base, step.found.account.name, negotiated)
    return form.at(step.means.clock())


def _head(step: Authenticated, request: RawRequest, form: Form) -> DecodedRequest:
    """What a part asks for, without its body: a resource below the URL of the outer request, which has to be OData."""
    account = step.found.account
    method = effective_method(request)
    path, prefix = request.raw_path, f"/{step.found.prefix}".encode("ascii")
    resource = path.removeprefix(prefix) if path.startswith(prefix) else path[1:]
    if path + b"/" == prefix:  # the account's address alone
        resource = b""
    if step.found.is_secondary:  # three forms of path address the secondary (auth 1.5)
        resource = resource.removeprefix(account.name_bytes + b"/")
    parameters = parse_query_string(request.query_string)
    if is_service_request(parameters):  # it is not OData (wire 7.1)
        raise StorageError("NotImplemented")
    is_count = step.means.extended and method == "GET" and _names_count(resource, account.name)
    if not is_count:  # that is a text, which every form can write
        require_answerable(method, form.negotiated)
        if step.stamp.version == _VERSION_NEEDING_ACCEPT and b"accept" not in request.headers:
            outer = step.request.headers.get(b"accept", b"").strip()
            if outer == b"*/*" and form.negotiated.refusal == "AtomFormatNotSupported":
                raise StorageError("AtomFormatNotSupported")
    address = parse_resource(resource, account.name)
    given = (request, method, address, parameters, b"", step.stamp.version)
    most = step.means.service.entity_limits
    return DecodedRequest(*given, is_part=True, extended=step.means.extended, entity_limits=most)


def _names_count(resource: bytes, account: str) -> bool:
    """A resource that cannot be read gets its error later."""
    try:
        return parse_resource(resource, account).kind is AddressKind.COUNT
    except StorageError:
        return False


def _operation(step: Authenticated, head: DecodedRequest, body: bytes) -> Operation:
    _route, operation = decode_operation(head._replace(body=body))
    return operation if step.caller is OWNER else step.caller.permit(operation)


def _unreadable(step: Authenticated) -> bytes:
    return format_unreadable_part(unreadable_error(step.stamp, step.means.clock()))


async def _change_set(step: Authenticated, batch: BatchRequest, forms: list[Form]) -> list[bytes]:
    """One answer for each operation, or only that of the operation that failed."""
    parts = batch.parts
    group = EntityGroup()
    failure: StorageError
    try:
        await _collect(step, parts, forms, group)
        if batch.ends_unreadable:
            return [_unreadable(step)]
        if not parts:  # some clients commit an empty batch (wire 7.1)
            return []
        first = group.writes[0]
        partition_key = entity_key(first).partition_key
        transaction = EntityGroupTransaction(first.table, partition_key, group.writes)
        outcome = await _execute(step, transaction)
    except StorageError as error:
        failure = error  # nothing is awaited inside an `except`: decision 7
    else:
        assert isinstance(outcome, TransactionCommitted)
        return [
            format_part(encode_result(write, result, forms[part.head]), part.content_id)
            for write, result, part in zip(group.writes, outcome.results, parts, strict=True)
        ]
    step.record.failure = failure
    failure = await error_to_answer(failure, step)
    index = failure.operation_index
    # A late error is found at the commit, and has the headers of the last operation (wire 7.3).
    part = parts[index if failure.early else -1]
    indexed = len(parts) > 1 or failure.early or failure.code in _INDEXED_ALWAYS
    if failure.code in ("ServerBusy", "RequestBodyTooLarge"):
        # Clients would blame the operation of the index (wire 7.3).
        indexed = False
    told = index if indexed else None
    answer = encode_error(failure, forms[part.head], step.stamp, step.means.clock(), told)
    methods = {parts[index].request.method, part.request.method}
    if failure.code == "InvalidDuplicateRow" and methods == {"DELETE"}:
        answer.preference_applied = None  # as recorded (wire 7.3)
    return [format_part(answer, part.content_id)]


async def _collect(
    step: Authenticated, parts: Sequence[BatchPart], forms: list[Form], group: EntityGroup
) -> None:
    """Add the writes of the parts to the group; an error has the index of its part."""
    turn = step.means.turns.turn()
    head: DecodedRequest | None = None
    known = -1
    try:
        await turn.begin()
        for index, part in enumerate(parts):
            if turn.is_over:
                await turn.give_way()
            try:
                if head is None or part.head != known:
                    known, head = part.head, None
                    head = _head(step, part.request, forms[known])
                operation = _operation(step, head, part.body)
                if not isinstance(operation, EntityWrite):
                    raise _not_here()
                group.add(operation)
            except StorageError as error:
                is_inexact = error.code in ("InvalidDuplicateRow", "InvalidInput")
                if is_inexact and not error.early and step.stamp.version < VERSION_EXACT_TEXTS:
                    error = StorageError("InvalidInput", early=False)
                _note_refused(step, head, EntityGroupTransaction)
                # The error of the 101st operation has the index 99, as recorded (wire 7.3).
                error.operation_index = min(index, limits.CHANGE_SET_OPERATIONS_MAX - 1)
                raise error from None
    finally:
        turn.end()


async def _query(step: Authenticated, part: BatchPart, form: Form) -> bytes:
    """The answer to a lone query; an error has the index of this only operation (wire 7.3)."""
    failure: StorageError
    head: DecodedRequest | None = None
    try:
        head = _head(step, part.request, form)
        operation = _operation(step, head, part.body)
        if not isinstance(operation, GetEntity | QueryEntities):
            raise _not_here()
        result = await _execute(step, operation)
        if isinstance(result, EntitiesPage):
            assert isinstance(operation, QueryEntities)
            result = await written_page(operation, result, form, step.means.turns)
        answer = encode_result(operation, result, form)
    except StorageError as error:
        failure = error
        _note_refused(step, head, None)
    else:
        return format_part(answer, part.content_id)
    step.record.failure = failure
    failure = await error_to_answer(failure, step)
    answer = encode_error(failure, form, step.stamp, step.means.clock(), 0)
    return format_part(answer, part.content_id)


async def _execute(step: Authenticated, operation: Operation) -> Result:
    step.record.operation = operation
    result = await step.means.service.execute(step.found.account, operation)
    step.record.result = result
    return result


def _note_refused(
    step: Authenticated, head: DecodedRequest | None, asked: type[Operation] | None
) -> None:
    """Note what a part asked for, if it was refused before its operation was known."""
    record = step.record
    if head is None or record.operation is not None:
        return
    asked = asked or operation_asked(head.method, head.address, NO_PARAMETERS, head.raw)
    record.asked = "" if asked is None else asked.__name__
    if head.address.table:
        record.refused = RefusedTable(head.address.table, is_found=False)


def _not_here() -> StorageError:
    """The error of a query among changes, or of a part that is not about entities (wire 7.1)."""
    return StorageError("InvalidInput")
