"""Stored access policies of a table, and the properties of the service with its CORS rules, as values of texts.

Knows what the official SDK knows of them; knows no page and no entity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from azure.data.tables import (
    TableAccessPolicy,
    TableAnalyticsLogging,
    TableCorsRule,
    TableMetrics,
    TableRetentionPolicy,
)

from tablestone.tools.client import TableEndpoint

POLICIES_MAX: Final = 5
"""Stored access policies that a table may have."""
RULES_MAX: Final = 5
"""CORS rules that an account may have."""


@dataclass(frozen=True)
class AccessPolicy:
    """A stored access policy: its id, the letters of its permissions, and its times as the service writes them."""

    id: str
    permission: str = ""
    start: str = ""
    expiry: str = ""


@dataclass(frozen=True)
class CorsRule:
    """A CORS rule; each list is a text with commas."""

    origins: str
    methods: str
    allowed_headers: str = ""
    exposed_headers: str = ""
    max_age_seconds: int = 0


@dataclass(frozen=True)
class Metrics:
    """Settings of metrics; `retention_days` is 0 without a retention policy."""

    enabled: bool = False
    include_apis: bool = False
    retention_days: int = 0


@dataclass(frozen=True)
class ServiceProperties:
    """The properties of an account's table service. `logged` are some of the words read, write and delete."""

    logged: frozenset[str] = frozenset()
    log_retention_days: int = 0
    hour: Metrics = field(default_factory=Metrics)
    minute: Metrics = field(default_factory=Metrics)
    cors: tuple[CorsRule, ...] = ()


def read_policies(endpoint: TableEndpoint, table: str) -> list[AccessPolicy]:
    """The stored access policies of a table."""
    return endpoint.ask(
        lambda sdk: _policies(sdk.get_table_client(table).get_table_access_policy())
    )


def _policies(found: Mapping[str, TableAccessPolicy | None]) -> list[AccessPolicy]:
    return [
        AccessPolicy(name)
        if policy is None
        else AccessPolicy(name, policy.permission or "", _time(policy.start), _time(policy.expiry))
        for name, policy in found.items()
    ]


def write_policies(endpoint: TableEndpoint, table: str, policies: list[AccessPolicy]) -> None:
    """Replace the stored access policies of a table."""
    given = {
        each.id: TableAccessPolicy(
            start=each.start or None, expiry=each.expiry or None, permission=each.permission or None
        )
        for each in policies
    }
    endpoint.ask(lambda sdk: sdk.get_table_client(table).set_table_access_policy(given))


def read_properties(endpoint: TableEndpoint) -> ServiceProperties:
    """The properties of the service."""
    return endpoint.ask(lambda sdk: _properties(sdk.get_service_properties()))


def _properties(found: Mapping[str, Any]) -> ServiceProperties:
    logging = found["analytics_logging"]
    return ServiceProperties(
        frozenset(word for word in ("read", "write", "delete") if getattr(logging, word)),
        _days(logging.retention_policy),
        _metrics(found["hour_metrics"]),
        _metrics(found["minute_metrics"]),
        tuple(
            CorsRule(
                ",".join(rule.allowed_origins),
                ",".join(rule.allowed_methods),
                ",".join(rule.allowed_headers),
                ",".join(rule.exposed_headers),
                rule.max_age_in_seconds,
            )
            for rule in found["cors"]
        ),
    )


def write_properties(endpoint: TableEndpoint, given: ServiceProperties) -> None:
    """Replace the properties of the service."""
    logging = TableAnalyticsLogging(
        **dict.fromkeys(given.logged, True), retention_policy=_retention(given.log_retention_days)
    )
    rules = [
        TableCorsRule(
            _list(rule.origins),
            _list(rule.methods),
            allowed_headers=_list(rule.allowed_headers),
            exposed_headers=_list(rule.exposed_headers),
            max_age_in_seconds=rule.max_age_seconds,
        )
        for rule in given.cors
    ]
    endpoint.ask(
        lambda sdk: sdk.set_service_properties(
            analytics_logging=logging,
            hour_metrics=_sent_metrics(given.hour),
            minute_metrics=_sent_metrics(given.minute),
            cors=rules,
        )
    )


def _time(moment: Any) -> str:
    """A time as the service wrote it: the SDK keeps the text, with all of its digits."""
    return "" if not moment else str(getattr(moment, "tables_service_value", None) or moment)


def _metrics(found: Any) -> Metrics:
    return Metrics(bool(found.enabled), bool(found.include_apis), _days(found.retention_policy))


def _sent_metrics(given: Metrics) -> TableMetrics:
    # The service takes IncludeAPIs only where metrics are enabled.
    apis = {"include_apis": given.include_apis} if given.enabled else {}
    return TableMetrics(
        enabled=given.enabled, retention_policy=_retention(given.retention_days), **apis
    )


def _days(policy: Any) -> int:
    return int(policy.days or 0) if policy.enabled else 0


def _retention(days: int) -> TableRetentionPolicy:
    return TableRetentionPolicy(enabled=True, days=days) if days else TableRetentionPolicy()


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
