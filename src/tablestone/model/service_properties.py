"""Service properties as values: an account's settings for logging, metrics and cross-origin requests.

Valid by construction: `wire` checked the values. The settings for logging and metrics are stored and returned and have
no other effect: Tablestone has no analytics logs and metrics of an account. Does not know XML, storage or HTTP.
"""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Final

ANY: Final = "*"
"""In a CORS rule: every origin, or every header."""
CORS_METHODS: Final = frozenset(
    ("CONNECT", "DELETE", "GET", "HEAD", "MERGE", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")
)
"""The methods that a CORS rule may allow (auth 8.2). Newer SDKs use PATCH in browsers."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


def is_header_name(text: str) -> bool:
    """Whether the text is a valid name of a header (RFC 9110, 5.6.2), or a prefix that ends in `*`."""
    return _TOKEN.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Logging:
    """The operations to log, and the days to keep the log (None: for ever)."""

    read: bool = False
    write: bool = False
    delete: bool = False
    retention_days: int | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """Whether to count requests, also for each operation (None unless enabled), and the days to keep the counts."""

    enabled: bool = False
    include_apis: bool | None = None
    retention_days: int | None = None


@dataclass(frozen=True, slots=True)
class CorsRule:
    """The cross-origin requests that a rule permits; literal header names come before those that end in `*`."""

    allowed_origins: tuple[str, ...]
    allowed_methods: tuple[str, ...]
    allowed_headers: tuple[str, ...]
    exposed_headers: tuple[str, ...]
    max_age_seconds: int


@dataclass(frozen=True, slots=True)
class ServiceProperties:
    """All service properties of an account. A new account has these defaults (wire 3.5)."""

    logging: Logging = Logging()
    hour_metrics: Metrics = Metrics()
    minute_metrics: Metrics = Metrics()
    cors: tuple[CorsRule, ...] = ()


FRESH: Final = ServiceProperties()
"""The service properties of a new account."""

Changes = dict[str, Any]
"""New values by the name of their field in `ServiceProperties`; a field that is not named keeps its value."""


def to_members(properties: ServiceProperties) -> dict[str, Any]:
    """The properties as members of a JSON document."""
    members = dataclasses.asdict(properties)
    members["cors"] = [
        {name: list(value) if isinstance(value, tuple) else value for name, value in rule.items()}
        for rule in members["cors"]
    ]
    members["default_version"] = None  # builds that had a default version need the member
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
