"""Service properties as values: an account's settings for logging, metrics and cross-origin requests.

Valid by construction: `wire` checked the values. Settings for logging and metrics are only stored and returned, because
Tablestone has no analytics logs and metrics of an account. Does not know XML, storage or HTTP.
"""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Final

ANY: Final = "*"
"""Every origin, or every header, of a CORS rule."""
CORS_METHODS: Final = frozenset(
    ("CONNECT", "DELETE", "GET", "HEAD", "MERGE", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")
)
"""The methods that a CORS rule may allow (auth 8.2). Newer SDKs use PATCH in browsers."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


def is_header_name(text: str) -> bool:
    """Whether this is a header name (RFC 9110, 5.6.2), or a prefix that ends in `*`."""
    return _TOKEN.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Logging:
    """Which operations to log."""

    read: bool = False
    write: bool = False
    delete: bool = False
    retention_days: int | None = None
    """None: for ever."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Whether to count requests, and for each operation (None unless enabled)."""

    enabled: bool = False
    include_apis: bool | None = None
    retention_days: int | None = None
    """None: for ever."""


@dataclass(frozen=True, slots=True)
class CorsRule:
    """Permits cross-origin requests. Literal header names come before those that end in `*`."""

    allowed_origins: tuple[str, ...]
    allowed_methods: tuple[str, ...]
    allowed_headers: tuple[str, ...]
    exposed_headers: tuple[str, ...]
    max_age_seconds: int


@dataclass(frozen=True, slots=True)
class ServiceProperties:
    """A new account has these defaults (wire 3.5)."""

    logging: Logging = Logging()
    hour_metrics: Metrics = Metrics()
    minute_metrics: Metrics = Metrics()
    cors: tuple[CorsRule, ...] = ()


FRESH: Final = ServiceProperties()

Changes = dict[str, Any]
"""New values by the name of their field in `ServiceProperties`. Other fields keep their values."""


def to_members(properties: ServiceProperties) -> dict[str, Any]:
    """The properties as they are stored, as members of a JSON object."""
    members = dataclasses.asdict(properties)
    members["cors"] = [
        {name: list(value) if isinstance(value, tuple) else value for name, value in rule.items()}
        for rule in members["cors"]
    ]
    members["default_version"] = None  # older builds had a default version, and need the member
    return members


def from_members(members: dict[str, Any]) -> ServiceProperties:
    """The properties that `to_members` wrote; raises `KeyError` or `TypeError` for anything else."""
    return ServiceProperties(
        Logging(**members["logging"]),
        Metrics(**members["hour_metrics"]),
        Metrics(**members["minute_metrics"]),
        tuple(
            CorsRule(
                tuple(rule["allowed_origins"]),
                tuple(rule["allowed_methods"]),
                tuple(rule["allowed_headers"]),
                tuple(rule["exposed_headers"]),
                rule["max_age_seconds"],
            )
            for rule in members["cors"]
        ),
    )
