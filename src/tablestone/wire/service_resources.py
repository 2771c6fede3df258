"""Requests with `comp` or `restype`: policies, service properties, statistics, user delegation keys, indexes, expiry.

Turns a request into an operation and a result into a response, as `decode` and `encode` do for OData. The service's own
resources are XML (wire 2.4); indexes and expiry, which are ours, are JSON. Errors are XML, whatever Accept says, with
one exception (wire 3.8, 8.2). Elements are read in any order, and written exactly as the service does: a byte order
mark, one order, times with seven digits. All rules for the values are here (auth 7, 8.2); a broken rule is
`InvalidXmlDocument`, as recorded.
"""

import base64
import html
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Final
from xml.etree.ElementTree import Element

import orjson

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND
from tablestone.model.edm import format_date_time_fixed, utf16_length
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.operations import (
    INDEXES_HEADER,
    Accepted,
    AccessPolicy,
    ExpiryCountFound,
    GetTableAcl,
    GetTableExpiry,
    GetUserDelegationKey,
    IndexesFound,
    ListIndexes,
    Operation,
    Result,
    ServicePropertiesFound,
    ServiceStats,
    SetServiceProperties,
    SetTableAcl,
    SetTableExpiry,
    SignedIdentifier,
    TableAclFound,
    TableExpiryFound,
    UserDelegationKey,
)
from tablestone.model.service_properties import (
    CORS_METHODS,
    Changes,
    CorsRule,
    Logging,
    Metrics,
    ServiceProperties,
    is_header_name,
)
from tablestone.model.shared_access import parse_instant
from tablestone.wire.decode import DecodedRequest, table_in_url
from tablestone.wire.encode import SERVER, Form, Stamp, message_of, xml_error
from tablestone.wire.json_payload import decode_object, json_error
from tablestone.wire.messages import RawRequest, RawResponse
from tablestone.wire.versions import VERSION_ECHOED, VERSION_JSON, VERSION_XML_ERROR_CODE
from tablestone.wire.xml_input import parse_xml

VERSION_OF_HOURS: Final = VERSION_JSON
"""From this version on there are HourMetrics and MinuteMetrics, not Metrics; CORS; and optional roots (wire 10.1)."""

_DECLARATION: Final = '\ufeff<?xml version="1.0" encoding="utf-8"?>'
_PERMISSIONS: Final = frozenset("raud")
_ORIGIN = re.compile(r"[!-~]+")
"""ASCII: a browser sends international domain names in Punycode."""
_MILLISECONDS = re.compile(r"\.\d{3}(?!\d)", re.ASCII)
"""A fraction of three digits: the only length that a policy is known to refuse (auth 7)."""
_NUMBER = re.compile(r"\d{1,10}", re.ASCII)
_ANALYTICS_VERSION: Final = "1.0"


def _invalid(reason: str, detail: str | None = None) -> StorageError:
    return StorageError("InvalidXmlDocument", reason=reason, detail=detail)


def _require(holds: object, reason: str, detail: str | None = None) -> None:
    if not holds:
        raise _invalid(reason, detail)


# --- Reading -------------------------------------------------------------------------------------------------------


def _elements(parent: Element) -> Iterable[Element]:
    """The child elements; raises if there is text between them."""
    texts = [parent.text, *(child.tail for child in parent)]
    _require(not any(text and text.strip() for text in texts), "text between elements", parent.tag)
    return parent


def _members(parent: Element, names: tuple[str, ...], *optional: str) -> dict[str, Element]:
    """The child elements by name, in any order. Those in `names` must occur once; `optional` ones may occur once."""
    found: dict[str, Element] = {}
    known = {*names, *optional}
    for child in _elements(parent):
        _require(child.tag in known, "an element where it cannot be", child.tag)
        _require(child.tag not in found, "an element that comes twice", child.tag)
        found[child.tag] = child
    missing = [name for name in names if name not in found]
    _require(not missing, "an element is missing", f"{missing} in {parent.tag}")
    return found


def _text(element: Element) -> str:
    """The text of an element; raises for child elements."""
    _require(len(element) == 0, "an element inside a value", element.tag)
    return element.text or ""


def _optional_text(element: Element | None) -> str | None:
    """The text of an element, stripped; None if the text is empty or the element is missing."""
    return None if element is None else _text(element).strip() or None


def _boolean(element: Element) -> bool:
    """`true` or `false`, in upper or lower case (wire 3.5)."""
    text = _text(element).strip().lower()
    _require(text in {"true", "false"}, "a value is neither true nor false", element.tag)
    return text == "true"


def _number(element: Element) -> int:
    text = _text(element).strip()
    _require(_NUMBER.fullmatch(text), "a value is no number", element.tag)
    return int(text)


def read_key_info(body: bytes) -> tuple[int | None, int]:
    """The requested start (None: now) and expiry of a user delegation key, in ticks (auth 3.11)."""
    root = parse_xml(body)
    _require(root.tag == "KeyInfo", "another root element", root.tag)
    found = _members(root, ("Expiry",), "Start", "DelegatedUserTid")
    if _optional_text(found.get("DelegatedUserTid")) is not None:
        # Such a key signs for users of that tenant only; signatures that are bound to a user are not supported.
        raise StorageError("NotImplemented")
    expiry = _instant(found["Expiry"])
    if expiry is None:
        raise _invalid("no Expiry")
    return _instant(found.get("Start")), expiry


def read_signed_identifiers(body: bytes) -> tuple[SignedIdentifier, ...]:
    """The stored access policies in a document. An empty body has none (auth 7)."""
    if not body:
        return ()
    root = parse_xml(body)
    _require(root.tag == "SignedIdentifiers", "another root element", root.tag)
    identifiers = tuple(_signed_identifier(element) for element in _elements(root))
    _require(len(identifiers) <= limits.SIGNED_IDENTIFIERS_MAX, "too many identifiers")
    ids = {identifier.id for identifier in identifiers}
    _require(len(ids) == len(identifiers), "an id twice")
    return identifiers


def _signed_identifier(element: Element) -> SignedIdentifier:
    _require(
        element.tag == "SignedIdentifier", "another element than SignedIdentifier", element.tag
    )
    members = _members(element, ("Id",), "AccessPolicy")
    name = _text(members["Id"])
    _require(0 < utf16_length(name) <= limits.SIGNED_IDENTIFIER_LENGTH_MAX, "length of an id")
    policy = members.get("AccessPolicy")
    return SignedIdentifier(name, None if policy is None else _access_policy(policy))


def _access_policy(element: Element) -> AccessPolicy | None:
    """The policy in an element; None if all its values are empty, as recorded."""
    members = _members(element, (), "Start", "Expiry", "Permission")
    permission = _optional_text(members.get("Permission"))
    if permission is not None:  # letters in any order, each at most once (auth 3.1)
        letters = frozenset(permission)
        _require(letters <= _PERMISSIONS and len(letters) == len(permission), "a permission")
    start, expiry = members.get("Start"), members.get("Expiry")
    for date in (start, expiry):
        _require(not _MILLISECONDS.search(_optional_text(date) or ""), "a date with milliseconds")
    policy = AccessPolicy(_instant(start), _instant(expiry), permission)
    return None if policy == AccessPolicy(None, None, None) else policy


def _instant(element: Element | None) -> int | None:
    text = _optional_text(element)
    if text is None:
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise _invalid("a date") from error


def read_service_properties(body: bytes, version: str) -> Changes:
    """The changes in a document. A root element that is left out keeps its value (auth 8.2)."""
    root = parse_xml(body)
    _require(root.tag == "StorageServiceProperties", "another root element", root.tag)
    if version < VERSION_OF_HOURS:
        members = _members(root, ("Logging", "Metrics"))
    else:
        members = _members(root, (), "Logging", "HourMetrics", "MinuteMetrics", "Cors")
    _require(members, "no settings")
    changes: Changes = {}
    for name, element in members.items():
        field, read = _ROOTS[name]
        changes[field] = read(element)
    return changes


def _retention_days(element: Element) -> int | None:
    """The days of a retention policy; None if it is not enabled, which keeps everything and excludes `Days`."""
    members = _members(element, ("Enabled",), "Days")
    if not _boolean(members["Enabled"]):
        _require("Days" not in members, "Days of a policy that is not enabled")
        return None
    _require("Days" in members, "no Days")
    days = _number(members["Days"])
    _require(1 <= days <= limits.RETENTION_DAYS_MAX, "Days")
    return days


def _logging(element: Element) -> Logging:
    members = _members(element, ("Version", "Read", "Write", "Delete", "RetentionPolicy"))
    _require(_text(members["Version"]).strip() == _ANALYTICS_VERSION, "the version of Logging")
    return Logging(
        _boolean(members["Read"]),
        _boolean(members["Write"]),
        _boolean(members["Delete"]),
        _retention_days(members["RetentionPolicy"]),
    )


def _metrics(element: Element) -> Metrics:
    """The metrics in an element. Enabled metrics need IncludeAPIs; otherwise it is ignored."""
    members = _members(element, ("Version", "Enabled", "RetentionPolicy"), "IncludeAPIs")
    _require(_text(members["Version"]).strip() == _ANALYTICS_VERSION, "the version of metrics")
    enabled = _boolean(members["Enabled"])
    _require(not enabled or "IncludeAPIs" in members, "no IncludeAPIs")
    include_apis = _boolean(members["IncludeAPIs"]) if enabled else None
    return Metrics(enabled, include_apis, _retention_days(members["RetentionPolicy"]))


def _cors(element: Element) -> tuple[CorsRule, ...]:
    rules = tuple(_cors_rule(rule) for rule in _elements(element))
    _require(len(rules) <= limits.CORS_RULES_MAX, "too many CORS rules")
    length = sum(len((part.text or "").encode("utf-8")) for rule in element for part in rule)
    _require(length <= limits.CORS_TEXT_BYTES_MAX, "length of CORS rules")
    return rules


def _cors_rule(element: Element) -> CorsRule:
    _require(element.tag == "CorsRule", "another element than CorsRule", element.tag)
    members = _members(
        element,
        ("AllowedOrigins", "AllowedMethods", "AllowedHeaders", "ExposedHeaders", "MaxAgeInSeconds"),
    )
    origins = _listed(members["AllowedOrigins"])
    _require(all(map(_ORIGIN.fullmatch, origins)), "an origin that no browser can send")
    _require(origins, "no origins of a CORS rule")
    _require_at_most(limits.CORS_ORIGINS_MAX, origins)
    methods = tuple(method.upper() for method in _listed(members["AllowedMethods"]))
    _require(methods and set(methods) <= CORS_METHODS, "methods of a CORS rule")
    return CorsRule(
        origins,
        methods,
        _header_names(members["AllowedHeaders"]),
        _header_names(members["ExposedHeaders"]),
        _number(members["MaxAgeInSeconds"]),
    )


def _listed(element: Element) -> tuple[str, ...]:
    """The items of a comma-separated list; raises for an item that is too long."""
    items = tuple(item.strip() for item in _text(element).split(",") if item.strip())
    _require(all(len(item) <= limits.CORS_ITEM_LENGTH_MAX for item in items), "length of an item")
    return items


def _require_at_most(most: int, items: Sequence[str]) -> None:
    if len(items) > most:
        raise StorageError("InvalidXmlNodeValue", reason="a list that is too long")


def _header_names(element: Element) -> tuple[str, ...]:
    """Header names in the service's order: those that end in `*` come last (wire 3.5)."""
    names = _listed(element)
    _require(all(map(is_header_name, names)), "a name that no header can have")
    prefixes = [name for name in names if name.endswith("*")]
    literal = [name for name in names if not name.endswith("*")]
    _require_at_most(limits.CORS_HEADERS_MAX, literal)
    _require_at_most(limits.CORS_HEADER_PREFIXES_MAX, prefixes)
    return (*literal, *prefixes)


_ROOTS: Final[dict[str, tuple[str, Callable[[Element], object]]]] = {
    "Logging": ("logging", _logging),
    "Metrics": ("hour_metrics", _metrics),
    "HourMetrics": ("hour_metrics", _metrics),
    "MinuteMetrics": ("minute_metrics", _metrics),
    "Cors": ("cors", _cors),
}
"""The field of `ServiceProperties` for each root element, and the element's reader."""


# --- Writing -------------------------------------------------------------------------------------------------------


def _element(name: str, content: str) -> str:
    return f"<{name}>{content}</{name}>" if content else f"<{name} />"


def _leaf(name: str, text: str) -> str:
    return _element(name, html.escape(text, quote=False).replace("\r", "&#xD;"))


def _flag(name: str, value: bool) -> str:  # noqa: FBT001 - the value that is written
    return _element(name, "true" if value else "false")


def _document(text: str) -> bytes:
    return (_DECLARATION + text).encode("utf-8")


def write_signed_identifiers(identifiers: Iterable[SignedIdentifier]) -> bytes:
    """A table's stored access policies (wire 3.8)."""
    return _document(_element("SignedIdentifiers", "".join(map(_written_identifier, identifiers))))


def _written_identifier(identifier: SignedIdentifier) -> str:
    content = _leaf("Id", identifier.id)
    policy = identifier.policy
    if policy is not None:
        parts = []
        if policy.start is not None:
            parts.append(_element("Start", format_date_time_fixed(policy.start)))
        if policy.expiry is not None:
            parts.append(_element("Expiry", format_date_time_fixed(policy.expiry)))
        if policy.permission is not None:
            parts.append(_element("Permission", policy.permission))
        content += _element("AccessPolicy", "".join(parts))
    return _element("SignedIdentifier", content)


def write_service_properties(properties: ServiceProperties, version: str) -> bytes:
    """The service properties in the form of a version (auth 8.1)."""
    logging = properties.logging
    content = _element(
        "Logging",
        _element("Version", _ANALYTICS_VERSION)
        + _flag("Read", logging.read)
        + _flag("Write", logging.write)
        + _flag("Delete", logging.delete)
        + _written_retention(logging.retention_days),
    )
    if version < VERSION_OF_HOURS:
        content += _written_metrics("Metrics", properties.hour_metrics)
    else:
        content += _written_metrics("HourMetrics", properties.hour_metrics)
        content += _written_metrics("MinuteMetrics", properties.minute_metrics)
        content += _element("Cors", "".join(map(_written_cors_rule, properties.cors)))
    return _document(_element("StorageServiceProperties", content))


def _written_retention(days: int | None) -> str:
    content = _flag("Enabled", days is not None)
    if days is not None:
        content += _element("Days", str(days))
    return _element("RetentionPolicy", content)


def _written_metrics(name: str, metrics: Metrics) -> str:
    content = _element("Version", _ANALYTICS_VERSION) + _flag("Enabled", metrics.enabled)
    if metrics.include_apis is not None:
        content += _flag("IncludeAPIs", metrics.include_apis)
    return _element(name, content + _written_retention(metrics.retention_days))


def _written_cors_rule(rule: CorsRule) -> str:
    content = (
        _leaf("AllowedMethods", ",".join(rule.allowed_methods))
        + _leaf("AllowedOrigins", ",".join(rule.allowed_origins))
        + _leaf("AllowedHeaders", ",".join(rule.allowed_headers))
        + _leaf("ExposedHeaders", ",".join(rule.exposed_headers))
        + _element("MaxAgeInSeconds", str(rule.max_age_seconds))
    )
    return _element("CorsRule", content)


def write_user_delegation_key(key: UserDelegationKey) -> bytes:
    """A user delegation key. Elements and order are those of Blob and Queue (auth 3.11)."""
    content = (
        ("SignedOid", key.object_id),
        ("SignedTid", key.tenant_id),
        ("SignedStart", key.start),
        ("SignedExpiry", key.expiry),
        ("SignedService", key.service),
        ("SignedVersion", key.version),
        ("Value", base64.b64encode(key.value).decode("ascii")),
    )
    leaves = "".join(_leaf(name, text) for name, text in content)
    return _document(_element("UserDelegationKey", leaves))


def write_service_stats(last_sync: int) -> bytes:
    """Replication statistics: live, and complete up to this time in ticks (auth 9)."""
    time = datetime(1, 1, 1, tzinfo=UTC) + timedelta(seconds=last_sync // TICKS_PER_SECOND)
    last_sync_time = _element("LastSyncTime", format_datetime(time, usegmt=True))
    replication = _element("GeoReplication", _element("Status", "live") + last_sync_time)
    return _document(_element("StorageServiceStats", replication))


_MORE: Final = ("entities", "waits", "empty", "automatic")
"""Members that an index has only if they say something."""


def write_indexes(found: IndexesFound) -> bytes:
    """A table's indexes (docs/protocol/indexes.md)."""
    more = () if found.can_make is None else _MORE
    indexes = [
        {
            "property": index.property,
            "withinPartition": index.within_partition,
            "state": index.state,
            **{name: value for name in more if (value := getattr(index, name))},
        }
        for index in found.indexes
    ]
    changes = {"changes": True} if more and found.keeps_changes else {}
    return orjson.dumps({"indexes": indexes, **changes})


_VERSION_OF_STRICT_ACCEPT: Final = "2019-07-07"
"""From this version on, setting policies needs XML in Accept (wire 3.8)."""
_VERSION_OF_JSON_REFUSAL: Final = "2020-08-04"
"""From this version on, a client that asks to read policies as JSON alone is refused, in JSON (wire 3.8)."""
_VERSION_WITHOUT_ANY: Final = "2014-02-14"
"""The one version that refuses `*/*`, as recorded (wire 3.8)."""
_XML_TYPES: Final = (b"application/xml", b"text/xml")


def get_table_acl(decoded: DecodedRequest) -> Operation:
    if decoded.raw.method != "HEAD":
        _require_accepted(decoded, _asks_for_json_alone, _VERSION_OF_JSON_REFUSAL)
    return GetTableAcl(table_in_url(decoded.address))


def set_table_acl(decoded: DecodedRequest) -> Operation:
    _require_accepted(decoded, _lacks_xml, _VERSION_OF_STRICT_ACCEPT)
    return SetTableAcl(table_in_url(decoded.address), read_signed_identifiers(decoded.body))


def _require_accepted(
    decoded: DecodedRequest, is_refused: Callable[[bytes], bool], since: str
) -> None:
    """Raise for an Accept that is refused from a version on, and for `*/*` in the version that refuses it."""
    accept, version = decoded.raw.headers.get(b"accept", b""), decoded.version
    is_any = accept.strip() == b"*/*" and version == _VERSION_WITHOUT_ANY
    if is_any or (version >= since and is_refused(accept.lower())):
        raise StorageError("MediaTypeNotSupported")


def _lacks_xml(accept: bytes) -> bool:
    return bool(accept) and not any(media_type in accept for media_type in _XML_TYPES)


def _asks_for_json_alone(accept: bytes) -> bool:
    return bool(re.search(rb"application/json(?![\w.+-])", accept)) and b"xml" not in accept


def list_indexes(decoded: DecodedRequest) -> Operation:
    return ListIndexes(table_in_url(decoded.address))


def get_table_expiry(decoded: DecodedRequest) -> Operation:
    return GetTableExpiry(decoded.address.table)


def set_table_expiry(decoded: DecodedRequest) -> Operation:
    members = {"suspended": False} | decode_object(decoded.body)
    try:
        policy = ExpiryPolicy.from_members(members)
    except ValueError as error:
        raise StorageError("InvalidInput") from error
    if policy.members() != members:  # the request says more than would be stored
        raise StorageError("InvalidInput")
    return SetTableExpiry(table_in_url(decoded.address), policy)


def set_service_properties(decoded: DecodedRequest) -> Operation:
    return SetServiceProperties(read_service_properties(decoded.body, decoded.version))


def get_user_delegation_key(decoded: DecodedRequest) -> Operation:
    return GetUserDelegationKey(*read_key_info(decoded.body))


_XML: Final = b"application/xml"
_JSON: Final = b"application/json"
_WRITERS: Final[dict[type, tuple[Callable[[Any, str], bytes], bytes]]] = {
    TableAclFound: (lambda found, _: write_signed_identifiers(found.identifiers), _XML),
    ServicePropertiesFound: (
        lambda found, version: write_service_properties(found.properties, version),
        _XML,
    ),
    ServiceStats: (lambda found, _: write_service_stats(found.last_sync), _XML),
    UserDelegationKey: (lambda key, _: write_user_delegation_key(key), _XML),
    TableExpiryFound: (
        lambda found, _: orjson.dumps({} if found.policy is None else found.policy.members()),
        _JSON,
    ),
    ExpiryCountFound: (lambda found, _: orjson.dumps(found.members), _JSON),
    IndexesFound: (lambda found, _: write_indexes(found), _JSON),
}
"""What writes a result in the form of a version, and its type: XML (wire 2.4), or JSON for what is ours."""


def respond_on_service(
    operation: Operation, result: Result, _form: Form, stamp: Stamp
) -> RawResponse:
    """The response to an operation that succeeded."""
    if type(result) in _WRITERS:
        write, content_type = _WRITERS[type(result)]
        response = _document_answer(write(result, stamp.version), stamp, content_type)
        if isinstance(result, IndexesFound) and result.can_make is not None:
            response.headers.append((INDEXES_HEADER.encode(), result.can_make.encode()))
        return response
    if isinstance(result, Accepted) and result.count is not None:
        response = _document_answer(orjson.dumps({"count": result.count}), stamp, _JSON)
        response.status = 202
        return response
    if isinstance(operation, SetServiceProperties) or isinstance(result, Accepted):
        return RawResponse(202, headers_of(stamp))
    return RawResponse(204, [*headers_of(stamp), (b"content-length", b"0")])


def respond_with_service_error(
    error: StorageError, request: RawRequest, stamp: Stamp, now: int
) -> RawResponse:
    """The response to a request that failed after the service's front door (auth 5.3). `now` is in ticks.

    It is XML, except for a client that is refused because it asks for JSON alone (wire 3.8).
    """
    response = _document_answer(xml_error(error, stamp, now), stamp)
    is_refused = error.code == "MediaTypeNotSupported" and stamp.version >= _VERSION_OF_JSON_REFUSAL
    if is_refused and _asks_for_json_alone(request.headers.get(b"accept", b"").lower()):
        body = json_error(error.code, message_of(error, stamp, now))
        response = _document_answer(body, stamp, _JSON)
    response.status, response.reason = error.status, error.text
    if stamp.version >= VERSION_XML_ERROR_CODE:
        response.headers.append((b"x-ms-error-code", error.code.encode("ascii")))
    response.headers.extend((name.lower(), value) for name, value in error.headers)
    return response


def _document_answer(body: bytes, stamp: Stamp, content_type: bytes = _XML) -> RawResponse:
    return RawResponse(200, [*headers_of(stamp), (b"content-type", content_type)], body)


def headers_of(stamp: Stamp) -> list[tuple[bytes, bytes]]:
    """The headers of every answer to a request with `comp` or `restype`."""
    headers = [(b"server", SERVER), (b"x-ms-request-id", stamp.request_id.encode("ascii"))]
    if stamp.version >= VERSION_ECHOED:
        headers.append((b"x-ms-version", stamp.version.encode("latin-1")))
    if stamp.client_request_id is not None:
        headers.append((b"x-ms-client-request-id", stamp.client_request_id))
    return headers
