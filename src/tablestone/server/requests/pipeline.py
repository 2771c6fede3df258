"""The steps of a request, in the order in which errors win (errors.PRECEDENCE).

`Pipeline.answer` takes a request and always returns a response: the service's own error for a fault of the request, and
`InternalError` for a fault of the server, with a traceback in the log. The parts of a batch take the same steps from
the resource on.
"""

import ipaddress
import logging
import re
import uuid
from collections.abc import Hashable, Iterator
from itertools import count
from typing import Final

from tablestone import limits
from tablestone.accounts.identities import Identities
from tablestone.auth.account import Account
from tablestone.auth.authenticate import PendingCaller, PresentedToken, authenticate, is_signed_with
from tablestone.auth.permissions import ACL_WITHOUT_KEYS, OWNER, WITHOUT_KEYS, Caller
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
    EXAMINED_HEADER,
    EntitiesPage,
    GetEntity,
    GetServiceStats,
    GetUserDelegationKey,
    Operation,
    QueryEntities,
    Result,
)
from tablestone.model.service_properties import CorsRule
from tablestone.server.requests.account_address import Addresses, FoundAccount
from tablestone.server.requests.authenticated import Authenticated, Means, ReadBody, error_to_answer
from tablestone.server.requests.batch import answer_batch
from tablestone.server.requests.cors import add_cors_headers, answer_preflight
from tablestone.server.requests.page_writing import written_page
from tablestone.tables.cached_rows import NOT_KEPT
from tablestone.tables.service import TableService
from tablestone.telemetry.refused_callers import RefusedCallers
from tablestone.telemetry.request_record import (
    BATCH,
    OWN_AGENTS,
    TOOL_AGENTS,
    RefusedTable,
    RequestRecord,
)
from tablestone.wire.address import (
    NO_PARAMETERS,
    Address,
    AddressKind,
    Parameters,
    is_service_request,
    parse_query_string,
    parse_resource,
    readable_parameters,
)
from tablestone.wire.changes import other_parameters
from tablestone.wire.decode import DecodedRequest, effective_method, require_answerable
from tablestone.wire.encode import (
    Form,
    Stamp,
    encode_error,
    form_for,
    respond,
    respond_at_front_door,
)
from tablestone.wire.messages import Headers, RawRequest, RawResponse
from tablestone.wire.negotiate import negotiate
from tablestone.wire.routes import decode_operation, has_own_form, operation_asked
from tablestone.wire.service_resources import respond_with_service_error
from tablestone.wire.versions import VERSION_UNNAMED, VERSIONS, ServedVersions, UnknownVersions

log = logging.getLogger("tablestone")

_EXAMINED: Final = EXAMINED_HEADER.encode("ascii")
_EXAMINES: Final = (QueryEntities, GetEntity)
"""Operations whose answers say how many entities they examined, if the request wants to know."""
_BODILESS = frozenset(("GET", "HEAD", "DELETE"))
_READS = frozenset(("GET", "HEAD"))
"""Methods that the secondary answers (wire 1.1). Whether a batch only reads, its collector finds out."""


AWAY_SECONDS: Final = 5.0
"""Between two warnings that say the same about storage."""
QUIET_TEXTS_MAX: Final = 100


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
        remote_indexes: bool = False,
        query_extensions: bool = False,
        acl_by_roles: bool = False,
        explorer_key: str | None = None,
        unknown_versions: UnknownVersions = UnknownVersions.LATER,
        refused: RefusedCallers | None = None,
    ) -> None:
        self._service = service
        self._properties = service.properties
        self._identities = identities
        self._https_only = https_only
        self._remote_indexes = remote_indexes
        self._without_keys = WITHOUT_KEYS | (ACL_WITHOUT_KEYS if acl_by_roles else {})
        self._explorer_key = explorer_key
        self._versions = ServedVersions(unknown_versions)
        self._addresses = addresses
        self._clock = clock
        self._request_ids = request_ids()
        self._quiet: dict[str, tuple[float, int]] = {}
        self._means = Means(service, clock, Turns(monotonic_seconds), query_extensions)
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
        agent = request.headers.get(b"user-agent", b"")
        record.is_ours = agent.startswith(OWN_AGENTS)
        record.from_tools = record.is_ours and agent.startswith(TOOL_AGENTS)
        version = account = ""
        answer_form: Form | None = None
        speaks_xml = False
        cors_rules: tuple[CorsRule, ...] = ()
        found: FoundAccount | None = None
        parameters = NO_PARAMETERS
        repeated: frozenset[str] = frozenset()
        """The names of parameters that occur twice."""
        unreadable: StorageError | None = None
        """The error of a query string that cannot be read."""
        try:
            try:
                parameters = parse_query_string(request.query_string)
            except StorageError as error:
                unreadable = error
                parameters, repeated = readable_parameters(request.query_string)
            host = request.headers.get(b"host", b"")
            found = await self._addresses.find(request.raw_path, host)
            account = record.account = found.account.name
            is_explorer = record.is_ours and self._is_explorer(request, found.account, parameters)
            allowed = found.account.allowed
            if allowed is not None and not is_explorer and not allowed.hold(request.client):
                reason = "no range of the account holds the address"
                raise StorageError("AuthorizationFailure", reason=reason, by_rule=True)  # noqa: TRY301 - auth 11
            properties = self._properties.kept(account)
            if properties is NOT_KEPT:
                properties = await self._properties.get(account)
            if properties is not None:
                # From here on, scripts of other origins may read the errors too (auth 8.4).
                cors_rules = properties.cors
            if self._https_only and request.scheme != "https":
                raise StorageError("AccountRequiresHttps")  # noqa: TRY301 - wire 1.1
            if not host:  # also without credentials (RFC 9112 3.2)
                raise StorageError("HostInformationNotPresent")  # noqa: TRY301
            if request.duplicated is not None:
                raise request.duplicated  # noqa: TRY301
            if request.method == "OPTIONS":
                stamp = Stamp(request_id, client_request_id, version)
                return answer_preflight(cors_rules, request, stamp)
            version = version_of(request, parameters, self._versions)
            stamp = Stamp(request_id, client_request_id, version)
            now = self._clock()
            caller: Caller | PendingCaller = OWNER
            if not is_explorer:
                caller = authenticate(
                    request, found.account, parameters, version, now, repeated, self._versions
                )
            if caller is not OWNER and isinstance(caller, PendingCaller):
                caller = await self._completed(caller, request, found.account, now)
            if details is not None:
                details.caller = "explorer" if is_explorer else _caller_kind(caller, request)
                details.authenticated_at = monotonic_seconds()
            base = f"{request.scheme}://{host.decode('latin-1')}/{found.prefix}"
            negotiated = negotiate(request.headers, parameters, version)
            answer_form = form_for(base, account, negotiated).at(now)
            step = Authenticated(
                request,
                found,
                parameters,
                caller,
                answer_form,
                stamp,
                read_body,
                record,
                self._means,
            )
            speaks_xml = bool(parameters) and is_service_request(parameters)
            if request.raw_path.startswith(b"//") and b"authorization" not in request.headers:
                # Only in host style can a path begin so: in path style it begins with the account (wire 1.2).
                raise StorageError("InvalidUri", at_front_door=True)  # noqa: TRY301
            if unreadable is not None:  # only an authenticated caller gets this error
                raise unreadable  # noqa: TRY301 - an answer like the parse errors of the next steps
            response = await self._carry_out(step, is_odata=not speaks_xml)
            if cors_rules:
                add_cors_headers(cors_rules, request, response)
        except StorageError as error:
            if error.status == 401:
                error.headers = (self._identities.challenge,)
            _log_reason(error, request_id)
            self._refused.note(request.client, account, request_id, error)
            failure = error
        except Exception as fault:  # noqa: BLE001 - every request gets an answer
            failure = _failure_of(fault, request_id, request.method, self._quiet)
        else:
            return response
        _note_failure(record, failure, found, request, parameters)
        stamp = Stamp(request_id, client_request_id, version)
        response = _respond_with_error(
            failure, request, answer_form, stamp, self._clock(), speaks_xml=speaks_xml
        )
        if cors_rules:
            add_cors_headers(cors_rules, request, response)
        return response

    def _is_explorer(self, request: RawRequest, account: Account, parameters: Parameters) -> bool:
        """Whether the explorer beside this server sent the request: only its processes know the key."""
        key = self._explorer_key
        return key is not None and is_signed_with(key, request, account, parameters, self._clock())

    async def _completed(
        self, caller: PendingCaller, request: RawRequest, account: Account, now: int
    ) -> Caller:
        """The caller, by the policies, keys and roles of this moment (auth 3.9, 3.11, 4)."""
        if isinstance(caller, PresentedToken):
            holder = await self._identities.caller(caller, account.name, now)
            if not account.shared_key:
                holder.allow_without_keys(self._without_keys)
            return holder
        if isinstance(caller, TableSasOfPolicy):
            identifiers = await self._service.signed_identifiers(account, caller.table)
            return caller.completed(identifiers, request, now)
        secret = await self._identities.delegation_secret()
        assignments = await self._identities.assignments(account.name)
        return caller.completed(secret, assignments, request, now)

    async def _carry_out(self, step: Authenticated, *, is_odata: bool) -> RawResponse:
        """The steps from the resource on: decode the operation of an authenticated request, and answer it.

        A request with `comp` or `restype` is not OData: its answer is XML, or JSON for our additions.
        """
        request, found, parameters, caller, form, stamp, read_body, record, means = step
        method = request.method
        failure: StorageError
        try:
            address = parse_resource(found.resource, found.account.name)
            if method != "GET" or b"x-http-method" in request.headers:
                method = effective_method(request)
            if is_odata and address.kind is AddressKind.BATCH:
                return respond(await answer_batch(step, method), stamp)
            if found.is_secondary and method not in _READS:  # wire 1.1
                raise StorageError("InsufficientAccountPermissions")  # noqa: TRY301
            most = self._service.entity_limits
            body_max = most.body_bytes if is_odata else limits.BODY_BYTES_MAX
            body = b"" if method in _BODILESS else await read_body(body_max)
            decoded = DecodedRequest(
                *(request, method, address, parameters, body, stamp.version),
                extended=means.extended,
                entity_limits=most,
            )
            if not is_odata:
                if not await self._is_there(step, address):
                    raise unknown_comp()
            elif not decoded.is_count:  # that is a text, which every form can write
                require_answerable(method, form.negotiated)
            route, asked = decode_operation(decoded)
        except StorageError as error:
            failure = error  # nothing is awaited inside an `except`: decision 7
        else:
            record.operation = asked
            operation = asked if caller is OWNER else caller.permit(asked)
            if is_odata:
                result = await self._service.execute(found.account, operation)
            else:
                result = await self._execute_on_service(step, operation)
            if isinstance(operation, QueryEntities):
                assert isinstance(result, EntitiesPage)
                record.result = result
                result = await written_page(operation, result, form, means.turns)
            elif not isinstance(operation, GetEntity):
                record.result = result  # do not hold the entity while its answer is built
            response = route.respond(operation, result, form, stamp)
            if _EXAMINED in request.headers and route.asked in _EXAMINES:
                found_page = record.result
                examined = found_page.examined if isinstance(found_page, EntitiesPage) else 1
                response.headers.append((_EXAMINED, b"%d" % examined))
            if response.wait is not None:
                response.wait = response.wait._replace(caller=_who(request, found.account, caller))
            return response
        raise await error_to_answer(failure, step) if is_odata else failure

    async def _is_there(self, step: Authenticated, address: Address) -> bool:
        """Whether a resource that only we have is there for the caller. If not, it is an unknown one of the service."""
        comp, found = step.parameters.get("comp"), step.found
        if comp == "changes":
            return self._service.feeds.are_kept and not found.is_secondary
        caller = step.caller
        is_owner = caller is OWNER or (isinstance(caller, RoleHolder) and bool(caller.without_keys))
        if comp in ("expiry", "indexes") and is_owner and has_own_form(step.request):
            self._require_safe(step.request, step.caller)
            return not found.is_secondary and (comp == "expiry" or self._service.keeps_indexes)
        if comp == "expiry":
            return is_owner
        return comp != "indexes" or await self._service.has_indexes(found.account, address.table)

    def _require_safe(self, request: RawRequest, caller: Caller) -> None:
        """Refuse a request whose method nobody has signed, or that somebody on the way could have changed.

        SharedKey signs `comp` and the method, but neither the body nor another parameter. Tokens come over https only.
        """
        if caller is OWNER and _caller_kind(caller, request) != "shared-key":
            raise StorageError("SharedKeyRequired")
        is_local = request.is_local or _is_loopback(request.client)
        if request.scheme != "https" and not is_local and not self._remote_indexes:
            raise StorageError("SecureConnectionRequired")

    async def _execute_on_service(self, step: Authenticated, operation: Operation) -> Result:
        found = step.found
        if isinstance(operation, GetServiceStats) and not found.is_secondary and not found.prefix:
            # In path style, an SDK can only ask the primary. In host style, it can ask the secondary (auth 9).
            raise StorageError("InvalidQueryParameterValue")
        if isinstance(operation, GetUserDelegationKey):
            return await self._identities.user_delegation_key(
                found.account.identity, step.caller, operation, step.stamp.version, self._clock()
            )
        return await self._service.execute(found.account, operation)

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


def _failure_of(
    fault: Exception, request_id: str, method: str, quiet: dict[str, tuple[float, int]]
) -> StorageError:
    """The answer to a fault that is not the client's. The log has the details."""
    if isinstance(fault, EngineDamaged):
        log.error(
            "request %s met damaged storage: run tablestone check", request_id, exc_info=fault
        )
        return StorageError("InternalError")
    if isinstance(fault, EngineUnavailable):
        _warn_of_storage(str(fault), request_id, quiet)
        headers = RETRY_AFTER if isinstance(fault, EngineBusy) else ()
        return StorageError("ServerBusy", reason=f"storage cannot answer: {fault}", headers=headers)
    if isinstance(fault, OutcomeUnknown):
        log.warning("it is not known whether request %s was carried out: %s", request_id, fault)
        return StorageError("OperationTimedOut")
    # A bug of Tablestone: the client gets the request id, which is in the log too.
    log.error("request %s failed: %s", request_id, method, exc_info=fault)
    return StorageError("InternalError")


def _warn_of_storage(why: str, request_id: str, quiet: dict[str, tuple[float, int]]) -> None:
    """Log why storage cannot answer, and leave out what says the same soon after: it is the same for every request.

    `quiet` has, for each text, until when it is left out, and how often it was.
    """
    now = monotonic_seconds()
    until, left_out = quiet.get(why, (now, 0))
    if now < until:
        quiet[why] = until, left_out + 1
        return
    if len(quiet) >= QUIET_TEXTS_MAX:
        quiet.clear()
    quiet[why] = now + AWAY_SECONDS, 0
    before = f" ({left_out:,} more requests since the last such line)" if left_out else ""
    log.warning("storage cannot answer request %s: %s%s", request_id, why, before)


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


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


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
    asked = operation_asked(method, address, parameters, request)
    is_batch = address.kind is AddressKind.BATCH and method == "POST"
    record.asked = BATCH if is_batch else "" if asked is None else asked.__name__


def _respond_with_error(
    failure: StorageError,
    request: RawRequest,
    form: Form | None,
    stamp: Stamp,
    now: int,
    *,
    speaks_xml: bool,
) -> RawResponse:
    """An error in the form that the client asked for, or in the front door's if that is not known (wire 8.3)."""
    if form is None or failure.at_front_door:
        is_xml = speaks_xml and failure.code != "RequestBodyTooLarge"
        accept = b"" if is_xml else request.headers.get(b"accept", b"")
        return respond_at_front_door(failure, accept, stamp, now)
    if speaks_xml:
        return respond_with_service_error(failure, request, stamp, now)
    return respond(encode_error(failure, form, stamp, now), stamp)
