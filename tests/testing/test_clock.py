"""The clock of a storage: Timestamps, signatures and page times follow it; requests with a shared key still work."""

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.data.tables import (
    TableClient,
    TableSasPermissions,
    TableServiceClient,
    generate_table_sas,
)

from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS
from tablestone.testing import ClockRefused, StorageClock, StorageTransport, TableStorage

MOMENT = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)


@pytest.fixture
def storage() -> Iterator[TableStorage]:
    with TableStorage() as storage:
        yield storage


@pytest.fixture
def table(storage: TableStorage) -> Iterator[TableClient]:
    with TableServiceClient.from_connection_string(storage.connection_string) as service:
        yield service.create_table("Orders")


def written_at(table: TableClient, row: str) -> datetime:
    table.upsert_entity({"PartitionKey": "p", "RowKey": row})
    found = table.get_entity("p", row).metadata["timestamp"]
    assert found is not None
    return found


def test_timestamps_follow_a_frozen_clock(storage: TableStorage, table: TableClient) -> None:
    storage.clock.freeze(MOMENT)
    assert written_at(table, "a") == MOMENT
    assert written_at(table, "b") == MOMENT
    storage.clock.advance(hours=2)
    assert written_at(table, "c") == MOMENT + timedelta(hours=2)
    storage.clock.reset()
    assert abs(written_at(table, "d") - datetime.now(UTC)) < timedelta(minutes=5)


def test_an_entity_never_gets_an_older_timestamp(storage: TableStorage, table: TableClient) -> None:
    storage.clock.freeze(MOMENT)
    etags = [table.upsert_entity({"PartitionKey": "p", "RowKey": "r"})["etag"] for _ in range(3)]
    storage.clock.set(MOMENT - timedelta(days=1000))
    etags.append(table.upsert_entity({"PartitionKey": "p", "RowKey": "r"})["etag"])
    assert len(set(etags)) == 4
    moments = [etag.rstrip("Z'\"") for etag in etags]
    assert moments == sorted(moments)


@pytest.mark.parametrize("transport", [None, StorageTransport], ids=["socket", "none"])
def test_the_date_of_answers_follows_the_clock(
    storage: TableStorage, transport: type[StorageTransport] | None
) -> None:
    options = {"transport": transport(storage)} if transport else {}
    table = TableClient.from_connection_string(storage.connection_string, "Orders", **options)
    table.create_table()
    dates: list[str] = []

    def note(response: Any) -> None:
        dates.append(response.http_response.headers["Date"])

    for moment in (MOMENT, MOMENT - timedelta(days=1000)):
        storage.clock.freeze(moment)
        list(table.query_entities("PartitionKey eq 'a'", raw_response_hook=note))
    assert [parsedate_to_datetime(date) for date in dates] == [
        moment.replace(microsecond=0) for moment in (MOMENT, MOMENT - timedelta(days=1000))
    ]


def test_timestamps_of_different_entities_are_those_of_the_clock(
    storage: TableStorage, table: TableClient
) -> None:
    """The rule of a later Timestamp holds for one entity, as long as it exists."""

    def inserted(row: str) -> str:
        return str(table.create_entity({"PartitionKey": "p", "RowKey": row})["etag"])

    storage.clock.freeze(MOMENT)
    first = inserted("a")
    assert inserted("b") == inserted("c") == first
    table.delete_entity("p", "a")
    assert inserted("a") == first
    storage.clock.set(MOMENT - timedelta(days=1000))
    assert inserted("d") < first


def test_a_signature_expires(storage: TableStorage, table: TableClient) -> None:
    account = storage.account
    signature = generate_table_sas(
        AzureNamedKeyCredential(account.name, account.key),
        "Orders",
        permission=TableSasPermissions(read=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    table.create_entity({"PartitionKey": "p", "RowKey": "r"})
    with TableClient(account.endpoint, "Orders", credential=AzureSasCredential(signature)) as guest:
        assert guest.get_entity("p", "r")
        storage.clock.advance(hours=2)
        with pytest.raises(ClientAuthenticationError):
            guest.get_entity("p", "r")
        storage.clock.reset()
        assert guest.get_entity("p", "r")


class Machine:
    """A machine's clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def clock(self) -> StorageClock:
        return StorageClock(
            lambda: UNIX_EPOCH_TICKS + round(self.seconds * TICKS_PER_SECOND), lambda: self.seconds
        )


@pytest.mark.parametrize(
    ("turn", "after_10_seconds"),
    [
        (StorageClock.reset, 10),
        (StorageClock.freeze, 0),
        (lambda clock: clock.tick(60), 600),
        (lambda clock: clock.tick(0.5), 5),
        (lambda clock: clock.advance(seconds=3), 13),
        (lambda clock: (clock.freeze(), clock.advance(seconds=3)), 3),
        (lambda clock: (clock.freeze(), clock.tick()), 10),
        (lambda clock: (clock.freeze(MOMENT), clock.reset()), 10),
        (lambda clock: clock.set(datetime(1970, 1, 1, 0, 1, tzinfo=UTC)), 70),
    ],
)
def test_a_clock_follows_its_settings(
    turn: Callable[[StorageClock], object], after_10_seconds: float
) -> None:
    machine = Machine()
    clock = machine.clock()
    turn(clock)
    machine.seconds = 10
    assert clock.now() == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=after_10_seconds)


def test_skipped_time_is_time_that_a_page_has_used() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.freeze()
    machine.seconds = 1
    clock.advance(seconds=6)
    assert clock.elapsed_seconds() == 7


@pytest.mark.parametrize(
    ("turn", "sentence"),
    [
        (lambda clock: clock.freeze(MOMENT.replace(tzinfo=None)), "has no time zone"),
        (lambda clock: clock.set(MOMENT.replace(tzinfo=None)), "has no time zone"),
        (lambda clock: clock.advance(hours=-1), "not negative: use set"),
        (lambda clock: clock.advance(days=9_000_000), "does not advance beyond 9999-12-31"),
        (lambda clock: clock.tick(-1), "at a rate from 0"),
        (lambda clock: clock.tick("fast"), "A clock takes numbers, not 'fast'"),
        (lambda clock: clock.advance(hours=math.nan), "A clock takes numbers, not nan"),
        (lambda clock: clock.advance(5), "A clock advances by a timedelta, not by 5: use hours="),
        (
            lambda clock: clock.advance(weeks=1, hours=1),
            "^A clock advances by days, hours, minutes and seconds, not by weeks\\.$",
        ),
        (lambda clock: clock.freeze("2030-01-01"), "not to '2030-01-01'"),
        (lambda clock: clock.set(MOMENT.replace(year=1600)), "is not from 1601-01-01 to 9999"),
    ],
)
def test_a_time_that_cannot_be_is_refused(
    turn: Callable[[StorageClock], object], sentence: str
) -> None:
    clock = Machine().clock()
    with pytest.raises(ClockRefused, match=sentence):
        turn(clock)
    assert clock.now() == datetime(1970, 1, 1, tzinfo=UTC)
