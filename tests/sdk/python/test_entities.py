"""azure-data-tables, the table client: one entity through all its operations; ETags; keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import TableEntity, UpdateMode

from sdk.python.clients import code_of

if TYPE_CHECKING:
    from azure.data.tables.aio import TableClient

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]

MERGE, REPLACE = UpdateMode.MERGE, UpdateMode.REPLACE
BOTH_MODES = pytest.mark.parametrize("mode", [MERGE, REPLACE], ids=["merge", "replace"])
STALE_ETAG = "W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\""


def entity(**properties: Any) -> dict[str, Any]:
    return {"PartitionKey": "p", "RowKey": "r"} | properties


def service_timestamp(read: TableEntity) -> str:
    """The Timestamp's own text, with all its digits."""
    text: str = read.metadata["timestamp"].tables_service_value  # type: ignore[union-attr]
    return text


async def test_an_inserted_entity_is_read_back(table: TableClient) -> None:
    answer = await table.create_entity(entity(Name="x", Age=3))
    assert answer["version"] == table.api_version
    read = await table.get_entity("p", "r")
    assert dict(read) == entity(Name="x", Age=3)
    assert read.metadata["etag"] == answer["etag"]


async def test_the_etag_is_the_timestamp_percent_encoded(table: TableClient) -> None:
    """Wire 0.2 rule 1, 4."""
    answer = await table.create_entity(entity())
    text = service_timestamp(await table.get_entity("p", "r"))
    assert answer["etag"] == f"W/\"datetime'{quote(text)}'\""


async def test_every_write_gives_a_later_timestamp_and_another_etag(table: TableClient) -> None:
    await table.create_entity(entity())
    seen = [await table.get_entity("p", "r")]
    for number in range(5):
        answer = await table.update_entity(entity(Number=number))
        seen.append(await table.get_entity("p", "r"))
        assert seen[-1].metadata["etag"] == answer["etag"]
    # The service trims trailing zeros (wire 4), so the comparison fills the fraction up.
    times = [service_timestamp(read).rstrip("Z").ljust(27, "0") for read in seen]
    assert times == sorted(set(times))


async def test_inserting_an_entity_that_exists_is_refused(table: TableClient) -> None:
    """Wire 3.9."""
    await table.create_entity(entity(Name="old"))
    with pytest.raises(ResourceExistsError) as caught:
        await table.create_entity(entity(Name="new"))
    assert caught.value.status_code == 409
    assert code_of(caught.value) == "EntityAlreadyExists"
    assert (await table.get_entity("p", "r"))["Name"] == "old"


@BOTH_MODES
async def test_update_writes_what_it_is_given(table: TableClient, mode: UpdateMode) -> None:
    """Wire 3.10: replace removes what the body leaves out, merge keeps it."""
    await table.create_entity(entity(Kept=1, Changed=1))
    await table.update_entity(entity(Changed=2, Added=3), mode=mode)
    kept = {"Kept": 1} if mode is MERGE else {}
    assert dict(await table.get_entity("p", "r")) == entity(Changed=2, Added=3, **kept)


@BOTH_MODES
async def test_update_of_a_missing_entity_is_not_found(
    table: TableClient, mode: UpdateMode
) -> None:
    """Wire 3.9: even with If-Match: *."""
    with pytest.raises(ResourceNotFoundError) as caught:
        await table.update_entity(entity(Name="x"), mode=mode)
    assert caught.value.status_code == 404
    assert code_of(caught.value) == "ResourceNotFound"


@BOTH_MODES
async def test_upsert_inserts_and_then_writes(table: TableClient, mode: UpdateMode) -> None:
    inserted = await table.upsert_entity(entity(Kept=1, Changed=1), mode=mode)
    assert dict(await table.get_entity("p", "r")) == entity(Kept=1, Changed=1)
    written = await table.upsert_entity(entity(Changed=2), mode=mode)
    kept = {"Kept": 1} if mode is MERGE else {}
    read = await table.get_entity("p", "r")
    assert dict(read) == entity(Changed=2, **kept)
    assert written["etag"] == read.metadata["etag"] != inserted["etag"]


async def test_a_property_of_another_type_takes_the_place_of_the_old_one(
    table: TableClient,
) -> None:
    await table.create_entity(entity(Value=1))
    await table.update_entity(entity(Value="text"), mode=MERGE)
    assert (await table.get_entity("p", "r"))["Value"] == "text"


@BOTH_MODES
async def test_an_update_under_the_current_etag_is_done(
    table: TableClient, mode: UpdateMode
) -> None:
    await table.create_entity(entity(Number=1))
    read = await table.get_entity("p", "r")
    read["Number"] = 2
    await table.update_entity(read, mode=mode, match_condition=MatchConditions.IfNotModified)
    assert (await table.get_entity("p", "r"))["Number"] == 2


@BOTH_MODES
async def test_an_update_under_an_older_etag_is_refused(
    table: TableClient, mode: UpdateMode
) -> None:
    """Wire 4."""
    first = await table.create_entity(entity(Number=1))
    await table.update_entity(entity(Number=2))
    for etag in (first["etag"], STALE_ETAG):
        with pytest.raises(ResourceModifiedError) as caught:
            await table.update_entity(
                entity(Number=3),
                mode=mode,
                etag=etag,
                match_condition=MatchConditions.IfNotModified,
            )
        assert caught.value.status_code == 412
        assert code_of(caught.value) == "UpdateConditionNotSatisfied"
    assert (await table.get_entity("p", "r"))["Number"] == 2


async def test_delete_takes_the_entity_or_its_keys(table: TableClient) -> None:
    for _ in range(2):
        await table.upsert_entity(entity())
        await table.delete_entity("p", "r")
        with pytest.raises(ResourceNotFoundError) as caught:
            await table.get_entity("p", "r")
        assert code_of(caught.value) == "ResourceNotFound"
    await table.create_entity(entity())
    await table.delete_entity(await table.get_entity("p", "r"))
    assert [read async for read in table.list_entities()] == []


async def test_delete_under_an_older_etag_is_refused(table: TableClient) -> None:
    first = await table.create_entity(entity(Number=1))
    second = await table.update_entity(entity(Number=2))
    condition = MatchConditions.IfNotModified
    with pytest.raises(ResourceModifiedError) as caught:
        await table.delete_entity("p", "r", etag=first["etag"], match_condition=condition)
    assert code_of(caught.value) == "UpdateConditionNotSatisfied"
    await table.delete_entity("p", "r", etag=second["etag"], match_condition=condition)
    with pytest.raises(ResourceNotFoundError):
        await table.get_entity("p", "r")


async def test_deleting_an_entity_that_is_not_there_is_silent(table: TableClient) -> None:
    """The SDK swallows 404 (wire 12.3): any other status would be raised."""
    await table.delete_entity("p", "r")


async def test_select_gives_the_named_properties_and_none_for_an_absent_one(
    table: TableClient,
) -> None:
    """Wire 5.6."""
    await table.create_entity(entity(Name="x", Age=3))
    read = await table.get_entity("p", "r", select=["Name", "Missing"])
    assert dict(read) == {"Name": "x", "Missing": None}
    assert read.metadata["etag"] is not None
    read = await table.get_entity("p", "r", select="PartitionKey,Age")
    assert dict(read) == {"PartitionKey": "p", "Age": 3}


async def test_none_is_not_stored(table: TableClient) -> None:
    await table.create_entity(entity(Name="x", Nothing=None))
    await table.update_entity(entity(Name=None, Other=1), mode=MERGE)
    assert dict(await table.get_entity("p", "r")) == entity(Name="x", Other=1)


KEYS = [
    "",
    " ",
    " leading and trailing ",
    "it's",
    "''",
    "'",
    '"double"',
    "100%",
    "%20",
    "%27%2F",
    "a+b c",
    "a&b=c;d,e",
    "a:b@c!d*e(f)g[h]i{j}k",
    "$metadata",
    "~^`|<>",
    "PartitionKey='x',RowKey='y'",
    "éàü",
    "表格",
    "e\u0301",  # not the same key as é: keys are compared by code unit (wire 6.3)
    "\u00e9",
    "\U0001f600",
    "\ufffd\uffff",
    "x" * 512,  # 1 KiB of UTF-16, the documented limit (wire 9)
]


@pytest.mark.parametrize("key", KEYS, ids=ascii)
async def test_a_key_survives_every_operation(table: TableClient, key: str) -> None:
    """Wire 1.3: as partition key and as row key, in the body and in the URL."""
    await table.create_entity({"PartitionKey": key, "RowKey": key, "Value": 1})
    await table.create_entity({"PartitionKey": key, "RowKey": "other", "Value": 9})
    await table.update_entity({"PartitionKey": key, "RowKey": key, "Value": 2}, mode=REPLACE)
    read = await table.get_entity(key, key)
    assert dict(read) == {"PartitionKey": key, "RowKey": key, "Value": 2}
    found = table.query_entities("PartitionKey eq @key and RowKey eq @key", parameters={"key": key})
    assert [each["Value"] async for each in found] == [2]
    await table.submit_transaction([("upsert", {"PartitionKey": key, "RowKey": key, "Value": 3})])
    assert (await table.get_entity(key, key))["Value"] == 3
    await table.delete_entity(key, key)
    assert [each["RowKey"] async for each in table.list_entities()] == ["other"]


async def test_keys_are_ordered_by_code_unit(table: TableClient) -> None:
    """Wire 6.10: UTF-16 code units, so a surrogate pair sorts before U+FFFD."""
    keys = ["", "A", "B", "a", "a ", "a1", "a10", "a2", "é", "表", "\U0001f600", "\ufffd"]
    for key in reversed(keys):
        await table.create_entity({"PartitionKey": "p", "RowKey": key})
    assert [read["RowKey"] async for read in table.list_entities()] == keys


async def test_property_names_may_be_unicode_and_differ_in_case(table: TableClient) -> None:
    """Wire 9."""
    properties = {
        "名前": "x",
        "élan": 1,
        "_private": True,
        "name": "a",
        "Name": "b",
        "etag": "mine",
    }
    await table.create_entity(entity(**properties))
    assert dict(await table.get_entity("p", "r")) == entity(**properties)
