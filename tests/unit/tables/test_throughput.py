"""The targets of accounts and partitions: how many operations pass at one moment, and after some time."""

from typing import Final

import pytest

from tablestone.model.entity import Entity
from tablestone.model.errors import RETRY_AFTER, StorageError
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    IF_MATCH_ANY,
    CreateTable,
    DeleteEntity,
    EntitiesPage,
    EntityGroupTransaction,
    GetEntity,
    GetServiceProperties,
    InsertEntity,
    InsertOrReplaceEntity,
    Operation,
    QueryEntities,
)
from tablestone.query.filter_parser import parse_filter
from tablestone.tables.throughput_targets import SharedSlots, Throughput

ACCOUNT: Final = 20
PARTITION: Final = 5


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def an_entity(partition: str, row: str = "r") -> Entity:
    return Entity(EntityKey(partition, row), {})


def read(partition: str = "p") -> GetEntity:
    return GetEntity("T", EntityKey(partition, "r"), None)


def query(text: str | None) -> QueryEntities:
    found = None if text is None else parse_filter(text)
    return QueryEntities("T", found, 1000, None, None)


def transaction(writes: int) -> EntityGroupTransaction:
    some = [InsertEntity("T", an_entity("p", f"{row}")) for row in range(writes)]
    return EntityGroupTransaction("T", "p", some)


def passed(throughput: Throughput, operation: Operation, account: str = "a") -> int:
    """How often the operation passes before it is refused, up to 100 times."""
    for number in range(100):
        busy = refusal(throughput, operation, account)
        if busy is not None:
            assert (busy.code, busy.headers) == ("ServerBusy", RETRY_AFTER)
            return number
    return 100


def refusal(throughput: Throughput, operation: Operation, account: str) -> StorageError | None:
    try:
        throughput.begin(account, operation)
    except StorageError as busy:
        return busy
    return None


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (read(), PARTITION),
        (InsertEntity("T", an_entity("p")), PARTITION),
        (InsertOrReplaceEntity("T", an_entity("p")), PARTITION),
        (DeleteEntity("T", EntityKey("p", "r"), IF_MATCH_ANY), PARTITION),
        (transaction(2), 3),  # the third starts with one left
        (transaction(100), 1),
        (query("PartitionKey eq 'p'"), PARTITION),
        (query("PartitionKey eq 'p' and RowKey gt 'a'"), PARTITION),
        (query("PartitionKey gt 'p'"), ACCOUNT),
        (query("Name eq 'x'"), ACCOUNT),
        (query(None), ACCOUNT),
        (CreateTable("T"), ACCOUNT),
        (GetServiceProperties(), ACCOUNT),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, int) else str(each),
)
def test_how_many_pass_at_one_moment(operation: Operation, expected: int) -> None:
    throughput = Throughput(ACCOUNT, PARTITION, Clock(), SharedSlots())
    assert passed(throughput, operation) == expected
    target = "partition_target" if expected <= PARTITION else "account_target"
    assert throughput.refused == {target: 1}


def test_a_share_saves_those_of_one_second() -> None:
    clock = Clock()
    throughput = Throughput(0, PARTITION, clock, SharedSlots())
    assert passed(throughput, read()) == PARTITION
    clock.now += 2.1 / PARTITION
    assert passed(throughput, read()) == 2
    clock.now += 100
    assert passed(throughput, read()) == PARTITION


def test_what_a_large_answer_took_is_waited_for() -> None:
    clock = Clock()
    throughput = Throughput(0, PARTITION, clock, SharedSlots())
    asked = query("PartitionKey eq 'p'")
    throughput.begin("a", asked)
    throughput.end("a", asked, EntitiesPage([b"{}"] * 3 * PARTITION, None))
    assert passed(throughput, read()) == 0
    clock.now += 1.9
    assert passed(throughput, read()) == 0
    clock.now += 0.4
    assert passed(throughput, read()) == 1


def test_a_count_takes_no_more_than_a_page() -> None:
    clock = Clock()
    throughput = Throughput(1000, 0, clock, SharedSlots())
    throughput.begin("a", query(None))
    throughput.end("a", query(None), EntitiesPage((), None, count=1_000_000))
    assert passed(throughput, read()) == 0
    clock.now += 0.0105
    assert passed(throughput, read()) == 10


def test_shares_are_apart() -> None:
    throughput = Throughput(ACCOUNT, PARTITION, Clock(), SharedSlots())
    assert passed(throughput, read("p")) == PARTITION
    assert passed(throughput, read("q")) == PARTITION
    assert passed(throughput, read("p"), "another") == PARTITION
    assert passed(throughput, query(None)) == ACCOUNT - 2 * PARTITION


def test_zero_is_no_target() -> None:
    assert passed(Throughput(0, 0, Clock(), SharedSlots()), read()) == 100
    assert passed(Throughput(ACCOUNT, 0, Clock(), SharedSlots()), read()) == ACCOUNT


def test_processes_share_what_is_left() -> None:
    """Two objects on one memory act like two forked processes."""
    clock, shared = Clock(), SharedSlots()
    one, other = (Throughput(0, PARTITION, clock, shared) for _ in range(2))
    assert passed(one, read()) == PARTITION
    assert passed(other, read()) == 0
