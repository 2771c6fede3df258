"""The XML documents of the service: stored access policies, service properties, replication statistics.

Reads what clients send, whatever the order of its elements, and writes what the service writes to the byte: a byte
order mark, one order, times of seven digits. Every rule for the values stands here (auth 7, 8.2); what breaks one is
`InvalidXmlDocument`, as recorded. Knows documents only, neither HTTP nor what is stored.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Final
from xml.etree.ElementTree import Element

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND
from tablestone.edm import format_date_time_fixed
from tablestone.entity import utf16_length
from tablestone.errors import StorageError
from tablestone.operations import AccessPolicy, SignedIdentifier, UserDelegationKey
from tablestone.service_properties import (
    Changes,
    CorsRule,
    Logging,
    Metrics,
    ServiceProperties,
    is_header_name,
)
from tablestone.wire.instants import parse_instant
from tablestone.wire.negotiate import VERSION_JSON, VERSIONS
from tablestone.wire.xml_input import parse_xml

VERSION_OF_HOURS: Final = VERSION_JSON
"""From here on HourMetrics and MinuteMetrics instead of Metrics, CORS, and roots that may be left out (wire 10.1)."""

_DECLARATION: Final = '\ufeff<?xml version="1.0" encoding="utf-8"?>'
_PERMISSIONS: Final = frozenset("raud")
_ORIGIN = re.compile(r"[!-~]+")
"""Origins are ASCII: a browser sends other names of hosts in Punycode."""
_NUMBER = re.compile(r"\d{1,10}", re.ASCII)
_METHODS: Final = frozenset(("DELETE", "GET", "HEAD", "MERGE", "PATCH", "POST", "OPTIONS", "PUT"))
"""What a CORS rule may allow (auth 8.2); newer SDKs have browsers send PATCH."""
_ANALYTICS_VERSION: Final = "1.0"


def _invalid(reason: str) -> StorageError:
    return StorageError("InvalidXmlDocument", early=True, reason=reason)


def _require(holds: object, reason: str) -> None:
    if not holds:
        raise _invalid(reason)


# --- Reading -------------------------------------------------------------------------------------------------------


def _elements(parent: Element) -> Iterable[Element]:
    """The elements inside one that holds nothing else."""
    texts = [parent.text, *(child.tail for child in parent)]
    _require(not any(text and text.strip() for text in texts), f"text in {parent.tag}")
    return parent


def _members(parent: Element, names: tuple[str, ...], *optional: str) -> dict[str, Element]:
    """The elements inside one by name: each at most once, those of `names` exactly once, in any order."""
    found: dict[str, Element] = {}
    for child in _elements(parent):
        _require(child.tag in names or child.tag in optional, f"{child.tag} in {parent.tag}")
        _require(child.tag not in found, f"{child.tag} twice in {parent.tag}")
        found[child.tag] = child
    missing = [name for name in names if name not in found]
    _require(not missing, f"no {missing} in {parent.tag}")
    return found


def _text(element: Element) -> str:
    """The text of an element that holds nothing else."""
    _require(len(element) == 0, f"elements in {element.tag}")
    return element.text or ""


def _optional_text(element: Element | None) -> str | None:
    """The text of an element, stripped; None if it is empty or not there."""
    return None if element is None else _text(element).strip() or None


def _boolean(element: Element) -> bool:
    """`true` and `false`, also with a capital (wire 3.5)."""
    text = _text(element).strip().lower()
    _require(text in {"true", "false"}, f"{element.tag} is {text!r}")
    return text == "true"


def _number(element: Element) -> int:
    text = _text(element).strip()
    _require(_NUMBER.fullmatch(text), f"{element.tag} is {text!r}")
    return int(text)


def read_key_info(body: bytes) -> tuple[int | None, int]:
    """From when (None: now) to when a user delegation key is wanted, in ticks (auth 3.11)."""
    root = parse_xml(body)
    _require(root.tag == "KeyInfo", root.tag)
    found = _members(root, ("Expiry",), "Start", "DelegatedUserTid")
    if _optional_text(found.get("DelegatedUserTid")) is not None:
        # Such a key signs only for users of that tenant, which no signature here can be bound to.
        raise StorageError("NotImplemented", early=True)
    expiry = _instant(found["Expiry"])
    if expiry is None:
        raise _invalid("no Expiry")
    return _instant(found.get("Start")), expiry


def read_signed_identifiers(body: bytes) -> tuple[SignedIdentifier, ...]:
    """The stored access policies of a document; none if there is no document at all (auth 7)."""
    if not body:
        return ()
    root = parse_xml(body)
    _require(root.tag == "SignedIdentifiers", root.tag)
    identifiers = tuple(_signed_identifier(element) for element in _elements(root))
    _require(len(identifiers) <= limits.SIGNED_IDENTIFIERS_MAX, "too many identifiers")
    ids = {identifier.id for identifier in identifiers}
    _require(len(ids) == len(identifiers), "an id twice")
    return identifiers


def _signed_identifier(element: Element) -> SignedIdentifier:
    _require(element.tag == "SignedIdentifier", element.tag)
    members = _members(element, ("Id",), "AccessPolicy")
    name = _text(members["Id"])
    _require(0 < utf16_length(name) <= limits.SIGNED_IDENTIFIER_LENGTH_MAX, "length of an id")
    policy = members.get("AccessPolicy")
    return SignedIdentifier(name, None if policy is None else _access_policy(policy))


def _access_policy(element: Element) -> AccessPolicy | None:
    """A policy that says nothing is none (recorded)."""
    members = _members(element, (), "Start", "Expiry", "Permission")
    permission = _optional_text(members.get("Permission"))
    if permission is not None:  # in any order, each letter once (auth 3.1)
        letters = frozenset(permission)
        _require(letters <= _PERMISSIONS and len(letters) == len(permission), "a permission")
    policy = AccessPolicy(
        _instant(members.get("Start")), _instant(members.get("Expiry")), permission
    )
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
    """What a document changes: the roots it has; those it leaves out keep their values (auth 8.2)."""
    root = parse_xml(body)
    _require(root.tag == "StorageServiceProperties", root.tag)
    if version < VERSION_OF_HOURS:
        members = _members(root, ("Logging", "Metrics"), "DefaultServiceVersion")
    else:
        members = _members(
            root, (), "Logging", "HourMetrics", "MinuteMetrics", "Cors", "DefaultServiceVersion"
        )
    _require(members, "no settings")
    changes: Changes = {}
    for name, element in members.items():
        field, read = _ROOTS[name]
        changes[field] = read(element)
    return changes


def _retention_days(element: Element) -> int | None:
    """None for ever. Days of a retention that is not enabled mean nothing."""
    members = _members(element, ("Enabled",), "Days")
    if not _boolean(members["Enabled"]):
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
    """IncludeAPIs is needed where metrics are enabled and means nothing elsewhere."""
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
    _require(element.tag == "CorsRule", element.tag)
    members = _members(
        element,
        (
            "AllowedOrigins",
            "AllowedMethods",
            "AllowedHeaders",
            "ExposedHeaders",
            "MaxAgeInSeconds",
        ),
    )
    origins = _listed(members["AllowedOrigins"])
    _require(all(map(_ORIGIN.fullmatch, origins)), "an origin that no browser can send")
    _require(0 < len(origins) <= limits.CORS_ORIGINS_MAX, "origins of a CORS rule")
    methods = tuple(method.upper() for method in _listed(members["AllowedMethods"]))
    _require(methods and set(methods) <= _METHODS, "methods of a CORS rule")
    return CorsRule(
        origins,
        methods,
        _header_names(members["AllowedHeaders"]),
        _header_names(members["ExposedHeaders"]),
        _number(members["MaxAgeInSeconds"]),
    )


def _listed(element: Element) -> tuple[str, ...]:
    """The items between commas, none of them longer than allowed."""
    items = tuple(item.strip() for item in _text(element).split(",") if item.strip())
    _require(all(len(item) <= limits.CORS_ITEM_LENGTH_MAX for item in items), "length of an item")
    return items


def _header_names(element: Element) -> tuple[str, ...]:
    """Names of headers as the service gives them back: those that end in `*` behind the others (wire 3.5)."""
    names = _listed(element)
    _require(all(map(is_header_name, names)), "a name that no header can have")
    prefixes = [name for name in names if name.endswith("*")]
    literal = [name for name in names if not name.endswith("*")]
    _require(len(literal) <= limits.CORS_HEADERS_MAX, "names of headers")
    _require(len(prefixes) <= limits.CORS_HEADER_PREFIXES_MAX, "prefixes of headers")
    return (*literal, *prefixes)


def _default_version(element: Element) -> str | None:
    """Empty, it names none any more."""
    version = _optional_text(element)
    _require(version is None or version in VERSIONS, "DefaultServiceVersion")
    return version


_ROOTS: Final[dict[str, tuple[str, Callable[[Element], object]]]] = {
    "Logging": ("logging", _logging),
    "Metrics": ("hour_metrics", _metrics),
    "HourMetrics": ("hour_metrics", _metrics),
    "MinuteMetrics": ("minute_metrics", _metrics),
    "Cors": ("cors", _cors),
    "DefaultServiceVersion": ("default_version", _default_version),
}
"""The field of `ServiceProperties` that a root element is about, and its reader."""


# --- Writing -------------------------------------------------------------------------------------------------------


def _element(name: str, content: str) -> str:
    return f"<{name}>{content}</{name}>" if content else f"<{name} />"


def _leaf(name: str, text: str) -> str:
    return _element(name, html.escape(text, quote=False).replace("\r", "&#xD;"))


def _flag(name: str, value: bool) -> str:  # noqa: FBT001 - it is what is written
    return _element(name, "true" if value else "false")


def _document(text: str) -> bytes:
    return (_DECLARATION + text).encode("utf-8")


def write_signed_identifiers(identifiers: Iterable[SignedIdentifier]) -> bytes:
    """The stored access policies of a table (wire 3.8)."""
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
    """The service properties as a version knows them (auth 8.1)."""
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
    if properties.default_version is not None:
        content += _element("DefaultServiceVersion", properties.default_version)
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
    """The elements of Blob and Queue, in their order (auth 3.11)."""
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
    """Replication is live, and was complete at this moment (ticks): there is one copy (auth 9)."""
    moment = datetime(1, 1, 1, tzinfo=UTC) + timedelta(seconds=last_sync // TICKS_PER_SECOND)
    replication = _element("Status", "live") + _element(
        "LastSyncTime", format_datetime(moment, usegmt=True)
    )
    return _document(_element("StorageServiceStats", _element("GeoReplication", replication)))
