"""The protocol as tables: every row of tests/spec that is one request is sent to the service in this process."""

from __future__ import annotations

import pytest

from wire.case_tables import Row, check, parameters, prepare, send
from wire.service_under_test import ServiceUnderTest

TABLES = (
    "address",
    "hosts",
    "negotiate",
    "atom",
    "etag",
    "continuation",
    "select",
    "table_names",
    "limits",
    "versions",
    "writes",
    "table_acl",
    "service_properties",
    "cors",
)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(*case.values, id=f"{name}: {case.id}")
        for name in TABLES
        for case in parameters(f"{name}.toml")
    ],
)
def test_the_service_answers(service: ServiceUnderTest, row: Row) -> None:
    prepare(service, row)
    check(row, send(service, row))
