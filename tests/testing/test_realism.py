"""The switch for realism, and each of its parts: names that stay taken, partition ranges, a secondary that lags."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.data.tables import TableClient, TableServiceClient

from tablestone.testing import StorageAccount, TableStorage
from tablestone.testing.realism import PARTITIONS_PER_RANGE, begins_range

ENTITY = {"PartitionKey": "p", "RowKey": "r", "total": 5}
ROWS = [{"PartitionKey": f"{n:03}", "RowKey": "r", "total": n} for n in range(80)]


@contextmanager
def both_sides(account: StorageAccount) -> Iterator[tuple[TableClient, TableClient]]:
    """The table Orders on the primary and on the secondary."""
    behind = account.connection_string.replace(account.endpoint, account.endpoint + "-secondary")
    with (
        TableClient.from_connection_string(account.connection_string, "Orders") as primary,
        TableClient.from_connection_string(behind, "Orders", retry_total=0) as secondary,
    ):
        yield primary, secondary


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest) -> Iterator[TableStorage]:
    with TableStorage(engine=request.param) as storage:
        yield storage


def total(table: TableClient, row: str = "r") -> int | None:
    try:
        found: int = table.get_entity("p", row)["total"]
    except ResourceNotFoundError:
        return None
    return found


def test_a_frozen_secondary_keeps_its_state(storage: TableStorage) -> None:
    account = storage.create_account()
    storage.seed({"Orders": [ENTITY]}, account=account)
    with both_sides(account) as (primary, secondary):
        storage.secondary.freeze()
        for _ in range(2):
            primary.upsert_entity(ENTITY | {"total": 6})
            primary.upsert_entity(ENTITY | {"RowKey": "new"})
            storage.clock.advance(days=1)
            assert (total(secondary), total(secondary, "new"), total(primary)) == (5, None, 6)
        storage.faults.clear()
        assert (total(secondary), total(secondary, "new")) == (6, 5)


def test_a_secondary_follows_so_many_seconds_later(storage: TableStorage) -> None:
    account = storage.create_account()
    storage.seed({"Orders": [ENTITY, ENTITY | {"RowKey": "old"}]}, account=account)
    with both_sides(account) as (primary, secondary):
        storage.secondary.follow(10_000)
        primary.upsert_entity(ENTITY | {"total": 6})
        storage.clock.advance(seconds=6_000)
        primary.submit_transaction(
            [("upsert", ENTITY | {"total": 7}), ("delete", ENTITY | {"RowKey": "old"})]
        )
        assert (total(secondary), total(secondary, "old")) == (5, 5)
        storage.clock.advance(seconds=6_000)
        assert (total(secondary), total(secondary, "old")) == (6, 5)
        storage.clock.advance(seconds=6_000)
        assert (total(secondary), total(secondary, "old")) == (7, None)
        assert secondary.get_entity("p", "r").metadata == primary.get_entity("p", "r").metadata


def test_what_a_test_prepares_is_on_both_sides() -> None:
    with TableStorage(realism=True) as storage, both_sides(storage.account) as (primary, secondary):
        storage.seed({"Orders": [ENTITY]})
        snapshot = storage.snapshot()
        primary.upsert_entity(ENTITY | {"total": 6})
        assert (total(primary), total(secondary)) == (6, 5)
        storage.seed({"Orders": [ENTITY | {"total": 7}]})
        assert (total(primary), total(secondary)) == (7, 7)
        storage.restore(snapshot)
        assert (total(primary), total(secondary)) == (5, 5)
        storage.reset()
        assert total(secondary) is None


@pytest.mark.parametrize(("seconds", "difference"), [(0, 0), (7200, 7200)])
def test_the_statistics_say_how_far_it_is_behind(seconds: float, difference: float) -> None:
    with (
        TableStorage() as storage,
        TableServiceClient.from_connection_string(storage.connection_string) as service,
    ):
        storage.secondary.follow(seconds)
        storage.clock.freeze(datetime(2031, 5, 6, 7, tzinfo=UTC))
        replicated: object = service.get_service_stats()["geo_replication"]["last_sync_time"]  # type: ignore[index]
        assert str(storage.clock.now() - timedelta(seconds=difference))[:19] in str(
            replicated
        ).replace("T", " ")


def test_a_page_ends_with_its_partition_range() -> None:
    """The expected boundaries come from the function that decides them; entities and order must be right."""
    starts = [
        number
        for number, row in enumerate(ROWS)
        if number and begins_range(b"\x02" + bytes(8) + str(row["PartitionKey"]).encode())
    ]
    assert len(ROWS) / PARTITIONS_PER_RANGE / 2 < len(starts) < len(ROWS) / 2
    with (
        TableStorage(realism=True) as storage,
        TableServiceClient.from_connection_string(storage.connection_string) as service,
    ):
        storage.seed({"Orders": ROWS})
        orders = service.get_table_client("Orders")
        for kept, pages in (
            (ROWS, orders.list_entities()),
            (ROWS, orders.query_entities("total lt 1000")),
            ([], orders.query_entities("total gt 1000")),
            (ROWS[20:60], orders.query_entities("PartitionKey ge '020' and PartitionKey lt '060'")),
            ([ROWS[70]], orders.query_entities("total eq 70")),
        ):
            read = [list(page) for page in pages.by_page()]
            assert [entity for page in read for entity in page] == kept
            for page in read:
                numbers = [entity["total"] for entity in page]
                assert not set(numbers[1:]) & set(starts)
        whole = [list(page) for page in orders.list_entities().by_page()]
        assert [page[0]["total"] for page in whole] == [0, *starts]
        empty = [list(page) for page in orders.query_entities("total gt 1000").by_page()]
        assert len(empty) == len(whole)
        small = [list(page) for page in orders.list_entities(results_per_page=1).by_page()]
        assert [page[0] for page in small] == ROWS


def test_one_partition_is_never_divided_by_a_range() -> None:
    with (
        TableStorage(realism=True) as storage,
        TableServiceClient.from_connection_string(storage.connection_string) as service,
    ):
        rows = [ENTITY | {"RowKey": f"{n:04}"} for n in range(1000)]
        storage.seed({"Orders": rows})
        orders = service.get_table_client("Orders")
        for query in ("PartitionKey eq 'p'", "total eq 5"):
            assert [len(list(page)) for page in orders.query_entities(query).by_page()] == [1000]


def test_a_name_is_not_free_at_once() -> None:
    with (
        TableStorage(realism=True) as storage,
        TableServiceClient.from_connection_string(
            storage.connection_string, retry_total=0
        ) as service,
    ):
        service.create_table("Orders")
        service.delete_table("Orders")
        storage.clock.advance(seconds=39)
        with pytest.raises(HttpResponseError, match="TableBeingDeleted"):
            service.create_table("Orders")
        storage.clock.advance(seconds=2)
        service.create_table("Orders")


def test_without_the_switch_none_of_it_is_seen() -> None:
    with TableStorage() as storage, both_sides(storage.account) as (primary, secondary):
        storage.seed({"Orders": ROWS})
        assert [len(list(page)) for page in primary.list_entities().by_page()] == [80]
        primary.upsert_entity(ENTITY)
        assert total(secondary) == 5
        with TableServiceClient.from_connection_string(storage.connection_string) as service:
            service.delete_table("Orders")
            service.create_table("Orders")
