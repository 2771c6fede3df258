"""The routes: how a method on a resource is decoded, and how its result is answered.

One table for OData (wire 1.2), for the service's resources in XML (wire 2.4), and for those that are ours: changes,
indexes and expiry. Does not know how an operation is carried out.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tablestone.model.errors import StorageError, unknown_comp
from tablestone.model.operations import (
    CreateTable,
    DeleteEntity,
    DeleteTable,
    GetEntity,
    GetServiceProperties,
    GetServiceStats,
    GetTable,
    GetTableAcl,
    GetTableExpiry,
    GetUserDelegationKey,
    InsertEntity,
    InsertOrMergeEntity,
    InsertOrReplaceEntity,
    ListIndexes,
    MergeEntity,
    Operation,
    QueryEntities,
    QueryTables,
    ReadAccountChanges,
    ReadTableChanges,
    SetServiceProperties,
    SetTableAcl,
    SetTableExpiry,
    UpdateEntity,
)
from tablestone.query.filter_parser import INCOMPATIBLE
from tablestone.wire import decode
from tablestone.wire import service_resources as service
from tablestone.wire.address import Address, AddressKind, Parameters, is_service_request
from tablestone.wire.changes import (
    decode_account_changes,
    decode_table_changes,
    respond_with_changes,
)
from tablestone.wire.decode import DecodedRequest
from tablestone.wire.encode import Form, Stamp, respond_with_result
from tablestone.wire.messages import RawRequest, RawResponse
from tablestone.wire.service_resources import respond_on_service
from tablestone.wire.versions import VERSION_EXACT_TEXTS, VERSION_JSON


class Route(NamedTuple):
    """A method on a resource."""

    asked: type[Operation] | None
    """The operation that a refused request counts as; None: as none."""
    decode: Callable[[DecodedRequest], Operation]
    respond: Callable[[Any, Any, Form, Stamp], RawResponse]
    """The response to an operation and its result."""
    since: str = ""
    """The first version that has the resource."""


def _odata(asked: type[Operation] | None, decode: Callable[[DecodedRequest], Operation]) -> Route:
    return Route(asked, decode, respond_with_result)


_POLICIES: Final = "2012-02-12"
"""The first version with stored access policies (wire 3.8)."""
_STATS: Final = VERSION_JSON
"""The first version with replication statistics (wire 10.1)."""
_USER_DELEGATION: Final = "2025-07-05"
"""The first version with user delegation of tables (auth 3.11)."""

_A_TABLE: Final = AddressKind.ENTITY_SET
_SERVICE: Final = AddressKind.SERVICE
ROUTES: Final[dict[tuple[AddressKind, str | None, str | None, str], Route]] = {
    (AddressKind.TABLE_SET, None, None, "GET"): _odata(QueryTables, decode.query_tables),
    (AddressKind.TABLE_SET, None, None, "POST"): _odata(CreateTable, decode.create_table),
    (AddressKind.TABLE, None, None, "GET"): _odata(GetTable, decode.get_table),
    (AddressKind.TABLE, None, None, "DELETE"): _odata(DeleteTable, decode.delete_table),
    (_A_TABLE, None, None, "GET"): _odata(QueryEntities, decode.query_entities),
    (_A_TABLE, None, None, "POST"): _odata(InsertEntity, decode.insert),
    (AddressKind.BELOW_ENTITY_SET, None, None, "GET"): _odata(None, decode.read_below_entity_set),
    (AddressKind.BELOW_ENTITY_SET, None, None, "POST"): _odata(InsertEntity, decode.insert),
    (AddressKind.ENTITY, None, None, "GET"): _odata(GetEntity, decode.get_entity),
    (AddressKind.ENTITY, None, None, "PUT"): _odata(UpdateEntity, decode.replace),
    (AddressKind.ENTITY, None, None, "MERGE"): _odata(MergeEntity, decode.merge),
    (AddressKind.ENTITY, None, None, "PATCH"): _odata(MergeEntity, decode.merge),
    (AddressKind.ENTITY, None, None, "DELETE"): _odata(DeleteEntity, decode.delete_entity),
    (AddressKind.METADATA, None, None, "GET"): _odata(None, decode.not_implemented),
    (_A_TABLE, None, "acl", "GET"): Route(
        GetTableAcl, service.get_table_acl, respond_on_service, _POLICIES
    ),
    (_A_TABLE, None, "acl", "HEAD"): Route(
        GetTableAcl, service.get_table_acl, respond_on_service, _POLICIES
    ),
    (_A_TABLE, None, "acl", "PUT"): Route(
        SetTableAcl, service.set_table_acl, respond_on_service, _POLICIES
    ),
    (_A_TABLE, None, "indexes", "GET"): Route(
        None, lambda decoded: ListIndexes(decode.table_in_url(decoded.address)), respond_on_service
    ),
    (_A_TABLE, None, "expiry", "GET"): Route(
        None, lambda decoded: GetTableExpiry(decoded.address.table), respond_on_service
    ),
    (_A_TABLE, None, "expiry", "PUT"): Route(
        SetTableExpiry, service.set_table_expiry, respond_on_service
    ),
    (_A_TABLE, None, "changes", "GET"): Route(
        ReadTableChanges, decode_table_changes, respond_with_changes
    ),
    (_SERVICE, "service", "changes", "GET"): Route(
        ReadAccountChanges, decode_account_changes, respond_with_changes
    ),
    (_SERVICE, "service", "properties", "GET"): Route(
        GetServiceProperties, lambda _decoded: GetServiceProperties(), respond_on_service
    ),
    (_SERVICE, "service", "properties", "PUT"): Route(
        SetServiceProperties, service.set_service_properties, respond_on_service
    ),
    (_SERVICE, "service", "stats", "GET"): Route(
        GetServiceStats, lambda _decoded: GetServiceStats(), respond_on_service, _STATS
    ),
    (_SERVICE, "service", "userdelegationkey", "POST"): Route(
        GetUserDelegationKey, service.get_user_delegation_key, respond_on_service, _USER_DELEGATION
    ),
}
"""The routes by the kind of address, `restype`, `comp` and the method."""
_SINCE: Final = {key[:3]: route.since for key, route in ROUTES.items()}
"""The first version of each resource."""
_OWN: Final = frozenset(("changes", "indexes", "expiry"))
"""Values of `comp` that the service does not have: whatever is wrong with them, they are unknown."""
_UNCONDITIONAL: Final[dict[type[Operation] | None, type[Operation]]] = {
    UpdateEntity: InsertOrReplaceEntity,
    MergeEntity: InsertOrMergeEntity,
}
"""The operation that a write without If-Match asks for."""


def decode_operation(method: str, decoded: DecodedRequest) -> tuple[Route, Operation]:
    """The operation, and the route that answers it.

    Raises the service's error. One that is found late is answered only if the table exists (wire 2.2).
    """
    restype = comp = None
    if decoded.parameters:
        restype, comp = decoded.parameters.get("restype"), decoded.parameters.get("comp")
        if restype is None and comp is None:
            decode.require_supported_options(decoded.parameters)
    kind, table, _ = decoded.address
    route = ROUTES.get((kind, restype, comp, method))
    if route is None or decoded.version < route.since:
        raise _no_route(decoded, (kind, restype, comp))
    try:
        return route, route.decode(decoded)
    except StorageError as error:
        if decoded.version < VERSION_EXACT_TEXTS and error.text.startswith(INCOMPATIBLE):
            raise StorageError("InvalidInput") from error
        if not error.early and table:
            error.table = table
        raise


def _no_route(
    decoded: DecodedRequest, resource: tuple[AddressKind, str | None, str | None]
) -> StorageError:
    kind, restype, comp = resource
    if restype is None and comp is None:
        presumed = decoded.address.table if kind is AddressKind.BELOW_ENTITY_SET else None
        return StorageError("MethodNotAllowed", table=presumed)
    since = None if comp in _OWN else _SINCE.get(resource)
    if since is None or decoded.version < since:
        return unknown_comp()
    return StorageError("MethodNotAllowed")


def operation_asked(
    method: str, address: Address, parameters: Parameters, request: RawRequest
) -> type[Operation] | None:
    """The operation that a request asks for by its address and method, even if the request is wrong."""
    kind, restype, comp = address.kind, None, None
    if is_service_request(parameters):
        comp = parameters.get("comp", "")
        kind = _SERVICE if kind is _SERVICE else _A_TABLE
        restype = "service" if kind is _SERVICE else None
    route = ROUTES.get((kind, restype, comp, method))
    asked = None if route is None else route.asked
    if asked in _UNCONDITIONAL and b"if-match" not in request.headers:
        return _UNCONDITIONAL[asked]
    return asked
