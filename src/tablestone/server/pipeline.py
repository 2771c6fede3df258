"""The steps of a request, in the order in which errors win (errors.PRECEDENCE).

`Pipeline.answer` takes a request and gives a response, whatever happens: the service's own error for what is wrong with
the request, and `InternalError` with a traceback in the log for what is wrong with us. Knows no sockets and no ASGI.
A batch is not a second path: its parts take the same steps from the resource on.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Literal, NamedTuple

from tablestone import limits
from tablestone.auth.accounts import Account
from tablestone.auth.authenticate import PresentedToken, Unfinished, authenticate
from tablestone.auth.callers import OWNER, Caller
from tablestone.auth.table_sas import TableSasOfPolicy
from tablestone.clock import Clock, monotonic_seconds
from tablestone.engines.contract import EngineDamaged, EngineUnavailable
from tablestone.errors import StorageError
from tablestone.operations import (
    EntitiesPage,
    GetServiceStats,
    GetUserDelegationKey,
    QueryEntities,
    Result,
)
from tablestone.server.addresses import Addresses, FoundAccount
from tablestone.server.batch import BatchCollector
from tablestone.server.cors import add_cors_headers, answer_preflight
from tablestone.server.identities import Identities
from tablestone.server.logged import without_signatures
from tablestone.server.pages import answer_page
from tablestone.service_properties import CorsRule, ServiceProperties
from tablestone.tables.announced import NOT_KEPT
from tablestone.tables.service import TableService
from tablestone.turns import Turns
from tablestone.wire.address import (
    AddressKind,
    Parameters,
    parse_query_string,
    parse_resource,
    readable_parameters,
)
from tablestone.wire.decode import (
    DecodedRequest,
    decode_operation,
    effective_method,
    require_answerable,
)
from tablestone.wire.encode import (
    Answer,
    Form,
    Stamp,
    encode_error,
    encode_result,
    form_for,
    respond,
    respond_at_gateway,
)
from tablestone.wire.messages import Headers, RawRequest, RawResponse
from tablestone.wire.negotiate import VERSION_LATEST, VERSIONS, negotiate, preference
from tablestone.wire.service_resources import (
    decode_service_operation,
    is_service_request,
    respond_with_xml,
    respond_with_xml_error,
)

log = logging.getLogger("tablestone")

ReadBody = Callable[[], Awaitable[bytes]]
"""Reads the request's body; raises `StorageError` if it is too large or never comes."""

_BODILESS = frozenset(("GET", "HEAD", "DELETE"))
_READS = frozenset(("GET", "HEAD"))
"""What the secondary answers (wire 1.1); of a batch the collector knows whether it is one."""


def request_ids() -> Iterator[str]:
    """Lower-case GUIDs as the service writes them: random per server, counted per request (wire 2.2)."""
    start = uuid.uuid4().hex
    prefix = f"{start[:8]}-{start[8:12]}-{start[12:16]}-{start[16:20]}-"
    for number in count(1):
        yield f"{prefix}{number:012x}"


class Authenticated(NamedTuple):
    """A request after its front door: who asks is known, what for is not yet."""

    request: RawRequest
    found: FoundAccount
    parameters: Parameters
    caller: Caller
    form: Form
    stamp: Stamp
    read_body: ReadBody


class Pipeline:
    """One server's addresses and tables behind the steps of a request. `clock` is in ticks."""

    def __init__(
        self,
        service: TableService,
        addresses: Addresses,
        identities: Identities,
        clock: Clock,
        *,
        https_only: bool = False,
    ) -> None:
        self._service = service
        self._properties = service.properties
        self._identities = identities
        self._https_only = https_only
        self._addresses = addresses
        self._clock = clock
        self._request_ids = request_ids()
        self._turns = Turns(monotonic_seconds)

    async def answer(self, request: RawRequest, read_body: ReadBody) -> RawResponse:
        """The response to a request; never raises."""
        client_request_id = request.headers.get(b"x-ms-client-request-id")
        if client_request_id and len(client_request_id) > limits.CLIENT_REQUEST_ID_LENGTH_MAX:
            client_request_id = None
        request_id = next(self._request_ids)
        version = ""
        answer_form: Form | None = None
        speaks_xml = False
        cors_rules: tuple[CorsRule, ...] = ()
        unreadable: StorageError | None = None
        try:
            try:
                parameters = parse_query_string(request.query_string)
            except StorageError as error:  # told to who may know
                parameters, unreadable = readable_parameters(request.query_string), error
            host = request.headers.get(b"host", b"")
            found = await self._addresses.find(request.raw_path, host)
            properties = self._properties.kept(found.account.name)
            if properties is NOT_KEPT:
                properties = await self._properties.get(found.account.name)
            if properties is not None:
                # From here on errors are for scripts to read too (auth 8.4).
                cors_rules = properties.cors
            _require_sound(request, https_only=self._https_only)
            if request.method == "OPTIONS":
                unversioned = Stamp(request_id, client_request_id, version)
                return answer_preflight(cors_rules, request, unversioned)
            version = _version(request, parameters, properties)
            stamp = Stamp(request_id, client_request_id, version)
            now = self._clock()
            caller = authenticate(request, found.account, parameters, version, now)
            if caller is not OWNER and isinstance(caller, Unfinished):
                caller = await self._completed(caller, request, found.account, now)
            answer_form = _form(request, found, parameters, version, now)
            step = Authenticated(request, found, parameters, caller, answer_form, stamp, read_body)
            speaks_xml = bool(parameters) and is_service_request(parameters)
            if unreadable is not None:
                raise unreadable  # noqa: TRY301 - as what is unreadable in the steps that follow
            if speaks_xml:
                response = await self._carry_out_on_service(step)
            else:
                response = respond(await self._carry_out(step), stamp)
            if cors_rules:
                add_cors_headers(cors_rules, request, response)
        except StorageError as error:
            failure = error
            if error.status == 401:
                error.headers = (self._identities.challenge,)
            if error.reason is not None:
                reason = without_signatures(error.reason)
                log.debug("request %s: %s: %s", request_id, error.code, reason)
        except EngineDamaged:
            log.exception("request %s met damaged storage: run tablestone check", request_id)
            failure = StorageError("InternalError")
        except EngineUnavailable as unavailable:
            log.warning("storage cannot answer request %s: %s", request_id, unavailable)
            failure = StorageError("ServerBusy")
        except Exception:  # a bug of ours: the client learns its request id, the log the rest
            log.exception("request %s failed: %s", request_id, request.method)
            failure = StorageError("InternalError")
        else:
            return response
        form: Form | Literal["xml"] | None = "xml" if speaks_xml else answer_form
        stamp = Stamp(request_id, client_request_id, version)
        response = _respond_with_error(failure, request, form, stamp, self._clock())
        if cors_rules:
            add_cors_headers(cors_rules, request, response)
        return response

    def refusal(self, headers: Headers) -> RawResponse:
        """The answer to a request that nobody looks at, for there are too many: the front door's (wire 8.3)."""
        client_request_id = headers.get(b"x-ms-client-request-id", b"")
        is_echoed = 0 < len(client_request_id) <= limits.CLIENT_REQUEST_ID_LENGTH_MAX
        stamp = Stamp(next(self._request_ids), client_request_id if is_echoed else None, "")
        accept = headers.get(b"accept", b"")
        return respond_at_gateway(StorageError("ServerBusy"), accept, stamp, self._clock())

    async def _completed(
        self,
        caller: Unfinished,
        request: RawRequest,
        account: Account,
        now: int,
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
        """From the resource on: what an authenticated request asks for, and its answer."""
        request, found, parameters, caller, answer_form, _, read_body = step
        address = parse_resource(found.resource)
        method = request.method if request.method == "GET" else effective_method(request)
        if address.kind is AddressKind.BATCH:
            return await self._carry_out_batch(step, method)
        if method not in _READS and found.is_secondary:
            raise StorageError("InsufficientAccountPermissions")
        require_answerable(method, parameters, answer_form.negotiated.refusal)
        body = b"" if method in _BODILESS else await read_body()
        decoded = DecodedRequest(request, address, parameters, body, step.stamp.version)
        operation = decode_operation(method, decoded)
        if caller is not OWNER:
            operation = caller.permit(operation)
        result = await self._service.execute(found.account, operation)
        if isinstance(result, EntitiesPage):
            assert isinstance(operation, QueryEntities)
            return await answer_page(operation, result, answer_form, self._turns)
        return encode_result(operation, result, answer_form)

    async def _carry_out_on_service(self, step: Authenticated) -> RawResponse:
        """The same for what is asked and answered in XML."""
        request, found, parameters, caller, _, stamp, read_body = step
        address = parse_resource(found.resource)
        method = effective_method(request)
        if method not in _READS and found.is_secondary:
            raise StorageError("InsufficientAccountPermissions")
        body = b"" if method in _BODILESS else await read_body()
        decoded = DecodedRequest(request, address, parameters, body, stamp.version)
        operation = caller.permit(decode_service_operation(method, decoded))
        if isinstance(operation, GetServiceStats) and not found.is_secondary and not found.prefix:
            # In path style a SDK has no other way to ask than the primary; in host style it has (auth 9).
            raise StorageError("InvalidQueryParameterValue", early=True)
        result: Result
        if isinstance(operation, GetUserDelegationKey):
            result = await self._identities.user_delegation_key(
                found.account.identity, caller, operation, stamp.version, self._clock()
            )
        else:
            result = await self._service.execute(found.account, operation)
        return respond_with_xml(operation, result, stamp)

    async def _carry_out_batch(self, step: Authenticated, method: str) -> Answer:
        if method != "POST":
            raise StorageError("MethodNotAllowed", early=True)
        body = await step.read_body()
        collector = BatchCollector(
            self._service,
            step.found,
            step.caller,
            step.form,
            step.stamp,
            self._clock,
            self._turns,
        )
        return await collector.answer(step.request, body)


def _version(
    request: RawRequest, parameters: Parameters, properties: ServiceProperties | None
) -> str:
    """The version that governs the request; without any the account's own, else the latest (wire 10.2, auth 11)."""
    header = request.headers.get(b"x-ms-version")
    if header is None:
        default = None if properties is None else properties.default_version
        version = parameters.get("api-version") or parameters.get("sv") or default or VERSION_LATEST
    else:
        if "api-version" in parameters:
            raise StorageError("MultipleVersionsSpecified")
        version = header.decode("latin-1")
    if version not in VERSIONS:
        version = version.strip()  # white space around a value is none of it (RFC 9110, 5.5)
        if version not in VERSIONS:
            raise StorageError("InvalidHeaderValue")
    return version


def _form(
    request: RawRequest, found: FoundAccount, parameters: Parameters, version: str, now: int
) -> Form:
    host = request.headers.get(b"host")
    if not host:
        raise StorageError("HostInformationNotPresent")
    form = form_for(
        f"{request.scheme}://{host.decode('latin-1')}/{found.prefix}",
        found.account.name,
        negotiate(request.headers, parameters, version),
        preference(request.headers, version),
    )
    return form if form.dated is None else form.at(now)


def _respond_with_error(
    failure: StorageError,
    request: RawRequest,
    form: Form | Literal["xml"] | None,
    stamp: Stamp,
    now: int,
) -> RawResponse:
    """An error in the form of the answer that was asked for; without any, as the front door writes it (wire 8.3)."""
    if form is None:
        return respond_at_gateway(failure, request.headers.get(b"accept", b""), stamp, now)
    if form == "xml":
        return respond_with_xml_error(failure, stamp, now)
    return respond(encode_error(failure, form, stamp, now), stamp)


def _require_sound(request: RawRequest, *, https_only: bool) -> None:
    """Raise for http where it must be https, and for headers that contradict each other."""
    if https_only and request.scheme != "https":
        raise StorageError("AccountRequiresHttps")  # wire 1.1
    if request.duplicated is not None:
        raise request.duplicated
