"""docs/storage-format.md is true: a server writes its schema, its settings and the rows of its example."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest_asyncio

from tablestone.clock import monotonic_seconds
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite import archive_source, change_log, index_entries
from tablestone.engines.sqlite.data_directory import (
    OWN_NAMES,
    REENCRYPTED_NAME,
    RESTORED_NAME,
    SCHEMA,
)
from tablestone.model.edm import EdmType, EdmValue, parse_date_time
from tablestone.model.entity import Entity
from tablestone.model.entity_json import members
from tablestone.model.keys import EntityKey
from tablestone.model.operations import CreateTable, InsertEntity
from tablestone.tables.account_incarnation import Named
from tablestone.tables.metadata import DocumentKind
from tablestone.tables.service import TableService

if TYPE_CHECKING:
    from storage.conftest import HeldClock

PAGE = (Path(__file__).parents[2] / "docs" / "storage-format.md").read_text(encoding="utf-8")


@pytest_asyncio.fixture
async def database(data: Path, clock: HeldClock) -> Path:
    """Run the operations of the page's example."""
    clock.now = parse_date_time("2013-01-01T06:00:00Z")
    engine = open_engine(f"sqlite:{data}", clock)
    service = TableService(engine, clock, monotonic_seconds, lambda: bytes(range(8)))
    await service.execute(Named("weather"), CreateTable("Readings"))
    properties = {
        "Place": EdmValue(EdmType.STRING, "Zürich"),
        "Height": EdmValue(EdmType.INT64, 408),
    }
    entity = Entity(EntityKey("EWR", "\N{GRINNING FACE}"), members(properties))
    await service.execute(Named("weather"), InsertEntity("Readings", entity))
    await engine.close()
    return data / "tablestone.db"


def rows_as_shown(database: Path) -> list[str]:
    """Each row in four lines, as on the page: keys in hexadecimal, the value as text."""
    connection = apsw.Connection(str(database), apsw.SQLITE_OPEN_READONLY)
    select = "SELECT partition, row, version, value FROM stored_rows ORDER BY partition, row"
    shown: list[str] = []
    for partition, row, version, value in connection.execute(select):
        shown += [
            f"partition  {partition.hex(' ')}",
            f"row        {row.hex(' ')}",
            f"version    {version}",
            f"value      {value.decode('ascii')}",
        ]
    connection.close()
    return shown


def test_the_rows_of_the_example(database: Path) -> None:
    _, _, example = PAGE.partition("## An example")
    (block,) = re.findall(r"```text\n(.*?)```", example, re.DOTALL)
    assert [line for line in block.splitlines() if line] == rows_as_shown(database)


def test_the_schema_and_the_settings(database: Path) -> None:
    changes = change_log.SCHEMA.partition("INSERT")[0]
    for schema in (SCHEMA, changes, archive_source.SCHEMA, index_entries.SCHEMA):
        assert schema.strip().removesuffix(";") in PAGE
    connection = apsw.Connection(str(database), apsw.SQLITE_OPEN_READONLY)
    shown = dict(re.findall(r"^\| `PRAGMA (\w+)` \| `?(\w+)", PAGE, re.MULTILINE))
    assert shown.pop("synchronous") == "FULL"
    found = {name: connection.pragma(name) for name in shown}
    connection.close()
    assert {
        name: text if name == "journal_mode" else int(text, 0) for name, text in shown.items()
    } == found


def test_the_files(database: Path) -> None:
    (table,) = re.findall(r"## Files\n\n(.*?)\n\n", PAGE, re.DOTALL)
    listed = set(
        re.findall(r"`([^`]+)`", "\n".join(line.split("|")[1] for line in table.splitlines()[2:]))
    )
    assert listed == OWN_NAMES | {"tls/", f"{REENCRYPTED_NAME}/", f"{RESTORED_NAME}/"}
    assert {path.name for path in database.parent.iterdir()} <= listed


def test_the_kinds_of_documents() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \| ", PAGE.partition("### Documents")[2], re.MULTILINE))
    assert listed == {kind.value.decode("ascii") for kind in DocumentKind}
