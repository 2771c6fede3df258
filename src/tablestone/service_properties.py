"""Service properties as values: what an account's owner has set for logging, metrics and cross-origin requests.

Legal by construction: what is in them was checked where it was read. Logging and metrics are kept and given back and
have no effect: nothing here logs or counts for an account. Does not know XML, storage or HTTP.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Final

ANY: Final = "*"
"""In a CORS rule: every origin, or every header."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


def is_header_name(text: str) -> bool:
    """What HTTP lets a header be called (RFC 9110, 5.6.2); a prefix, which ends in `*`, is one too."""
    return _TOKEN.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Logging:
    """What of the service's use is to be logged, and for how many days (None: for ever)."""

    read: bool = False
    write: bool = False
    delete: bool = False
    retention_days: int | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """Whether to count the service's use, by operation too (None unless enabled), and for how many days."""

    enabled: bool = False
    include_apis: bool | None = None
    retention_days: int | None = None


@dataclass(frozen=True, slots=True)
class CorsRule:
    """Which cross-origin requests a browser may make; literal header names stand before those that end in `*`."""

    allowed_origins: tuple[str, ...]
    allowed_methods: tuple[str, ...]
    allowed_headers: tuple[str, ...]
    exposed_headers: tuple[str, ...]
    max_age_seconds: int


@dataclass(frozen=True, slots=True)
class ServiceProperties:
    """All of it. A fresh account has these defaults (wire 3.5).

    `default_version` is the version of requests that name none; None: the latest.
    """

    logging: Logging = Logging()
    hour_metrics: Metrics = Metrics()
    minute_metrics: Metrics = Metrics()
    cors: tuple[CorsRule, ...] = ()
    default_version: str | None = None


FRESH: Final = ServiceProperties()
"""The service properties of an account that nobody has set."""

Changes = dict[str, Any]
"""New values by the name of their field in `ServiceProperties`; a field that is not named keeps its value."""


def changed(properties: ServiceProperties, changes: Changes) -> ServiceProperties:
    """The properties with some of them replaced."""
    return dataclasses.replace(properties, **changes)


def to_members(properties: ServiceProperties) -> dict[str, Any]:
    """The properties as members of a JSON document."""
    members = dataclasses.asdict(properties)
    members["cors"] = [
        {name: list(value) if isinstance(value, tuple) else value for name, value in rule.items()}
        for rule in members["cors"]
    ]
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
        members["default_version"],
    )
