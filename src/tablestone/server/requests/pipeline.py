"""The steps of a request, in the order in which errors win (errors.PRECEDENCE).

`Pipeline.answer` takes a request and always returns a response: the service's own error for a fault of the request, and
`InternalError` for a fault of the server, with a traceback in the log. The parts of a batch take the same steps from
the resource on.
"""

import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Hashable, Iterator
from itertools import count
from typing import Final, Literal, NamedTuple

from tablestone import limits
from tablestone.accounts.identities import Identities
from tablestone.auth.account import Account
from tablestone.auth.authenticate import PendingCaller, PresentedToken, authenticate
from tablestone.auth.permissions import OWNER, Caller
from tablestone.auth.roles import RoleHolder
from tablestone.auth.shared_access_signature import (
    VERSION_OF_TABLE_SAS,
    AccountSas,
    DelegatedTableSas,
    TableSas,
    TableSasOfPolicy,
)
from tablestone.clock import Clock, monotonic_seconds
from tablestone.cooperative_scheduling import Turns
from tablestone.engines import request_time
from tablestone.engines.contract import EngineBusy, EngineDamaged, EngineUnavailable, OutcomeUnknown
from tablestone.model.errors import RETRY_AFTER, StorageError, unknown_comp
from tablestone.model.operations import (
    ChangesFound,
    EntitiesPage,
    GetEntity,
    GetServiceStats,
    GetUserDelegationKey,
    Operation,
    QueryEntities,
    ReadAccountChanges,
    ReadTableChanges,
    Result,
)
from tablestone.model.service_properties import CorsRule
from tablestone.server.requests.account_address import Addresses, FoundAccount
from tablestone.server.requests.batch import BatchCollector
from tablestone.server.requests.cors import add_cors_headers, answer_preflight
from tablestone.server.requests.page_writing import answer_page
from tablestone.tables.cached_rows import NOT_KEPT
from tablestone.tables.service import TableService
from tablestone.telemetry.refused_callers import RefusedCallers
from tablestone.telemetry.request_record import BATCH, TOOL_AGENTS, RefusedTable, RequestRecord
from tablestone.wire.address import (
    NO_PARAMETERS,
    Address,
    AddressKind,
    Parameters,
    parse_query_string,
    parse_resource,
    readable_parameters,
)
from tablestone.wire.changes import (
    decode_changes,
    is_changes_request,
    other_parameters,
    respond_with_changes,
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
    respond,
    respond_at_front_door,
)
from tablestone.wire.messages import Answer, Headers, RawRequest, RawResponse
from tablestone.wire.negotiate import negotiate
from tablestone.wire.service_resources import (
    decode_service_operation,
    is_service_request,
    respond_on_service,
    respond_with_service_error,
    service_operation_asked,
)
from tablestone.wire.versions import VERSION_UNNAMED, VERSIONS, ServedVersions, UnknownVersions

log = logging.getLogger("tablestone")

ReadBody = Callable[[], Awaitable[bytes]]
"""Reads the request's body; raises `StorageError` if it is too large or does not arrive."""

_BODILESS = frozenset(("GET", "HEAD", "DELETE"))
_READS = frozenset(("GET", "HEAD"))
"""Methods that the secondary answers (wire 1.1). Whether a batch only reads, its collector finds out."""


class Authenticated(NamedTuple):
    """A request after authentication: the caller is known, the operation is not known yet."""

    request: RawRequest
    found: FoundAccount
    parameters: Parameters
    caller: Caller
    form: Form
    stamp: Stamp
    read_body: ReadBody
    record: RequestRecord


class Pipeline:
    """The steps of a request. `unknown_versions` says which are served. `refused` is told of requests that fail."""

    def __init__(
        self,
        service: TableService,
        addresses: Addresses,
        identities: Identities,
        clock: Clock,
        *,
        https_only: bool = False,
        unknown_versions: UnknownVersions = UnknownVersions.LATER,
        refused: RefusedCallers | None = None,
    ) -> None:
        self._service = service
        self._properties = service.properties
        self._identities = identities
        self._https_only = https_only
        self._versions = ServedVersions(unknown_versions)
        self._addresses = addresses
        self._clock = clock
        self._request_ids = request_ids()
        self._turns = Turns(monotonic_seconds)
        self._refused = refused or RefusedCallers(monotonic_seconds)

    async def answer(
        self, request: RawRequest, read_body: ReadBody, record: RequestRecord
    ) -> RawResponse:
        """The response to a request; never raises. `record` notes what the request was."""
        request_time.begin()
        client_request_id = request.headers.get(b"x-ms-client-request-id")
        if client_request_id and len(client_request_id) > limits.CLIENT_REQUEST_ID_LENGTH_MAX:
            client_request_id = None
        request_id = next(self._request_ids)
        details = record.details
        if details is not None:
            details.request_id, details.client_request_id = request_id, client_request_id
        version = account = ""
        answer_form: Form | None = None
        speaks_xml = False
        cors_rules: tuple[CorsRule, ...] = ()
        found: FoundAccount | None = None
        parameters = NO_PARAMETERS
        try:
            parameters, repeated, unreadable = _read_parameters(request.query_string)
            host = request.headers.get(b"host", b"")
            found = await self._addresses.find(request.raw_path, host)
            account = record.account = found.account.name
            properties = self._properties.kept(account)
            if properties is NOT_KEPT:
                properties = await self._properties.get(account)
            if properties is not None:
                # From here on, scripts of other origins may read the errors too (auth 8.4).
                cors_rules = properties.cors
            _require_sound(request, https_only=self._https_only)
            if request.method == "OPTIONS":
                unversioned = Stamp(request_id, client_request_id, version)
                return answer_preflight(cors_rules, request, unversioned)
            version = version_of(request, parameters, self._versions)
            stamp = Stamp(request_id, client_request_id, version)
            now = self._clock()
            caller = authenticate(
                request, found.account, parameters, version, now, repeated, self._versions
            )
            if caller is not OWNER and isinstance(caller, PendingCaller):
                caller = await self._completed(caller, request, found.account, now)
            if details is not None:
                details.caller = _caller_kind(caller, request)
                details.authenticated_at = monotonic_seconds()
            answer_form = _form(request, found, parameters, version, now)
            step = Authenticated(
                request, found, parameters, caller, answer_form, stamp, read_body, record
            )
            speaks_xml = bool(parameters) and is_service_request(parameters)
            if request.raw_path.startswith(b"//") and b"authorization" not in request.headers:
                # Only in host style can a path begin so: in path style it begins with the account (wire 1.2).
                raise StorageError("InvalidUri", at_front_door=True)  # noqa: TRY301
            if unreadable is not None:  # only an authenticated caller gets this error
                raise unreadable  # noqa: TRY301 - an answer like the parse errors of the next steps
            if speaks_xml:
                response = await self._carry_out_on_service(step)
            else:
                response = respond(await self._carry_out(step), stamp)
            if cors_rules:
                add_cors_headers(cors_rules, request, response)
        except StorageError as error:
            failure = self._noted(error, request.client, account, request_id)
        except Exception as fault:  # noqa: BLE001 - every request gets an answer
            failure = _failure_of(fault, request_id, request.method)
        else:
            return response
        _note_failure(record, failure, found, request, parameters)
        form: Form | Literal["xml"] | None = "xml" if speaks_xml else answer_form
        stamp = Stamp(request_id, client_request_id, version)
        response = _respond_with_error(failure, request, form, stamp, self._clock())
        if cors_rules:
            add_cors_headers(cors_rules, request, response)
        return response

    async def _completed(
        self, caller: PendingCaller, request: RawRequest, account: Account, now: int
    ) -> Caller:
        """The caller, by the policies, keys and roles of this moment (auth 3.9, 3.11, 4)."""
        if isinstance(caller, PresentedToken):
            return await self._identities.caller(caller, account.name, now)
        if isinstance(caller, TableSasOfPolicy):
            identifiers = await self._service.signed_identifiers(account, caller.table)
            return caller.completed(identifiers, request, now)
        secret = await self._identities.delegation_secret()
        assignments = await self._identities.assignments(account.name)
        return caller.completed(secret, assignments, request, now)

    async def _carry_out(self, step: Authenticated) -> Answer:
        """The steps from the resource on: decode the operation of an authenticated request, and answer it."""
        request, found, parameters, caller, answer_form, _, read_body, record = step
        method = request.method
        asked: Operation | StorageError
        address: Address | None = None
        try:
            address = parse_resource(found.resource, found.account.name)
            if method != "GET" or b"x-http-method" in request.headers:
                method = effective_method(request)
            if address.kind is AddressKind.BATCH:
                return await self._carry_out_batch(step, method)
            _require_writable(method, found)
            body = b"" if method in _BODILESS else await read_body()
            require_answerable(method, parameters, answer_form.negotiated)
            decoded = DecodedRequest(request, address, parameters, body, step.stamp.version)
            asked = record.operation = decode_operation(method, decoded)
        except StorageError as error:
            asked = error  # nothing is awaited inside an `except`: decision 7
        if isinstance(asked, StorageError):
            if asked.table is not None and caller is OWNER:
                await self._service.catalog.require(found.account, asked.table)
                record.refused = RefusedTable(asked.table, is_found=True)
            raise asked
        operation = asked if caller is OWNER else caller.permit(asked)
        result = await self._service.execute(found.account, operation)
        if not isinstance(operation, GetEntity):
            record.result = result  # do not hold the entity while its answer is built
        if isinstance(result, EntitiesPage):
            assert isinstance(operation, QueryEntities)
            record.from_tools = request.headers.get(b"user-agent", b"").startswith(TOOL_AGENTS)
            return await answer_page(operation, result, answer_form, self._turns)
        return encode_result(operation, result, answer_form)

    async def _carry_out_batch(self, step: Authenticated, method: str) -> Answer:
        if method != "POST":
            raise StorageError("MethodNotAllowed", early=True)
        step.record.is_batch = True
        body = await step.read_body()
        collector = BatchCollector(
            self._service,
            step.found,
            step.caller,
            step.form,
            step.stamp,
            self._clock,
            self._turns,
            step.record,
        )
        return await collector.answer(step.request, body)

    async def _carry_out_on_service(self, step: Authenticated) -> RawResponse:
        """The same steps for a `ServiceOperation`, whose answer is XML, or JSON for our additions."""
        request, found, parameters, caller, _, stamp, read_body, record = step
        address = parse_resource(found.resource, found.account.name)
        method = effective_method(request)
        _require_writable(method, found)
        body = b"" if method in _BODILESS else await read_body()
        decoded = DecodedRequest(request, address, parameters, body, stamp.version)
        if (
            is_changes_request(parameters)
            and self._service.feeds.are_kept
            and not found.is_secondary
        ):
            reading = record.operation = decode_changes(method, decoded)
            page = record.result = await self._service.execute(
                found.account, caller.permit(reading)
            )
            assert isinstance(reading, ReadTableChanges | ReadAccountChanges)
            assert isinstance(page, ChangesFound)
            who = _who(request, found.account, caller)
            return respond_with_changes(reading, page, stamp, who)
        comp = parameters.get("comp")
        if (comp == "expiry" and caller is not OWNER) or (
            comp == "indexes" and not await self._service.has_indexes(found.account, address.table)
        ):
            raise unknown_comp()
        asked = record.operation = decode_service_operation(method, decoded)
        operation = caller.permit(asked)
        if isinstance(operation, GetServiceStats) and not found.is_secondary and not found.prefix:
            # In path style, an SDK can only ask the primary. In host style, it can ask the secondary (auth 9).
            raise StorageError("InvalidQueryParameterValue", early=True)
        result: Result
        if isinstance(operation, GetUserDelegationKey):
            result = await self._identities.user_delegation_key(
                found.account.identity, caller, operation, stamp.version, self._clock()
            )
        else:
            result = await self._service.execute(found.account, operation)
        return respond_on_service(operation, result, stamp)

    def _noted(
        self, error: StorageError, client: str, account: str, request_id: str
    ) -> StorageError:
        """Log the error and note its caller; returns it, a 401 with a challenge."""
        if error.status == 401:
            error.headers = (self._identities.challenge,)
        _log_reason(error, request_id)
        self._refused.note(client, account, request_id, error)
        return error

    def refusal(self, headers: Headers, reason: str, record: RequestRecord) -> RawResponse:
        """The front door's answer to a request beyond a limit, which is not looked at (wire 8.3)."""
        client_request_id = headers.get(b"x-ms-client-request-id", b"")
        is_echoed = 0 < len(client_request_id) <= limits.CLIENT_REQUEST_ID_LENGTH_MAX
        stamp = Stamp(next(self._request_ids), client_request_id if is_echoed else None, "")
        accept = headers.get(b"accept", b"")
        busy = StorageError("ServerBusy", reason=reason, headers=RETRY_AFTER)
        record.failure = busy
        if record.details is not None:
            record.details.request_id = stamp.request_id
        return respond_at_front_door(busy, accept, stamp, self._clock())


def request_ids() -> Iterator[str]:
    """Lower-case GUIDs as the service writes them: random per server, counted per request (wire 2.2)."""
    start = uuid.uuid4().hex
    prefix = f"{start[:8]}-{start[8:12]}-{start[12:16]}-{start[16:20]}-"
    for number in count(1):
        yield f"{prefix}{number:012x}"


_NONE: Final[frozenset[str]] = frozenset()


def _read_parameters(raw: bytes) -> tuple[Parameters, frozenset[str], StorageError | None]:
    """The parameters, the names that occur twice, and the error of a query string that cannot be read, or None."""
    try:
        return parse_query_string(raw), _NONE, None
    except StorageError as error:
        return *readable_parameters(raw), error


def _require_sound(request: RawRequest, *, https_only: bool) -> None:
    """Raise for HTTP if HTTPS is required, for headers that contradict each other, and for a missing Host."""
    if https_only and request.scheme != "https":
        raise StorageError("AccountRequiresHttps")  # wire 1.1
    if not request.headers.get(b"host"):  # also without credentials (RFC 9112 3.2)
        raise StorageError("HostInformationNotPresent")
    if request.duplicated is not None:
        raise request.duplicated


def version_of(request: RawRequest, parameters: Parameters, versions: ServedVersions) -> str:
    """The known version whose rules hold for the request; `VERSION_UNNAMED` if it names none (wire 10.2)."""
    version = request.text(b"x-ms-version")
    if "sig" in parameters and b"authorization" not in request.headers:
        signed = parameters.get("sv")
        if signed == VERSION_OF_TABLE_SAS:
            return signed
        version = parameters.get("api-version") or (signed if version is None else version)
    elif "api-version" in parameters:
        if version is not None:
            raise StorageError("MultipleVersionsSpecified")
        version = parameters["api-version"]
    if version is None:
        return VERSION_UNNAMED
    if version in VERSIONS:
        return version
    known = versions.rules_for(version.strip())  # white space is no part of a value (RFC 9110, 5.5)
    if known is None:
        raise StorageError("InvalidHeaderValue", at_front_door=True)
    return known


_CALLER_KINDS: Final[dict[type, str]] = {
    AccountSas: "account-sas",
    TableSas: "table-sas",
    DelegatedTableSas: "user-delegation-sas",
    RoleHolder: "token",
}


def _caller_kind(caller: Caller, request: RawRequest) -> str:
    """The kind of an authenticated caller. A key of the account has two, by the scheme in the request."""
    if caller is not OWNER:
        return _CALLER_KINDS[type(caller)]
    is_lite = request.headers.get(b"authorization", b"")[:13].lower() == b"sharedkeylite"
    return "shared-key-lite" if is_lite else "shared-key"


def _who(request: RawRequest, account: Account, caller: Caller) -> Hashable:
    """Equal for two requests if the same keys, policies, roles and times decide on them.

    For the owner only the keys count, because each request has a signature of its own.
    """
    keys = tuple([key.signature(b"") for key in account.keys])
    if caller is OWNER:
        return account.identity, account.incarnation, keys
    given = tuple(other_parameters(request.query_string, (b"since", b"wait")))
    return account.identity, account.incarnation, keys, request.text(b"authorization"), given


def _form(
    request: RawRequest, found: FoundAccount, parameters: Parameters, version: str, now: int
) -> Form:
    host = request.headers[b"host"]
    form = form_for(
        f"{request.scheme}://{host.decode('latin-1')}/{found.prefix}",
        found.account.name,
        negotiate(request.headers, parameters, version),
    )
    return form if form.dated is None else form.at(now)


def _require_writable(method: str, found: FoundAccount) -> None:
    """Raise for a write at the secondary (wire 1.1)."""
    if found.is_secondary and method not in _READS:
        raise StorageError("InsufficientAccountPermissions")


def _failure_of(fault: Exception, request_id: str, method: str) -> StorageError:
    """The answer to a fault that is not the client's. The log has the details."""
    if isinstance(fault, EngineDamaged):
        log.error(
            "request %s met damaged storage: run tablestone check", request_id, exc_info=fault
        )
        return StorageError("InternalError")
    if isinstance(fault, EngineUnavailable):
        log.warning("storage cannot answer request %s: %s", request_id, fault)
        headers = RETRY_AFTER if isinstance(fault, EngineBusy) else ()
        return StorageError("ServerBusy", reason=f"storage cannot answer: {fault}", headers=headers)
    if isinstance(fault, OutcomeUnknown):
        log.warning("it is not known whether request %s was carried out: %s", request_id, fault)
        return StorageError("OperationTimedOut")
    # A bug of Tablestone: the client gets the request id, which is in the log too.
    log.error("request %s failed: %s", request_id, method, exc_info=fault)
    return StorageError("InternalError")


def _log_reason(error: StorageError, request_id: str) -> None:
    """Log why the service refuses, with the part of the request that it is about, at the debug level."""
    if error.reason is None or not log.isEnabledFor(logging.DEBUG):
        return
    reason = error.reason if error.detail is None else f"{error.reason}: {error.detail}"
    log.debug("request %s: %s: %s", request_id, error.code, without_signatures(reason))


_ENCODED_QUERY: Final = re.compile(r"%(?:25)*3f.*", re.IGNORECASE | re.DOTALL)
_SIGNATURE: Final = re.compile(r"(sig(?:=|%(?:25)*3d))[^&\s'\"]+", re.IGNORECASE)


def loggable_path(raw_path: bytes) -> str:
    """A path up to an encoded question mark: the client meant the rest as a query string."""
    return without_signatures(_ENCODED_QUERY.sub("%3F...", raw_path.decode("latin-1")))


def without_signatures(text: str) -> str:
    """A text without the values of `sig` parameters of a URL."""
    return _SIGNATURE.sub(r"\1...", text)


def _note_failure(
    record: RequestRecord,
    failure: StorageError,
    found: FoundAccount | None,
    request: RawRequest,
    parameters: Parameters,
) -> None:
    """Note the error and, if the request was refused before it was decoded, the table and operation it asked for."""
    record.failure = failure
    if found is None or record.operation is not None:
        return
    try:
        address = parse_resource(found.resource, found.account.name)
        if address.table and record.refused is None:
            record.refused = RefusedTable(address.table, is_found=False)
        method = effective_method(request)
    except StorageError:
        return
    asked = operation_asked(method, address, request)
    if is_service_request(parameters):
        asked = service_operation_asked(method, address, parameters)
    is_batch = address.kind is AddressKind.BATCH and method == "POST"
    record.asked = BATCH if is_batch else "" if asked is None else asked.__name__


def _respond_with_error(
    failure: StorageError,
    request: RawRequest,
    form: Form | Literal["xml"] | None,
    stamp: Stamp,
    now: int,
) -> RawResponse:
    """An error in the form that the client asked for, or in the front door's if that is not known (wire 8.3)."""
    if form is None or failure.at_front_door:
        speaks_xml = form == "xml" and failure.code != "RequestBodyTooLarge"
        accept = b"" if speaks_xml else request.headers.get(b"accept", b"")
        return respond_at_front_door(failure, accept, stamp, now)
    if form == "xml":
        return respond_with_service_error(failure, request, stamp, now)
    return respond(encode_error(failure, form, stamp, now), stamp)
