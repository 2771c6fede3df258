"""The protocol as tables: every row of tests/spec that is one request is sent to the service in this process."""

from collections.abc import Iterator
from random import Random

import pytest

from spec_tables import Row
from storage.engines_under_test import URL
from storage.slow_engine import LEASE_SECONDS, SlowEngine
from tablestone.engines.leases import Leases
from wire.case_tables import check, parameters, prepare, send
from wire.service_under_test import ACCOUNT, ServiceUnderTest

TABLES = (
    "address",
    "hosts",
    "negotiate",
    "atom",
    "etag",
    "continuation",
    "select",
    "point_filter",
    "table_names",
    "limits",
    "versions",
    "writes",
    "table_acl",
    "service_properties",
    "cors",
)


DECIDED_BY_STORAGE = {
    "ConditionNotMet",
    "EntityAlreadyExists",
    "ResourceNotFound",
    "TableAlreadyExists",
    "TableNotFound",
    "UpdateConditionNotSatisfied",
}
"""The other refusals are decided by the request alone: an engine that is under test is not asked about them again."""
ROWS = [
    pytest.param(*case.values, id=f"{name}: {case.id}")
    for name in TABLES
    for case in parameters(f"{name}.toml")
    if URL is None or case.values[0].get("code") in {None, *DECIDED_BY_STORAGE}
]


@pytest.mark.parametrize("row", ROWS)
def test_the_service_answers(service: ServiceUnderTest, row: Row) -> None:
    _check_answer(service, row)


def _check_answer(service: ServiceUnderTest, row: Row) -> None:
    if row.get("forgets") and service.engine.capabilities.versions_outlive_rows:
        pytest.skip("the engine still knows the last version of a row that is gone")
    prepare(service, row)
    writes_nothing = "code" in row and not row.get("send", "GET").startswith("GET")
    before = _written(service) if writes_nothing else None
    check(row, send(service, row))
    if writes_nothing:
        assert _written(service) == before


def _written(service: ServiceUnderTest) -> list[bytes]:
    """The tables and the entities of the one that most rows write to."""
    answers = [service.exchange("GET", f"/{ACCOUNT}{path}") for path in ("/Tables", "/tab()")]
    return [answer.body if answer.status == 200 else b"" for answer in answers]


@pytest.fixture
def far_service() -> Iterator[ServiceUnderTest]:
    """An empty service whose engine is at the far end of a bad network."""
    service = ServiceUnderTest(
        reached=lambda engine: SlowEngine(
            engine, Random(2), leases=Leases(LEASE_SECONDS / 10), decides_first=True
        )
    )
    yield service
    service.close()


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_the_service_answers_the_same_on_an_engine_that_is_slow(
    far_service: ServiceUnderTest, row: Row
) -> None:
    _check_answer(far_service, row)
