"""A batch carried out: its parts become operations on the same way as lone requests, its answers one envelope.

A change set becomes one entity group transaction; a lone query is simply answered. The outer status is 202 whatever
happened inside; of a change set that failed, only the failing operation's answer is sent (wire 7.2, 7.3).
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from tablestone import limits
from tablestone.auth.callers import OWNER, Caller
from tablestone.clock import Clock
from tablestone.errors import StorageError
from tablestone.operations import (
    EntitiesPage,
    EntityGroupTransaction,
    EntityWrite,
    GetEntity,
    Operation,
    QueryEntities,
    TransactionCommitted,
    entity_key,
)
from tablestone.server.addresses import FoundAccount
from tablestone.server.pages import answer_page
from tablestone.tables.entity_group import EntityGroup
from tablestone.tables.service import TableService
from tablestone.turns import Turns
from tablestone.wire.address import (
    NO_PARAMETERS,
    Address,
    Parameters,
    parse_query_string,
    parse_resource,
)
from tablestone.wire.batch import BatchPart, format_batch_answer, parse_batch
from tablestone.wire.decode import (
    DecodedRequest,
    decode_operation,
    effective_method,
    require_answerable,
)
from tablestone.wire.encode import Answer, Form, Stamp, encode_error, encode_result, form_for
from tablestone.wire.messages import RawRequest
from tablestone.wire.negotiate import negotiate, preference

# Errors that a lone operation of a change set meets when it is carried out have no index before their text, those of
# reading it have one (wire 7.3), and so has the one of a caller who may not (auth 3.7).
_INDEXED_ALWAYS = frozenset(
    (
        *("PropertiesNeedValue", "OutOfRangeInput", "InvalidInput", "TableNotFound"),
        *("AuthenticationFailed", "AuthorizationFailure", "AuthorizationPermissionMismatch"),
        "AuthorizationResourceTypeMismatch",
    )
)


class _Head(NamedTuple):
    """What a part asks for, before its body is looked at."""

    method: str
    address: Address
    parameters: Parameters


class BatchCollector:
    """Answers one `POST /$batch`. `outer` is the form of the outer request: its URL is the base of theirs."""

    def __init__(
        self,
        service: TableService,
        found: FoundAccount,
        caller: Caller,
        outer: Form,
        stamp: Stamp,
        clock: Clock,
        turns: Turns,
    ) -> None:
        self._service = service
        self._account = found.account
        self._is_secondary = found.is_secondary
        self._caller = caller
        self._outer = outer
        self._stamp = stamp
        self._clock = clock
        self._turns = turns
        self._prefix = f"/{found.prefix}".encode("ascii")
        # By the identity of requests: parts with the same head share one, and what follows from it.
        self._forms: dict[int, Form] = {}
        self._heads: dict[int, _Head] = {}

    async def answer(self, request: RawRequest, body: bytes) -> Answer:
        """The outer answer; raises only for an envelope that cannot be read, and for changes asked of the secondary."""
        batch = parse_batch(request.headers.get(b"content-type"), body, request)
        if batch.is_change_set and self._is_secondary:
            raise StorageError("InsufficientAccountPermissions")
        parts = [(part, self._part_form(part.request)) for part in batch.parts]
        if batch.is_change_set:
            answers = await self._change_set(parts)
        else:
            answers = [await self._query(*parts[0])]
        guids = (str(uuid.uuid4()), str(uuid.uuid4()))
        content_type, content = format_batch_answer(answers, guids, change_set=batch.is_change_set)
        return Answer(202, content, content_type)

    def _part_form(self, request: RawRequest) -> Form:
        """How a part wants its answer; a part that cannot be read at all falls back on the defaults."""
        form = self._forms.get(id(request))
        if form is None:
            try:
                parameters = parse_query_string(request.query_string)
            except StorageError:
                parameters = NO_PARAMETERS
            negotiated = negotiate(request.headers, parameters, self._stamp.version)
            prefer = preference(request.headers, self._stamp.version)
            shared = form_for(self._outer.base, self._account.name, negotiated, prefer)
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
            if self._is_secondary:  # which is addressed by any of three paths (auth 1.5)
                resource = resource.removeprefix(self._account.name_bytes + b"/")
            parameters = parse_query_string(request.query_string)
            require_answerable(method, parameters, form.negotiated.refusal)
            head = _Head(method, parse_resource(resource), parameters)
            self._heads[id(request)] = head
        return head

    def _operation(self, part: BatchPart, form: Form) -> Operation:
        request = part.request
        method, address, parameters = self._head(request, form)
        decoded = DecodedRequest(request, address, parameters, part.body, self._stamp.version)
        operation = decode_operation(method, decoded)
        return operation if self._caller is OWNER else self._caller.permit(operation)

    async def _change_set(
        self, parts: list[tuple[BatchPart, Form]]
    ) -> list[tuple[Answer, bytes | None]]:
        """One answer for each operation, or the one of the operation that failed."""
        group = EntityGroup()
        try:
            async with self._turns.turn() as turn:
                for part, form in parts:
                    if turn.is_over:
                        await turn.give_way()
                    self._collect(group, part, form)
            first = group.writes[0]
            partition_key = entity_key(first).partition_key
            transaction = EntityGroupTransaction(first.table, partition_key, group.writes)
            outcome = await self._service.execute(self._account, transaction)
        except StorageError as error:
            index = 0 if error.operation_index is None else error.operation_index
            part, form = parts[index]
            return [(self._error(error, index, len(parts), form), part.content_id)]
        assert isinstance(outcome, TransactionCommitted)
        return [
            (encode_result(write, result, form), part.content_id)
            for write, result, (part, form) in zip(
                group.writes, outcome.results, parts, strict=True
            )
        ]

    def _collect(self, group: EntityGroup, part: BatchPart, form: Form) -> None:
        """Add a part's write to the group; its errors know their index."""
        index = len(group.writes)
        try:
            operation = self._operation(part, form)
            if not isinstance(operation, EntityWrite):
                raise _not_here()
            group.add(operation)
        except StorageError as error:
            # The 101st operation is told as number 99, as recorded (wire 7.3).
            raise error.at(min(index, limits.CHANGE_SET_OPERATIONS_MAX - 1)) from error

    def _error(self, error: StorageError, index: int, operations: int, form: Form) -> Answer:
        indexed = operations > 1 or error.code in _INDEXED_ALWAYS
        return encode_error(error.at(index if indexed else None), form, self._stamp, self._clock())

    async def _query(self, part: BatchPart, form: Form) -> tuple[Answer, bytes | None]:
        """A lone query's answer, its errors with the index of the only operation (wire 7.3)."""
        try:
            operation = self._operation(part, form)
            if not isinstance(operation, GetEntity | QueryEntities):
                raise _not_here()
            result = await self._service.execute(self._account, operation)
            if isinstance(result, EntitiesPage):
                assert isinstance(operation, QueryEntities)
                answer = await answer_page(operation, result, form, self._turns)
            else:
                answer = encode_result(operation, result, form)
        except StorageError as error:
            answer = encode_error(error.at(0), form, self._stamp, self._clock())
        return answer, part.content_id


def _not_here() -> StorageError:
    """A query among changes, or a change outside a change set (wire 7.1)."""
    return StorageError("InvalidInput", early=True)
