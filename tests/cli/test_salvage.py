"""`tablestone salvage` and `check` on damaged directories: everything readable comes out, and the rest is named."""

import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from azure.data.tables import TableServiceClient

from cli.command_line import Ended, tablestone
from conftest import StartServer
from server_process import start_server
from tablestone.cli.main import main
from tablestone.engines.sqlite.data_directory import PAGE_SIZE_BYTES

NUMBERS = range(300)
TEXT = "Grüße, 東京 " * 30


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with two tables of many pages, and one deleted table."""
    data = tmp_path_factory.mktemp("made") / "data"
    server = start_server(data)
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        service.create_table("gone").create_entity({"PartitionKey": "p", "RowKey": "r"})
        service.delete_table("gone")
        for name in ("readings", "stations"):
            table = service.create_table(name)
            for start in range(0, len(NUMBERS), 100):
                entities = [entity(number) for number in NUMBERS[start : start + 100]]
                table.submit_transaction([("create", each) for each in entities])
    assert server.stop() == 0
    return data


def entity(number: int) -> dict[str, object]:
    return {"PartitionKey": "JFK", "RowKey": f"{number:04}", "Text": TEXT, "Number": number}


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


def entities_in(path: Path) -> dict[str, dict[str, object]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = {each["RowKey"]: each for each in map(json.loads, lines)}
    assert len(found) == len(lines)
    return found


def flip_in_value(data: Path, number: int) -> None:
    """Change a letter in the name of a property, which SQLite cannot notice."""
    database = data / "tablestone.db"
    content = bytearray(database.read_bytes())
    place = content.index(f'"RowKey":"{number:04}"'.encode())
    content[place] ^= 0xFF
    database.write_bytes(content)


def flip_leaf(data: Path, number: int) -> int:
    """Flip 200 bytes of the page with the first entity of this number; returns the number of the page, from 1."""
    database = data / "tablestone.db"
    content = bytearray(database.read_bytes())
    page = content.index(f'"RowKey":"{number:04}"'.encode()) // PAGE_SIZE_BYTES
    for place in range(page * PAGE_SIZE_BYTES, page * PAGE_SIZE_BYTES + 200):
        content[place] ^= 0xFF
    database.write_bytes(content)
    return page + 1


def flip_first_page(data: Path) -> None:
    with (data / "tablestone.db").open("r+b") as file:
        file.write(random.Random(1).randbytes(PAGE_SIZE_BYTES))


def test_a_healthy_directory_comes_out_whole_and_can_be_imported(
    data: Path, private_server: StartServer, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ended = tablestone("salvage", data, out)
    account = "devstoreaccount1"
    assert ended == Ended(
        0,
        [
            f"table {name} of account {account}: 300 entities in {out / account / name}.jsonl"
            for name in ("readings", "stations")
        ]
        + [f"{data}: {ended.lines[-1].split(': ')[1]}"],
        "",
    )
    assert ended.lines[-1].endswith(" pages damaged, 0 entities lost")
    assert out.stat().st_mode & 0o777 == 0o700
    server = private_server(tmp_path / "new")
    imported = tablestone(
        *("import", out / account / "readings.jsonl", "readings", "--quiet"),
        environment={"AZURE_STORAGE_CONNECTION_STRING": server.connection_string},
    )
    assert imported.status == 0, imported.stderr
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        rows = list(service.get_table_client("readings").list_entities())
        assert [dict(row) for row in rows] == [entity(number) for number in NUMBERS]


def test_a_damaged_value_costs_one_entity_which_is_named(data: Path, tmp_path: Path) -> None:
    flip_in_value(data, 17)
    out = tmp_path / "out"
    ended = tablestone("salvage", data, out)
    assert ended.status == 1
    line = (
        "table readings of account devstoreaccount1: 299 entities can be read, 1 cannot: PartitionKey='JFK', "
        "RowKey='0017' (unreadable: it is not JSON)"
    )
    assert line in ended.lines
    assert entities_in(out / "lost.jsonl") == {
        "0017": {
            "Account": "devstoreaccount1",
            "Table": "readings",
            "PartitionKey": "JFK",
            "RowKey": "0017",
            "Reason": "unreadable: it is not JSON",
        }
    }
    found = entities_in(out / "devstoreaccount1" / "readings.jsonl")
    assert set(found) == {f"{number:04}" for number in NUMBERS} - {"0017"}


@pytest.mark.parametrize("first", [2, 4])
def test_a_database_of_which_hardly_a_page_is_left(data: Path, tmp_path: Path, first: int) -> None:
    database = data / "tablestone.db"
    content = database.read_bytes()
    size = int.from_bytes(content[16:18], "big")
    kept = content[: (first - 1) * size]
    database.write_bytes(kept + b"Z" * (len(content) - len(kept)))
    checked = tablestone("check", "--data", data)
    assert (checked.status, checked.lines) == (
        1,
        [
            "the database is so damaged that nothing in it can be recognized: restore a backup",
            f"{data}: 1 problem",
        ],
    )
    salvaged = tablestone("salvage", data, tmp_path / "out")
    assert salvaged.status == 1
    said = r" pages damaged \(pages \d+, \d+.*\), an unknown number of entities lost$"
    assert re.search(said, salvaged.lines[-1])


def test_a_damaged_page_is_explained_by_check(data: Path, tmp_path: Path) -> None:
    page = flip_leaf(data, 100)
    checked = tablestone("check", "--data", data)
    assert checked.status == 1
    table, pages, summary = checked.lines
    assert table.startswith("table readings of account devstoreaccount1: ")
    assert " entities can be read, " in table
    assert "PartitionKey='JFK', RowKey='0" in table
    assert pages.startswith("1 of ")
    assert pages.endswith(
        f" pages damaged (page {page}): tablestone salvage {data} OUT writes every entity that can be read"
    )
    assert summary == f"{data}: 2 problems"
    out = tmp_path / "out"
    assert tablestone("salvage", data, out).status == 1
    lost = entities_in(out / "lost.jsonl").keys()
    found = entities_in(out / "devstoreaccount1" / "readings.jsonl").keys()
    assert "0100" in lost
    assert lost | found == {f"{number:04}" for number in NUMBERS}
    assert not lost & found
    assert len(lost) <= PAGE_SIZE_BYTES // len(TEXT)


RAW = ("malformed", "btree", "Tree ", "rowid", "sqlite_autoindex", "disk image")
DAMAGES: dict[str, Callable[[Path], object]] = {
    "a value": lambda data: flip_in_value(data, 17),
    "a leaf": lambda data: flip_leaf(data, 250),
    "the first page": flip_first_page,
    "the end": lambda data: truncate(data, 3),
    "the index": lambda data: damage_page(data, 4),
    "the root of the table": lambda data: damage_page(data, 3),
}


def truncate(data: Path, pages: int) -> None:
    database = data / "tablestone.db"
    with database.open("r+b") as file:
        file.truncate(database.stat().st_size - pages * PAGE_SIZE_BYTES)


def damage_page(data: Path, number: int) -> None:
    with (data / "tablestone.db").open("r+b") as file:
        file.seek((number - 1) * PAGE_SIZE_BYTES)
        file.write(random.Random(2).randbytes(PAGE_SIZE_BYTES))


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_no_text_of_sqlite_is_printed(data: Path, damage: Callable[[Path], object]) -> None:
    damage(data)
    checked = tablestone("check", "--data", data)
    assert (checked.status, checked.stderr) == (1, "")
    printed = "\n".join(checked.lines)
    assert not [text for text in RAW if text in printed], printed


@pytest.mark.parametrize("damage", ["the first page", "the index", "the root of the table"])
def test_every_entity_comes_out_of_whole_leaves(data: Path, tmp_path: Path, damage: str) -> None:
    DAMAGES[damage](data)
    out = tmp_path / "out"
    tablestone("salvage", data, out)
    for name in ("readings", "stations"):
        found = entities_in(out / "devstoreaccount1" / f"{name}.jsonl")
        assert set(found) == {f"{number:04}" for number in NUMBERS}


def test_a_table_whose_name_is_lost_comes_out_under_its_id(data: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(data / "tablestone.db")) as database, database:
        changed = database.execute(
            "UPDATE stored_rows SET value = x'7b' WHERE CAST(row AS TEXT) = 'tstations'"
        )
        assert changed.rowcount == 1
    out = tmp_path / "out"
    ended = tablestone("salvage", data, out)
    assert ended.status == 1
    (unknown,) = (out / "unknown-tables").iterdir()
    assert len(entities_in(unknown)) == len(NUMBERS)
    assert (
        "the description of table stations of account devstoreaccount1 cannot be read"
        in ended.lines
    )
    assert (
        f"the name of the table with the id {unknown.stem} cannot be read, its 300 entities can"
        in ended.lines
    )


def test_indexes_do_not_come_out(data: Path, tmp_path: Path) -> None:
    for name in ("Number", "Text"):
        assert main(["index", "create", "readings", name, "--data", str(data)]) == 0
    salvaged = tablestone("salvage", data, tmp_path / "out")
    assert salvaged.status == 0
    assert salvaged.lines[2] == (
        "table readings of account devstoreaccount1: the entities are without its indexes, on Number, Text: after "
        "their import, tablestone index create makes them again"
    )
    assert len(entities_in(tmp_path / "out/devstoreaccount1/readings.jsonl")) == len(NUMBERS)


def test_beside_a_running_server(private_server: StartServer, data: Path, tmp_path: Path) -> None:
    server = private_server(data)
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        service.get_table_client("readings").create_entity({"PartitionKey": "Q", "RowKey": "new"})
    ended = tablestone("salvage", data, tmp_path / "out")
    assert ended.status == 0
    found = entities_in(tmp_path / "out" / "devstoreaccount1" / "readings.jsonl")
    assert len(found) == len(NUMBERS) + 1


def test_bad_places_are_refused(data: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    refused = {
        (
            tmp_path / "no",
            tmp_path / "out",
        ): f"The data directory {tmp_path / 'no'} holds no Tablestone data.",
        (data, full): f"{full} exists already: name a new or an empty directory.",
        (
            data,
            tmp_path / "a" / "b",
        ): f"{tmp_path / 'a' / 'b'} cannot be made: {tmp_path / 'a'} is no directory.",
        (
            data,
            data / "out",
        ): f"{data / 'out'} would be inside the data directory: name a place outside.",
    }
    for (directory, out), sentence in refused.items():
        assert tablestone("salvage", directory, out) == Ended(2, [], f"tablestone: {sentence}\n")
    assert not (data / "out").exists()
    assert not (tmp_path / "out").exists()
