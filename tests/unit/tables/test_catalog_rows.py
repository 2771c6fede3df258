"""The check of stored rows knows each row of a catalog by its key, and reports one in the wrong place."""

import asyncio
import json
from typing import Any

import pytest

from tablestone.engines.contract import ABSENT, Change, Put, WriteSet
from tablestone.engines.memory import MemoryEngine
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog
from tablestone.tables.integrity import check_rows

TABLE_ID = bytes(range(8))
OTHER_ID = bytes(range(1, 9))
RECORD = b'{"name":"Tab","id":"0001020304050607","ticks":1,"version":1}'
DESCRIBES = "describes table 'Tab' with id 0001020304050607"


@pytest.mark.parametrize(
    ("row", "is_in_place"),
    [
        (storage_keys.table_row("tab"), True),
        (storage_keys.taken_row("TAB"), True),
        (storage_keys.deleted_row(TABLE_ID), True),
        (storage_keys.deleted_slots(TABLE_ID)[0], True),
        (storage_keys.deleted_slots(TABLE_ID)[-1], True),
        (storage_keys.table_row("other"), False),
        (storage_keys.taken_row("other"), False),
        (storage_keys.deleted_row(OTHER_ID), False),
        (storage_keys.deleted_slots(OTHER_ID)[0], False),
        (storage_keys.SENTINEL_ROW + b"x", False),
    ],
)
def test_a_row_is_in_its_place(row: bytes, *, is_in_place: bool) -> None:
    async def found() -> list[str]:
        engine = MemoryEngine(lambda: 1)
        change = Change(row, ABSENT, Put(lambda _: RECORD))
        await engine.commit(WriteSet(storage_keys.catalog_partition("acct"), (change,)))
        return await check_rows(engine)

    faults = asyncio.run(found())
    assert [fault.endswith(DESCRIBES) for fault in faults] == ([] if is_in_place else [True])


def test_a_change_of_a_table_keeps_the_other_members_of_its_row() -> None:
    async def stored() -> Any:
        engine = MemoryEngine(lambda: 1)
        more = b'"later":{"a":[1]},"identifiers":[{"id":"p","policy":null}]'
        change = Change(
            storage_keys.table_row("tab"), ABSENT, Put(lambda _: RECORD[:-1] + b"," + more + b"}")
        )
        await engine.commit(WriteSet(storage_keys.catalog_partition("acct"), (change,)))
        catalog = Catalog(engine, lambda: 2, lambda: TABLE_ID)
        await catalog.set_identifiers(Named("acct"), "Tab", ())
        await catalog.change_members(
            Named("acct"), "Tab", lambda _: {"new": 5, "later": None, "none": None}
        )
        await catalog.change_members(
            Named("acct"), "Tab", lambda old: {"again": old.members["new"]}
        )
        return json.loads(await engine.get(storage_keys.table_place("acct", "tab")) or b"")

    assert asyncio.run(stored()) == {
        **json.loads(RECORD), "version": 4, "identifiers": [], "new": 5, "again": 5
    }  # fmt: skip
