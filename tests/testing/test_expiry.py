"""Expiry in a storage of the test kit: its clock decides, clients see it, and the data tools use the policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.data.tables import TableClient

from tablestone.cli.main import main
from tablestone.model.expiry import ExpiryPolicy
from tablestone.testing import StorageRefused, TableStorage
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import parse_connection_string

HOUR: Final = timedelta(hours=1)


@pytest.fixture
def storage() -> Iterator[TableStorage]:
    with TableStorage(keep_changes=True) as made:
        yield made


def sessions(storage: TableStorage) -> TableClient:
    client = TableClient.from_connection_string(storage.connection_string, "Sessions")
    client.create_table()
    return client


def rows(table: TableClient) -> list[str]:
    return [each["RowKey"] for each in table.list_entities()]


def entity(row: str, **properties: Any) -> dict[str, Any]:
    return {"PartitionKey": "p", "RowKey": row, **properties}


def test_the_clock_of_the_storage_lets_entities_expire(storage: TableStorage) -> None:
    table = sessions(storage)
    storage.set_expiry("Sessions", after=HOUR)
    table.create_entity(entity("a"))
    with pytest.raises(ResourceExistsError):
        table.create_entity(entity("a"))
    storage.clock.advance(minutes=59)
    assert rows(table) == ["a"]
    storage.clock.advance(minutes=1)
    assert rows(table) == []
    with pytest.raises(ResourceNotFoundError):
        table.get_entity("p", "a")
    table.create_entity(entity("a", again=True))
    assert rows(table) == ["a"]
    storage.clock.advance(hours=2)
    storage.set_expiry("Sessions")
    assert rows(table) == ["a"]


@pytest.mark.parametrize("kind", [datetime, int, float])
def test_what_an_sdk_sends_as_a_time(storage: TableStorage, kind: type) -> None:
    table = sessions(storage)
    storage.set_expiry("Sessions", property_name="expires")
    for row, minutes in (("past", -1), ("soon", 5)):
        moment = datetime.now(UTC) + timedelta(minutes=minutes)
        value: Any = moment if kind is datetime else kind(moment.timestamp())
        table.create_entity(entity(row, expires=value))
    table.create_entity(entity("text", expires="2012-01-01T00:00:00Z"))
    assert rows(table) == ["soon", "text"]
    storage.clock.advance(minutes=6)
    assert rows(table) == ["text"]


def test_bad_policies_are_refused(storage: TableStorage) -> None:
    sessions(storage)
    with pytest.raises(StorageRefused, match="There is no table Other in account"):
        storage.set_expiry("Other", after=HOUR)
    for given in ({"after": timedelta()}, {"after": HOUR, "property_name": "expires"}):
        with pytest.raises(StorageRefused, match="Entities expire after a second or more"):
            storage.set_expiry("Sessions", **given)
    for name in ("", "a b", "PartitionKey", "RowKey", "Timestamp"):
        with pytest.raises(StorageRefused, match="Entities cannot expire by the property"):
            storage.set_expiry("Sessions", property_name=name)


@pytest.fixture
def endpoint(storage: TableStorage) -> Iterator[TableEndpoint]:
    with TableEndpoint(parse_connection_string(storage.connection_string)) as opened:
        yield opened


def test_the_policy_is_on_the_wire_while_there_is_one(
    storage: TableStorage, endpoint: TableEndpoint
) -> None:
    sessions(storage)
    assert endpoint.expiry("Sessions") is None
    assert endpoint.expiry("Other") is None
    for policy in (
        ExpiryPolicy(after=3600),
        ExpiryPolicy(property_name="expires"),
    ):
        after = None if policy.after is None else timedelta(seconds=policy.after)
        storage.set_expiry("Sessions", after=after, property_name=policy.property_name)
        assert endpoint.expiry("Sessions") == policy


def test_diff_and_copy_know_what_the_source_hides(
    storage: TableStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a property. Until an expired entity is swept, the other side still shows it."""
    with TableStorage() as other:
        here, there = sessions(storage), sessions(other)
        ends = datetime.now(UTC) - timedelta(minutes=1)
        for table in (here, there):
            table.create_entity(entity("dead", expires=ends))
            table.create_entity(entity("live", n=1))
        storage.set_expiry("Sessions", property_name="expires")
        places = []
        for name, side in (("a", storage), ("b", other)):
            (tmp_path / name).write_text(side.connection_string)
            places.append(f"@{tmp_path / name}")
        diff = ("diff", *places, "Sessions", "--json")
        assert main([*diff]) == 0
        assert json.loads(capsys.readouterr().out)["differences"] == []
        there.create_entity(entity("more", n=1))
        assert main([*diff]) == 1
        (found,) = json.loads(capsys.readouterr().out)["differences"]
        assert found["key"] == ["p", "more"]
        there.delete_entity(entity("more"))
        between = ("--from", places[0], "--to", places[1])
        assert main(["copy", *between, "Sessions", "--on-conflict", "replace"]) == 0
        assert (
            "Sessions: entities expire at the time in expires at the source, and not so at the target."
            in capsys.readouterr().err
        )
