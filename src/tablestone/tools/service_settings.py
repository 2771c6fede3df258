"""Stored access policies of a table, and the properties of the service, read and written by the official SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from azure.data.tables import (
    TableAccessPolicy,
    TableAnalyticsLogging,
    TableCorsRule,
    TableMetrics,
    TableRetentionPolicy,
)

from tablestone.model.service_properties import CorsRule, Logging, Metrics, ServiceProperties
from tablestone.tools.client import TableEndpoint


@dataclass(frozen=True)
class PolicyTexts:
    """A stored access policy: its id, the letters of its permissions, and its times as the service writes them."""

    id: str
    permission: str = ""
    start: str = ""
    expiry: str = ""


def read_policies(endpoint: TableEndpoint, table: str) -> list[PolicyTexts]:
    """The stored access policies of a table."""
    return endpoint.ask(
        lambda sdk: _policies(sdk.get_table_client(table).get_table_access_policy())
    )


def _policies(found: Mapping[str, TableAccessPolicy | None]) -> list[PolicyTexts]:
    return [
        PolicyTexts(name)
        if policy is None
        else PolicyTexts(name, policy.permission or "", _time(policy.start), _time(policy.expiry))
        for name, policy in found.items()
    ]


def _time(moment: Any) -> str:
    """A time as the service wrote it: the SDK keeps the text, with all of its digits."""
    return "" if not moment else str(getattr(moment, "tables_service_value", None) or moment)


def write_policies(endpoint: TableEndpoint, table: str, policies: list[PolicyTexts]) -> None:
    """Replace the stored access policies of a table."""
    given = {
        each.id: TableAccessPolicy(
            start=each.start or None, expiry=each.expiry or None, permission=each.permission or None
        )
        for each in policies
    }
    endpoint.ask(lambda sdk: sdk.get_table_client(table).set_table_access_policy(given))


def read_properties(endpoint: TableEndpoint) -> ServiceProperties:
    """The properties of the service, without the default version, which the SDK does not know."""
    return endpoint.ask(lambda sdk: _properties(sdk.get_service_properties()))


def _properties(found: Mapping[str, Any]) -> ServiceProperties:
    logging = found["analytics_logging"]
    return ServiceProperties(
        Logging(logging.read, logging.write, logging.delete, _days(logging.retention_policy)),
        _metrics(found["hour_metrics"]),
        _metrics(found["minute_metrics"]),
        tuple(
            CorsRule(
                tuple(rule.allowed_origins),
                tuple(rule.allowed_methods),
                tuple(rule.allowed_headers),
                tuple(rule.exposed_headers),
                rule.max_age_in_seconds,
            )
            for rule in found["cors"]
        ),
    )


def _metrics(found: Any) -> Metrics:
    return Metrics(found.enabled, found.include_apis, _days(found.retention_policy))


def _days(policy: Any) -> int | None:
    return policy.days if policy.enabled else None


def write_properties(endpoint: TableEndpoint, given: ServiceProperties) -> None:
    """Replace the properties of the service, but for the default version."""
    logging = TableAnalyticsLogging(
        read=given.logging.read,
        write=given.logging.write,
        delete=given.logging.delete,
        retention_policy=_retention(given.logging.retention_days),
    )
    rules = [
        TableCorsRule(
            list(rule.allowed_origins),
            list(rule.allowed_methods),
            allowed_headers=list(rule.allowed_headers),
            exposed_headers=list(rule.exposed_headers),
            max_age_in_seconds=rule.max_age_seconds,
        )
        for rule in given.cors
    ]
    endpoint.ask(
        lambda sdk: sdk.set_service_properties(
            analytics_logging=logging,
            hour_metrics=_sent_metrics(given.hour_metrics),
            minute_metrics=_sent_metrics(given.minute_metrics),
            cors=rules,
        )
    )


def _sent_metrics(given: Metrics) -> TableMetrics:
    # The service takes IncludeAPIs only where metrics are enabled.
    apis = {"include_apis": bool(given.include_apis)} if given.enabled else {}
    return TableMetrics(
        enabled=given.enabled, retention_policy=_retention(given.retention_days), **apis
    )


def _retention(days: int | None) -> TableRetentionPolicy:
    return TableRetentionPolicy(enabled=True, days=days) if days else TableRetentionPolicy()
