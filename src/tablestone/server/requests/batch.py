"""Carrying out a batch: its parts become operations in the same steps as single requests, its answers one envelope.

A change set becomes one entity group transaction; a lone query is simply answered. The outer status is always 202. A
change set that failed is answered with the failing operation's answer alone (wire 7.2, 7.3).
"""

import logging
import uuid
from typing import NamedTuple

from tablestone import limits
from tablestone.auth.permissions import OWNER, Caller
from tablestone.clock import Clock
from tablestone.cooperative_scheduling import Turns
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
from tablestone.server.requests.account_address import FoundAccount
from tablestone.server.requests.page_writing import answer_page
from tablestone.tables.service import TableService
from tablestone.tables.writes import EntityGroup
from tablestone.telemetry.request_record import RefusedTable, RequestRecord
from tablestone.wire.address import (
    NO_PARAMETERS,
    Address,
    Parameters,
    parse_query_string,
    parse_resource,
)
from tablestone.wire.batch import (
    BatchPart,
    format_batch_answer,
    format_part,
    format_unreadable_part,
    parse_batch,
)
from tablestone.wire.decode import (
    DecodedRequest,
    decode_operation,
    effective_method,
    operation_asked,
    require_answerable,
)
from tablestone.wire.encode import (
    Form,
    Stamp,
    encode_error,
    encode_result,
    form_for,
    unreadable_error,
)
from tablestone.wire.messages import Answer, RawRequest
from tablestone.wire.negotiate import AtomForm, negotiate
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


class _Head(NamedTuple):
    """The request of a part, without its body."""

    method: str
    address: Address
    parameters: Parameters


class BatchCollector:
    """Answers one `POST /$batch`. `outer` is the form of the outer request; its URL is the base of the parts' URLs."""

    def __init__(
        self,
        service: TableService,
        found: FoundAccount,
        caller: Caller,
        outer: Form,
        stamp: Stamp,
        clock: Clock,
        turns: Turns,
        record: RequestRecord,
    ) -> None:
        self._service = service
        self._account = found.account
        self._is_secondary = found.is_secondary
        self._caller = caller
        self._outer = outer
        self._stamp = stamp
        self._clock = clock
        self._turns = turns
        self._record = record
        self._prefix = f"/{found.prefix}".encode("ascii")
        # Keyed by the identity of the request object: parts with the same head share one object and its results.
        self._forms: dict[int, Form] = {}
        self._heads: dict[int, _Head] = {}
        self._needs_accept = False

    async def answer(self, request: RawRequest, body: bytes) -> Answer:
        """The outer answer. Raises only for an envelope that cannot be read, and for changes at the secondary."""
        accept = request.headers.get(b"accept", b"").strip()
        self._needs_accept = self._stamp.version == _VERSION_NEEDING_ACCEPT and accept == b"*/*"
        batch = parse_batch(request.headers.get(b"content-type"), body, request)
        if batch.is_change_set and self._is_secondary:
            raise StorageError("InsufficientAccountPermissions")
        parts = [(part, self._part_form(part.request)) for part in batch.parts]
        if batch.is_change_set:
            answers = await self._change_set(parts, ends_unreadable=batch.ends_unreadable)
        elif batch.ends_unreadable:
            answers = [self._unreadable()]
        elif not parts:
            log.warning(
                "request %s is a batch whose body never uses the boundary of its Content-Type: nothing was written",
                self._stamp.request_id,
            )
            answers = []
        else:
            answers = [await self._query(*parts[0])]
        guids = (str(uuid.uuid4()), str(uuid.uuid4()))
        content_type, content = format_batch_answer(answers, guids, change_set=batch.is_change_set)
        return Answer(202, content, content_type)

    def _part_form(self, request: RawRequest) -> Form:
        """The form of a part's answer; a part that cannot be read gets the default form."""
        form = self._forms.get(id(request))
        if form is None:
            try:
                parameters = parse_query_string(request.query_string)
            except StorageError:
                parameters = NO_PARAMETERS
            negotiated = negotiate(request.headers, parameters, self._stamp.version)
            outer = self._outer.negotiated.form
            if negotiated.form is AtomForm.ODATA_3 and outer is AtomForm.ODATA_2:
                # Old clients declare their OData outside only.
                negotiated = negotiated._replace(form=outer)
            shared = form_for(self._outer.base, self._account.name, negotiated)
            form = shared.at(self._clock())
            self._forms[id(request)] = form
        return form

    def _head(self, request: RawRequest, form: Form) -> _Head:
        head = self._heads.get(id(request))
        if head is None:
            method = effective_method(request)
            path = request.raw_path
            own = path.startswith(self._prefix)
            resource = path.removeprefix(self._prefix) if own else path[1:]
            if path + b"/" == self._prefix:  # the account's address alone
                resource = b""
            if self._is_secondary:  # three forms of path address the secondary (auth 1.5)
                resource = resource.removeprefix(self._account.name_bytes + b"/")
            parameters = parse_query_string(request.query_string)
            require_answerable(method, parameters, form.negotiated)
            asks_for_none = self._needs_accept and b"accept" not in request.headers
            if asks_for_none and form.negotiated.refusal == "AtomFormatNotSupported":
                raise StorageError("AtomFormatNotSupported", early=True)
            head = _Head(method, parse_resource(resource, self._account.name), parameters)
            self._heads[id(request)] = head
        return head

    def _operation(self, part: BatchPart, form: Form) -> Operation:
        request = part.request
        method, address, parameters = self._head(request, form)
        decoded = DecodedRequest(
            request, address, parameters, part.body, self._stamp.version, is_part=True
        )
        operation = decode_operation(method, decoded)
        return operation if self._caller is OWNER else self._caller.permit(operation)

    def _unreadable(self) -> bytes:
        return format_unreadable_part(unreadable_error(self._stamp, self._clock()))

    async def _change_set(
        self, parts: list[tuple[BatchPart, Form]], *, ends_unreadable: bool
    ) -> list[bytes]:
        """One answer for each operation, or only that of the operation that failed."""
        group = EntityGroup()
        failure: StorageError
        try:
            await self._collect_all(group, parts)
            if ends_unreadable:
                return [self._unreadable()]
            if not parts:  # some clients commit an empty batch (wire 7.1)
                return []
            first = group.writes[0]
            partition_key = entity_key(first).partition_key
            transaction = EntityGroupTransaction(first.table, partition_key, group.writes)
            outcome = await self._execute(transaction)
        except StorageError as error:
            failure = error  # nothing is awaited inside an `except`: decision 7
        else:
            assert isinstance(outcome, TransactionCommitted)
            return [
                format_part(encode_result(write, result, form), part.content_id)
                for write, result, (part, form) in zip(
                    group.writes, outcome.results, parts, strict=True
                )
            ]
        answered = await self._answered(failure)
        index = 0 if answered.operation_index is None else answered.operation_index
        failed, _ = parts[index]
        # A late error is found at the commit, and has the headers of the last operation (wire 7.3).
        part, form = parts[index if answered.early else -1]
        answer = self._error(answered, index, len(parts), form)
        methods = {failed.request.method, part.request.method}
        if answered.code == "InvalidDuplicateRow" and methods == {"DELETE"}:
            answer.preference_applied = None  # as recorded (wire 7.3)
        return [format_part(answer, part.content_id)]

    async def _collect_all(self, group: EntityGroup, parts: list[tuple[BatchPart, Form]]) -> None:
        turn = self._turns.turn()
        try:
            await turn.begin()
            for part, form in parts:
                if turn.is_over:
                    await turn.give_way()
                self._collect(group, part, form)
        finally:
            turn.end()

    def _collect(self, group: EntityGroup, part: BatchPart, form: Form) -> None:
        """Add a part's write to the group; its errors have the index of the part."""
        index = len(group.writes)
        try:
            operation = self._operation(part, form)
            if not isinstance(operation, EntityWrite):
                raise _not_here()
            group.add(operation)
        except StorageError as error:
            is_inexact = error.code in ("InvalidDuplicateRow", "InvalidInput") and not error.early
            if is_inexact and self._stamp.version < VERSION_EXACT_TEXTS:
                error = StorageError("InvalidInput")
            self._note_refused(part.request, EntityGroupTransaction)
            # The error of the 101st operation has the index 99, as recorded (wire 7.3).
            raise error.at(min(index, limits.CHANGE_SET_OPERATIONS_MAX - 1)) from None

    def _error(self, error: StorageError, index: int, operations: int, form: Form) -> Answer:
        indexed = operations > 1 or error.early or error.code in _INDEXED_ALWAYS
        if error.code == "ServerBusy":  # clients would blame the operation of the index (wire 7.3)
            indexed = False
        return encode_error(error.at(index if indexed else None), form, self._stamp, self._clock())

    async def _query(self, part: BatchPart, form: Form) -> bytes:
        """The answer to a lone query; an error has the index of this only operation (wire 7.3)."""
        failure: StorageError
        try:
            operation = self._operation(part, form)
            if not isinstance(operation, GetEntity | QueryEntities):
                raise _not_here()
            result = await self._execute(operation)
            if isinstance(result, EntitiesPage):
                assert isinstance(operation, QueryEntities)
                answer = await answer_page(operation, result, form, self._turns)
            else:
                answer = encode_result(operation, result, form)
        except StorageError as error:
            failure = error
            self._note_refused(part.request, None)
        else:
            return format_part(answer, part.content_id)
        answered = await self._answered(failure)
        answer = encode_error(answered.at(0), form, self._stamp, self._clock())
        return format_part(answer, part.content_id)

    async def _execute(self, operation: Operation) -> Result:
        self._record.operation = operation
        result = await self._service.execute(self._account, operation)
        self._record.result = result
        return result

    def _note_refused(self, request: RawRequest, asked: type[Operation] | None) -> None:
        """Note what a part asked for, if it was refused before its operation was known."""
        head = self._heads.get(id(request))
        if head is None or self._record.operation is not None:
            return
        asked = asked or operation_asked(head.method, head.address, request)
        self._record.asked = "" if asked is None else asked.__name__
        if head.address.table:
            self._record.refused = RefusedTable(head.address.table, is_found=False)

    async def _answered(self, error: StorageError) -> StorageError:
        """The error to answer: that of a missing table if this error presumes the table, else this one (wire 2.2)."""
        self._record.failure = error
        if error.table is not None and self._caller is OWNER:
            try:
                await self._service.catalog.require(self._account, error.table)
            except StorageError as absent:
                return absent.at(0)
            self._record.refused = RefusedTable(error.table, is_found=True)
        return error


def _not_here() -> StorageError:
    """The error of a query among changes, or of a part that is not about entities (wire 7.1)."""
    return StorageError("InvalidInput", early=True)
