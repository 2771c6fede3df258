"""A lock: no two holders have the same number, whatever fails."""

import datetime as dt
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import TableServiceClient

from patterns.conftest import Half
from table_patterns import Lock, LockLost, LockNotAcquired
from tablestone.testing.storage import StorageAccount, TableStorage


def test_a_second_client_waits_for_the_first(half: Half) -> None:
    table = half.table()
    one, other = half.Lock(table, "report"), half.Lock(table, "report")
    held = one.acquire()
    assert (held.number, 29 < held.seconds_left <= 30) == (1, True)
    with pytest.raises(LockNotAcquired, match="Another client holds report"):
        other.acquire(wait_seconds=0.1)
    assert one.release(held) is True
    assert other.acquire().number == 2


def test_an_expired_lock_is_taken_and_its_holder_learns_it(
    half: Half, table_storage: TableStorage
) -> None:
    lock = half.Lock(half.table(), "a/b ü")
    held = lock.acquire()
    table_storage.clock.advance(dt.timedelta(seconds=34))
    with pytest.raises(LockNotAcquired):
        lock.acquire()
    table_storage.clock.advance(dt.timedelta(seconds=3))
    assert lock.acquire().number == 2
    with pytest.raises(LockLost, match="since number 1"):
        lock.renew(held)
    assert lock.release(held) is False


def test_a_renewed_lock_is_held_from_then_on(half: Half, table_storage: TableStorage) -> None:
    lock = half.Lock(half.table(), "report")
    held = lock.acquire()
    table_storage.clock.advance(dt.timedelta(seconds=25))
    again = lock.renew(held)
    table_storage.clock.advance(dt.timedelta(seconds=25))
    with pytest.raises(LockNotAcquired):
        lock.acquire()
    with pytest.raises(LockLost):
        lock.renew(held)
    assert (again.number, lock.release(again)) == (1, True)


@pytest.mark.parametrize("reset", ["before", "within", "after"])
def test_a_lost_answer_does_not_lose_the_lock(
    half: Half, table_storage: TableStorage, reset: str
) -> None:
    lock = half.Lock(half.table(retry_backoff_factor=0.01), "report")

    def lose() -> None:
        # Any write, also one that is no transaction.
        for operation in ("EntityGroupTransaction", "InsertEntity", "UpdateEntity"):
            table_storage.faults.add(operation=operation, count=1, reset=reset)

    for number in (1, 2):
        lose()
        held = lock.acquire()
        assert held.number == number
        lose()
        held = lock.renew(held)
        assert held.number == number
        lose()
        assert lock.release(held) is True
        table_storage.faults.clear()


def test_of_many_clients_one_gets_each_number(table_account: StorageAccount) -> None:
    with TableServiceClient.from_connection_string(table_account.connection_string) as service:
        service.create_table("Things")

    def take(_: int) -> list[int]:
        with TableServiceClient.from_connection_string(table_account.connection_string) as service:
            lock = Lock(service.get_table_client("Things"), "report")
            numbers = []
            for _ in range(5):
                held = lock.acquire(wait_seconds=30)
                numbers.append(held.number)
                assert lock.release(held)
            return numbers

    with ThreadPoolExecutor(6) as pool:
        numbers = Counter(number for found in pool.map(take, range(6)) for number in found)
    assert sorted(numbers) == list(range(1, 31))
    assert set(numbers.values()) == {1}


def test_a_table_that_is_not_there_is_an_error(half: Half) -> None:
    with pytest.raises(ResourceNotFoundError):
        half.Lock(half.table("None", create=False), "report").acquire()


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_lock_needs_time(half: Half, seconds: float) -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        half.Lock(half.table(), "report", seconds)


def test_a_holder_is_not_told_that_its_lock_is_lost_when_the_service_is_busy(
    half: Half, table_storage: TableStorage
) -> None:
    lock = half.Lock(half.table(retry_total=0), "report")
    held = lock.acquire()
    table_storage.faults.add(operation="EntityGroupTransaction", count=1, error="ServerBusy")
    held = lock.renew(held)
    table_storage.faults.add(operation="EntityGroupTransaction", count=1, error="ServerBusy")
    assert lock.release(held) is True
    assert lock.acquire().number == 2


def test_a_release_that_another_holder_came_before_is_told(
    table_account: StorageAccount, table_storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one takes the expired lock between the read and the write of the release."""
    with TableServiceClient.from_connection_string(table_account.connection_string) as service:
        table, other = service.create_table("Things"), service.get_table_client("Things")
        lock = Lock(table, "report")
        held = lock.acquire()
        table_storage.clock.advance(dt.timedelta(seconds=60))
        submit = table.submit_transaction

        def take_first(*arguments: Any, **options: Any) -> Any:
            monkeypatch.undo()
            assert Lock(other, "report").acquire().number == 2
            return submit(*arguments, **options)

        monkeypatch.setattr(table, "submit_transaction", take_first)
        assert lock.release(held) is False
        with pytest.raises(LockNotAcquired):
            lock.acquire()


@pytest.mark.parametrize("name", ["shards", "count", "id!1"])
def test_a_lock_may_lie_beside_a_counter(half: Half, name: str) -> None:
    table = half.table()
    half.ShardedCounter(table, "locks").create(1)
    assert half.Lock(table, name).acquire().number == 1
    half.ShardedCounter(table, "locks").increment()
