"""Requests with `comp` or `restype`, answered in XML: policies, service properties, statistics, user delegation keys.

Makes an operation of a request and a response of a result, as `decode` and `encode` do for OData. The headers differ,
and errors are always XML, whatever Accept says (wire 2.4, 8.2). Knows HTTP; the documents are in `service_xml`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tablestone.model.errors import StorageError
from tablestone.model.operations import (
    GetServiceProperties,
    GetServiceStats,
    GetTableAcl,
    GetUserDelegationKey,
    Operation,
    Result,
    ServicePropertiesFound,
    ServiceStats,
    SetServiceProperties,
    SetTableAcl,
    TableAclFound,
    UserDelegationKey,
)
from tablestone.wire.address import AddressKind, Parameters
from tablestone.wire.decode import DecodedRequest, table_in_url
from tablestone.wire.encode import SERVER, Stamp, xml_error
from tablestone.wire.messages import RawResponse
from tablestone.wire.service_xml import (
    read_key_info,
    read_service_properties,
    read_signed_identifiers,
    write_service_properties,
    write_service_stats,
    write_signed_identifiers,
    write_user_delegation_key,
)
from tablestone.wire.versions import VERSION_ECHOED, VERSION_JSON

_VERSION_OF_POLICIES: Final = "2012-02-12"
"""The first version with stored access policies (wire 3.8)."""
_VERSION_OF_STATS: Final = VERSION_JSON
"""The first version with replication statistics (wire 10.1)."""
_VERSION_OF_USER_DELEGATION: Final = "2025-07-05"
"""The first version with user delegation of tables (auth 3.11)."""
_VERSION_OF_STRICT_ACCEPT: Final = "2019-07-07"
"""In this version, as recorded, setting policies needs XML in Accept. Older clients send `*/*`, which is accepted."""
_XML_TYPES: Final = (b"application/xml", b"text/xml")


class _Resource(NamedTuple):
    """The methods of a resource, and the first version that has it."""

    since: str
    methods: dict[str, Callable[[DecodedRequest], Operation]]


def is_service_request(parameters: Parameters) -> bool:
    """Whether the request is for one of these resources, and not for OData."""
    return "comp" in parameters or "restype" in parameters


def decode_service_operation(method: str, decoded: DecodedRequest) -> Operation:
    """The operation of the request; raises the service's error if the request is wrong."""
    parameters = decoded.parameters
    resource = _RESOURCES.get(
        (decoded.address.kind, parameters.get("restype"), parameters.get("comp"))
    )
    if resource is None or decoded.version < resource.since:
        raise StorageError("InvalidQueryParameterValue", early=True, at_front_door=True)
    decode = resource.methods.get(method)
    if decode is None:
        raise StorageError("MethodNotAllowed", early=True)
    return decode(decoded)


def _get_table_acl(decoded: DecodedRequest) -> Operation:
    return GetTableAcl(table_in_url(decoded.address))


def _set_table_acl(decoded: DecodedRequest) -> Operation:
    accept = decoded.raw.headers.get(b"accept")
    if (
        accept is not None
        and decoded.version >= _VERSION_OF_STRICT_ACCEPT
        and not any(media_type in accept.lower() for media_type in _XML_TYPES)
    ):
        raise StorageError("MediaTypeNotSupported", early=True)
    return SetTableAcl(table_in_url(decoded.address), read_signed_identifiers(decoded.body))


def _set_service_properties(decoded: DecodedRequest) -> Operation:
    return SetServiceProperties(read_service_properties(decoded.body, decoded.version))


def _get_user_delegation_key(decoded: DecodedRequest) -> Operation:
    return GetUserDelegationKey(*read_key_info(decoded.body))


_RESOURCES: Final[dict[tuple[AddressKind, str | None, str | None], _Resource]] = {
    (AddressKind.ENTITY_SET, None, "acl"): _Resource(
        _VERSION_OF_POLICIES,
        {"GET": _get_table_acl, "HEAD": _get_table_acl, "PUT": _set_table_acl},
    ),
    (AddressKind.SERVICE, "service", "properties"): _Resource(
        "",
        {"GET": lambda _decoded: GetServiceProperties(), "PUT": _set_service_properties},
    ),
    (AddressKind.SERVICE, "service", "stats"): _Resource(
        _VERSION_OF_STATS, {"GET": lambda _decoded: GetServiceStats()}
    ),
    (AddressKind.SERVICE, "service", "userdelegationkey"): _Resource(
        _VERSION_OF_USER_DELEGATION, {"POST": _get_user_delegation_key}
    ),
}
"""The resources by the kind of address, `restype` and `comp`."""


def respond_with_xml(operation: Operation, result: Result, stamp: Stamp) -> RawResponse:
    """The response to an operation that succeeded (wire 2.4)."""
    if isinstance(result, TableAclFound):
        return _document(write_signed_identifiers(result.identifiers), stamp)
    if isinstance(result, ServicePropertiesFound):
        return _document(write_service_properties(result.properties, stamp.version), stamp)
    if isinstance(result, ServiceStats):
        return _document(write_service_stats(result.last_sync), stamp)
    if isinstance(result, UserDelegationKey):
        return _document(write_user_delegation_key(result), stamp)
    if isinstance(operation, SetServiceProperties):
        return RawResponse(202, _headers(stamp))
    return RawResponse(204, [*_headers(stamp), (b"content-length", b"0")])


def respond_with_xml_error(error: StorageError, stamp: Stamp, now: int) -> RawResponse:
    """The response to a request that failed behind the service's front door (auth 5.3). `now` is in ticks."""
    response = _document(xml_error(error, stamp, now), stamp)
    response.status = error.status
    response.headers.append((b"x-ms-error-code", error.code.encode("ascii")))
    response.headers.extend(
        (name.lower().encode("ascii"), value.encode("latin-1")) for name, value in error.headers
    )
    return response


def _document(body: bytes, stamp: Stamp) -> RawResponse:
    return RawResponse(200, [*_headers(stamp), (b"content-type", b"application/xml")], body)


def _headers(stamp: Stamp) -> list[tuple[bytes, bytes]]:
    headers = [
        (b"server", SERVER),
        (b"x-ms-request-id", stamp.request_id.encode("ascii")),
    ]
    if stamp.version >= VERSION_ECHOED:
        headers.append((b"x-ms-version", stamp.version.encode("latin-1")))
    if stamp.client_request_id is not None:
        headers.append((b"x-ms-client-request-id", stamp.client_request_id))
    return headers
