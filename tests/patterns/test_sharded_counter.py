"""A counter: each increment counts once, also when it is repeated; the sum has what was acknowledged before."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.data.tables import TableServiceClient

from patterns.conftest import Half
from table_patterns import AnotherSize, KeyPartError, NotCreated, ShardedCounter
from tablestone.testing.storage import StorageAccount, TableStorage


def test_increments_are_added(half: Half) -> None:
    counter = half.ShardedCounter(half.table(), "visits")
    counter.create(4)
    assert [counter.increment(), counter.increment(5), counter.increment(-2, "one")] == [True] * 3
    assert counter.total() == 4
    assert half.ShardedCounter(half.table(), "others/#").create() is None


def test_an_increment_counts_once_within_a_day(half: Half, table_storage: TableStorage) -> None:
    table = half.table()
    counter = half.ShardedCounter(table, "visits")
    counter.create(3)
    assert counter.increment(3, "order 5") is True
    table_storage.clock.advance(dt.timedelta(hours=23))
    assert counter.increment(3, "order 6") is True
    assert counter.forget() == 0
    assert counter.increment(3, "order 5") is False
    table_storage.clock.advance(dt.timedelta(hours=2))
    assert counter.forget() == 1
    assert counter.increment(3, "order 6") is False
    assert counter.total() == 6


@pytest.mark.parametrize("reset", ["before", "within", "after"])
def test_a_lost_answer_counts_once(half: Half, table_storage: TableStorage, reset: str) -> None:
    counter = half.ShardedCounter(half.table(retry_backoff_factor=0.01), "visits")
    counter.create(1)
    counter.increment()
    table_storage.faults.add(operation="EntityGroupTransaction", count=1, reset=reset)
    counter.increment(10)
    assert counter.total() == 11


def test_a_client_that_gives_up_may_ask_again(half: Half, table_storage: TableStorage) -> None:
    counter = half.ShardedCounter(half.table(retry_total=0), "visits")
    counter.create(2)
    table_storage.faults.add(operation="EntityGroupTransaction", count=1, reset="after")
    table_storage.faults.add(operation="GetEntity", nth=2, error="InternalError")
    with pytest.raises(AzureError):
        counter.increment(7, "order 5")
    table_storage.faults.clear()
    assert counter.increment(7, "order 5") is False
    assert counter.total() == 7


def test_many_clients_count_at_once(
    table_account: StorageAccount, table_storage: TableStorage
) -> None:
    with TableServiceClient.from_connection_string(table_account.connection_string) as service:
        ShardedCounter(service.create_table("Things"), "visits").create(3)
    table_storage.faults.add(operation="EntityGroupTransaction", probability=0.05, reset="after")

    def count(_: int) -> None:
        options = {"retry_backoff_factor": 0.01}
        with TableServiceClient.from_connection_string(
            table_account.connection_string, **options
        ) as service:
            counter = ShardedCounter(service.get_table_client("Things"), "visits")
            for _ in range(20):
                before = counter.total()
                counter.increment()
                assert counter.total() > before

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    with TableServiceClient.from_connection_string(table_account.connection_string) as service:
        assert ShardedCounter(service.get_table_client("Things"), "visits").total() == 80


def test_the_number_of_shards_is_fixed(half: Half) -> None:
    table = half.table()
    half.ShardedCounter(table, "visits").create(4)
    half.ShardedCounter(table, "visits").create(4)
    with pytest.raises(AnotherSize, match="has 4 shards, not 5"):
        half.ShardedCounter(table, "visits").create(5)
    for shards in (0, 1001, 2.5, True, "8"):
        with pytest.raises(ValueError, match="1 to 1000 shards"):
            half.ShardedCounter(table, "others").create(shards)


@pytest.mark.parametrize("reset", ["before", "within", "after"])
def test_a_counter_whose_answer_was_lost_is_created(
    half: Half, table_storage: TableStorage, reset: str
) -> None:
    counter = half.ShardedCounter(half.table(retry_backoff_factor=0.01), "visits")
    for operation in ("EntityGroupTransaction", "InsertEntity"):  # whichever it is
        table_storage.faults.add(operation=operation, count=1, reset=reset)
    counter.create(4)
    with pytest.raises(AnotherSize, match="has 4 shards, not 5"):
        counter.create(5)


def test_a_counter_that_was_not_created_is_an_error(half: Half) -> None:
    with pytest.raises(ResourceNotFoundError):
        half.ShardedCounter(half.table("None", create=False), "none").create()
    with pytest.raises(NotCreated, match="There is no counter none: create it once"):
        half.ShardedCounter(half.table(), "none").increment()
    counter = half.ShardedCounter(half.table(), "visits")
    counter.create()
    half.table().delete_table()
    with pytest.raises(ResourceNotFoundError):
        counter.total()


def test_an_id_that_was_counted_before_is_told_after_a_lost_request(
    half: Half, table_storage: TableStorage
) -> None:
    """The request that had no answer did not count: the id had been counted before."""
    counter = half.ShardedCounter(half.table(), "visits")
    counter.create(1)
    counter.increment(3, "order 5")
    table_storage.faults.add(operation="EntityGroupTransaction", count=1, reset="before")
    assert counter.increment(3, "order 5") is False
    table_storage.faults.add(operation="EntityGroupTransaction", count=1, reset="after")
    assert counter.increment(3, "order 6") is True
    assert counter.total() == 6


def test_an_empty_id_is_an_id(half: Half) -> None:
    counter = half.ShardedCounter(half.table(), "visits")
    counter.create(1)
    assert [counter.increment(3, ""), counter.increment(3, ""), counter.total()] == [True, False, 3]


def test_an_id_is_kept_for_the_margin_of_the_clocks(
    half: Half, table_storage: TableStorage
) -> None:
    counter = half.ShardedCounter(half.table(), "visits")
    counter.create(1)
    counter.increment(3, "order 5")
    table_storage.clock.advance(dt.timedelta(hours=24, seconds=2))
    assert counter.forget() == 0
    table_storage.clock.advance(dt.timedelta(seconds=10))
    assert counter.forget() == 1


@pytest.mark.parametrize("by", [1.5, True, "1"])
def test_what_is_no_int_is_not_counted(half: Half, by: object) -> None:
    counter = half.ShardedCounter(half.table(), "visits")
    counter.create(1)
    with pytest.raises(TypeError, match="is no int"):
        counter.increment(by)
    assert counter.total() == 0


def test_a_name_without_room_for_its_shards_is_refused(half: Half) -> None:
    table = half.table()
    with pytest.raises(KeyPartError, match="more than 512"):
        half.ShardedCounter(table, "x" * 510).create()
    assert list(table.list_entities()) == []


def test_a_shard_does_not_go_over_int64(half: Half) -> None:
    counter = half.ShardedCounter(half.table(), "visits")
    counter.create(1)
    counter.increment(2**63 - 1)
    with pytest.raises(OverflowError, match="does not fit"):
        counter.increment()
    assert counter.total() == 2**63 - 1
