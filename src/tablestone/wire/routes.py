"""The routes: how a method on a resource is decoded, and how its result is answered.

One table for OData (wire 1.2), for the service's resources in XML (wire 2.4), and for those that are ours: changes,
indexes and expiry. Does not know how an operation is carried out.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tablestone.model import operations
from tablestone.model.errors import StorageError, unknown_comp
from tablestone.model.operations import INDEXES_HEADER, Operation
from tablestone.query.filter_parser import INCOMPATIBLE
from tablestone.wire import decode, own_forms
from tablestone.wire import service_resources as service
from tablestone.wire.address import Address, Parameters, is_service_request
from tablestone.wire.address import AddressKind as Kind
from tablestone.wire.changes import (
    decode_account_changes,
    decode_table_changes,
    respond_with_changes,
)
from tablestone.wire.decode import ORDER_BY, DecodedRequest
from tablestone.wire.encode import Form, Stamp, respond_with_result
from tablestone.wire.messages import RawRequest, RawResponse
from tablestone.wire.service_resources import respond_on_service
from tablestone.wire.versions import VERSION_EXACT_TEXTS, VERSION_JSON

_HEADER: Final = INDEXES_HEADER.encode("ascii")
_Decode = Callable[[DecodedRequest], Operation]


class Route(NamedTuple):
    """A method on a resource."""

    asked: type[Operation] | None
    """The operation that a refused request counts as; None: as none."""
    decode: _Decode
    respond: Callable[[Any, Any, Form, Stamp], RawResponse]
    """The response to an operation and its result."""
    since: str = ""
    """The first version that has the resource."""


def _odata(asked: type[Operation] | None, decode: _Decode) -> Route:
    return Route(asked, decode, respond_with_result)


def _on_service(asked: type[Operation] | None, decode: _Decode, since: str = "") -> Route:
    return Route(asked, decode, respond_on_service, since)


_POLICIES: Final = "2012-02-12"
"""The first version with stored access policies (wire 3.8)."""
_STATS: Final = VERSION_JSON
"""The first version with replication statistics (wire 10.1)."""
_DELEGATION: Final = "2025-07-05"
"""The first version with user delegation of tables (auth 3.11)."""

ROUTES: Final[dict[tuple[Kind, str | None, str | None, str], Route]] = {
    (Kind.TABLE_SET, None, None, "GET"): _odata(operations.QueryTables, decode.query_tables),
    (Kind.TABLE_SET, None, None, "POST"): _odata(operations.CreateTable, decode.create_table),
    (Kind.TABLE, None, None, "GET"): _odata(operations.GetTable, decode.get_table),
    (Kind.TABLE, None, None, "DELETE"): _odata(operations.DeleteTable, decode.delete_table),
    (Kind.ENTITY_SET, None, None, "GET"): _odata(operations.QueryEntities, decode.query_entities),
    (Kind.ENTITY_SET, None, None, "POST"): _odata(operations.InsertEntity, decode.insert),
    (Kind.BELOW_ENTITY_SET, None, None, "GET"): _odata(None, decode.read_below_entity_set),
    (Kind.BELOW_ENTITY_SET, None, None, "POST"): _odata(operations.InsertEntity, decode.insert),
    (Kind.COUNT, None, None, "GET"): _odata(operations.QueryEntities, decode.count_entities),
    (Kind.ENTITY, None, None, "GET"): _odata(operations.GetEntity, decode.get_entity),
    (Kind.ENTITY, None, None, "PUT"): _odata(operations.UpdateEntity, decode.replace),
    (Kind.ENTITY, None, None, "MERGE"): _odata(operations.MergeEntity, decode.merge),
    (Kind.ENTITY, None, None, "PATCH"): _odata(operations.MergeEntity, decode.merge),
    (Kind.ENTITY, None, None, "DELETE"): _odata(operations.DeleteEntity, decode.delete_entity),
    (Kind.METADATA, None, None, "GET"): _odata(None, decode.not_implemented),
    (Kind.ENTITY_SET, None, "acl", "GET"): _on_service(
        operations.GetTableAcl, service.get_table_acl, _POLICIES
    ),
    (Kind.ENTITY_SET, None, "acl", "HEAD"): _on_service(
        operations.GetTableAcl, service.get_table_acl, _POLICIES
    ),
    (Kind.ENTITY_SET, None, "acl", "PUT"): _on_service(
        operations.SetTableAcl, service.set_table_acl, _POLICIES
    ),
    (Kind.ENTITY_SET, None, "indexes", "GET"): _on_service(None, service.list_indexes),
    (Kind.ENTITY_SET, None, "expiry", "GET"): _on_service(None, service.get_table_expiry),
    (Kind.ENTITY_SET, None, "expiry", "PUT"): _on_service(
        operations.SetTableExpiry, service.set_table_expiry
    ),
    (Kind.ENTITY_SET, None, "changes", "GET"): Route(
        operations.ReadTableChanges, decode_table_changes, respond_with_changes
    ),
    (Kind.SERVICE, "service", "changes", "GET"): Route(
        operations.ReadAccountChanges, decode_account_changes, respond_with_changes
    ),
    (Kind.SERVICE, "service", "properties", "GET"): _on_service(
        operations.GetServiceProperties, lambda _decoded: operations.GetServiceProperties()
    ),
    (Kind.SERVICE, "service", "properties", "PUT"): _on_service(
        operations.SetServiceProperties, service.set_service_properties
    ),
    (Kind.SERVICE, "service", "stats", "GET"): _on_service(
        operations.GetServiceStats, lambda _decoded: operations.GetServiceStats(), _STATS
    ),
    (Kind.SERVICE, "service", "userdelegationkey", "POST"): _on_service(
        operations.GetUserDelegationKey, service.get_user_delegation_key, _DELEGATION
    ),
}
"""The routes by the kind of address, `restype`, `comp` and the method."""
_BY_HEADER: Final[dict[tuple[str | None, str], Route]] = {
    ("indexes", "GET"): _on_service(operations.ListIndexes, own_forms.list_indexes),
    ("indexes", "PUT"): _on_service(operations.MakeIndex, own_forms.make_index),
    ("indexes", "DELETE"): _on_service(operations.DropIndex, own_forms.drop_index),
    ("expiry", "GET"): _on_service(operations.GetTableExpiry, own_forms.get_table_expiry),
    ("expiry", "PUT"): _on_service(operations.SetTableExpiry, own_forms.set_table_expiry),
    ("expiry", "POST"): _on_service(operations.CountTableExpiry, own_forms.count_table_expiry),
    ("expiry", "DELETE"): _on_service(operations.SetTableExpiry, own_forms.remove_table_expiry),
}
"""Routes of a table, by `comp` and the method, for requests with the header `INDEXES_HEADER`."""
_SINCE: Final = {key[:3]: route.since for key, route in ROUTES.items()}
"""The first version of each resource."""
_OWN: Final = frozenset(("changes", "indexes", "expiry"))
"""Values of `comp` that the service does not have: whatever is wrong with them, they are unknown."""
_UNCONDITIONAL: Final[dict[type[Operation] | None, type[Operation]]] = {
    operations.UpdateEntity: operations.InsertOrReplaceEntity,
    operations.MergeEntity: operations.InsertOrMergeEntity,
}
"""The operation that a write without If-Match asks for."""


def decode_operation(decoded: DecodedRequest) -> tuple[Route, Operation]:
    """The operation, and the route that answers it.

    Raises the service's error. One that is found late is answered only if the table exists (wire 2.2).
    """
    restype = comp = None
    kind, table, _ = decoded.address
    if decoded.parameters:
        restype, comp = decoded.parameters.get("restype"), decoded.parameters.get("comp")
        if restype is None and comp is None:
            is_query = kind is Kind.ENTITY_SET and decoded.method == "GET"
            extension = ORDER_BY if decoded.extended and is_query else ""
            decode.require_supported_options(decoded.parameters, extension)
    if kind is Kind.COUNT and not decoded.is_count:
        kind = Kind.BELOW_ENTITY_SET
    route = _route(decoded.raw, kind, restype, comp, decoded.method)
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


def has_own_form(request: RawRequest) -> bool:
    """Whether a request has one of the forms that need `INDEXES_HEADER`.

    X-HTTP-Method is no part of a signature, so a request with it has none: it could turn a count into a deletion.
    """
    headers = request.headers
    return bool(_HEADER in headers and b"x-http-method" not in headers)


def _route(
    request: RawRequest, kind: Kind, restype: str | None, comp: str | None, method: str
) -> Route | None:
    if comp is not None and kind is Kind.ENTITY_SET and restype is None and has_own_form(request):
        route = _BY_HEADER.get((comp, method))
        if route is not None:
            return route
    return ROUTES.get((kind, restype, comp, method))


def _no_route(
    decoded: DecodedRequest, resource: tuple[Kind, str | None, str | None]
) -> StorageError:
    kind, restype, comp = resource
    if restype is None and comp is None:
        presumed = decoded.address.table if kind is Kind.BELOW_ENTITY_SET else None
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
        kind = Kind.SERVICE if kind is Kind.SERVICE else Kind.ENTITY_SET
        restype = "service" if kind is Kind.SERVICE else None
    route = _route(request, kind, restype, comp, method)
    asked = None if route is None else route.asked
    if asked in _UNCONDITIONAL and b"if-match" not in request.headers:
        return _UNCONDITIONAL[asked]
    return asked
