"""`tablestone index`: its sentences, beside a server and without one, and on a disk that is full."""

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from azure.data.tables import TableServiceClient

from cli.command_line import tablestone
from cli.small_disk import small_disk
from conftest import StartServer
from docs.guides.page_commands import GUIDES, run_page
from server_process import COMMAND, clean_environment
from tablestone.cli.main import main
from tablestone.clock import system_clock
from tablestone.engines.registry import open_engine
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import members
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    CreateTable,
    DeleteTable,
    EntityGroupTransaction,
    InsertOrReplaceEntity,
)
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.service import TableService

ACCOUNT = Named("devstoreaccount1")


def seed(data: Path, entities: int) -> None:
    """A directory with a table Orders, one that was deleted, and one of an account that nobody knows."""

    async def fill() -> None:
        engine = open_engine(f"sqlite:{data}", system_clock)
        service = TableService(engine, system_clock, time.monotonic, storage_keys.fresh_table_id)
        for name in ("Orders", "Old"):
            await service.execute(ACCOUNT, CreateTable(name))
        await service.execute(ACCOUNT, DeleteTable("Old"))
        await service.execute(Named("strange"), CreateTable("Orders"))
        text = members({"customer": EdmValue(EdmType.STRING, "c" * 500)})
        for first in range(0, entities, 100):
            writes = tuple(
                InsertOrReplaceEntity("Orders", Entity(EntityKey("p", f"{number:06}"), text))
                for number in range(first, min(first + 100, entities))
            )
            await service.execute(ACCOUNT, EntityGroupTransaction("Orders", "p", writes))
        await engine.close()

    asyncio.run(fill())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("index") / "data"
    seed(place, 30)
    return place


ABSENT = "tablestone: There is no table {} in the account {} in DATA."
# One after the other: (command, exit status, what it prints, or begins to print)
SEQUENCE = [
    ("list", 0, ""),
    ("create Orders PartitionKey", 2, "tablestone: An index on PartitionKey is not possible: "),
    ("create Orders Timestamp", 2, "tablestone: An index on Timestamp is not possible: "),
    ("create Orders odata.etag", 2, "tablestone: An index on odata.etag is not possible: "),
    ("create Nothing customer", 2, ABSENT.format("Nothing", "devstoreaccount1")),
    ("create Old customer", 2, "tablestone: The table Old is being deleted in DATA."),
    ("list Nothing", 2, ABSENT.format("Nothing", "devstoreaccount1")),
    (
        "create Orders customer --account other",
        2,
        ABSENT.format("Orders", "other")[:-1] + ", and no account of that name is stored.",
    ),
    (
        "list --account other",
        2,
        "tablestone: No account other is stored in DATA, and none of its tables",
    ),
    (
        "list Orders --account strange",
        2,
        "tablestone: No account strange is stored in DATA, and none of",
    ),
    ("create Orders customer", 0, "Orders has an index on customer: 30 entities read.\n"),
    (
        "create orders RowKey --partition",
        0,
        "Orders has an index on RowKey within each partition: 30 entities read.\n",
    ),
    ("list", 0, "Orders\tcustomer\ttable\tready\nOrders\tRowKey\tpartition\tready"),
    ("list orders", 0, "Orders\tcustomer\ttable\tready\nOrders\tRowKey\tpartition\tready"),
    ("create Orders customer", 2, "tablestone: Orders already has an index on customer."),
    ("check orders customer", 0, "The index on customer of Orders is right: 30 entities."),
    ("check Orders absent", 2, "tablestone: Orders has no index on absent."),
    (
        "create Orders custmer",
        2,
        "tablestone: No entity of Orders has custmer; names are case-sensitive. Without a terminal, --yes makes the "
        "index nevertheless.",
    ),
    *(
        (
            f"create Orders p{number} --yes",
            0,
            f"Orders has an index on p{number}: 30 entities read.\nNo entity has p{number} so far",
        )
        for number in range(14)
    ),
    ("create Orders p14 --yes", 2, "tablestone: Orders has 16 indexes: more are not possible."),
    ("drop ORDERS customer", 0, "Orders has no index on customer any more."),
    ("drop Orders customer", 2, "tablestone: Orders has no index on customer."),
]


def test_the_sentences(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, status, printed in SEQUENCE:
        assert main(["index", *command.split(), "--data", str(data)]) == status, command
        both = "".join(capsys.readouterr()).replace(str(data), "DATA")
        assert both == printed if printed.endswith("\n") else both.startswith(printed), command
        assert bool(both) == bool(printed), command
    assert main(["check", "--data", str(data)]) == 0


@pytest.mark.slow
def test_the_commands_of_the_guide(tmp_path: Path) -> None:
    seed(tmp_path / "data", 3000)
    run_page((GUIDES / "indexes.md").read_text(encoding="utf-8"), tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--engine memory", "Indexes cannot be stored: the engine memory stores nothing."),
        ("--engine cassandra://127.0.0.1:1/t", "This engine keeps no indexes, which a commit "),
        ("--data {nowhere}", "The data directory {nowhere} holds no Tablestone data."),
    ],
)
@pytest.mark.parametrize("command", ["create T p", "list", "check T p", "drop T p"])
def test_storage_that_has_no_indexes(
    command: str, options: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "nowhere"
    line = f"index {command} {options}".format(nowhere=nowhere)
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("tablestone: " + sentence.format(nowhere=nowhere))
    assert error.count("\n") == 1
    assert not nowhere.exists()


def test_an_index_is_kept_by_every_process_of_a_server_from_then_on(
    private_server: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "data"
    server = private_server(place, "--workers", "2")
    service = TableServiceClient.from_connection_string(server.connection_string)
    table = service.create_table("Orders")
    table.create_entity({"PartitionKey": "p", "RowKey": "before", "customer": "a"})
    assert main(["index", "create", "Orders", "customer", "--data", str(place)]) == 0
    for number in range(8):
        with TableServiceClient.from_connection_string(server.connection_string) as other:
            entity = {"PartitionKey": "p", "RowKey": f"after{number}", "customer": "a"}
            other.get_table_client("Orders").upsert_entity(entity)
    assert len(list(table.query_entities("customer eq 'a'"))) == 9
    capsys.readouterr()
    assert main(["index", "check", "Orders", "customer", "--data", str(place)]) == 0
    assert capsys.readouterr().out == "The index on customer of Orders is right: 9 entities.\n"
    assert server.stop() == 0
    assert server.stderr == ""


def test_a_disk_that_gets_full_during_a_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "disk", 16 * 1024 * 1024) as disk:
        place = disk / "data"
        seed(place, 4_000)
        filler = disk / "filler"
        found = os.statvfs(disk)
        filler.write_bytes(bytes(found.f_bavail * found.f_frsize - 1024 * 1024))
        create = ("index", "create", "Orders", "customer", "--data", place)
        full = tablestone(*create)
        assert full.status == 1
        assert full.stderr.startswith("tablestone: Storage cannot write now: ")
        assert full.stderr.endswith("; the same command continues.\n")
        assert full.stderr.count("\n") == 1
        filler.unlink()
        assert main(["index", "list", "--data", str(place)]) == 0
        assert capsys.readouterr().out in ("", "Orders\tcustomer\ttable\tbuilding\n")
        assert main([*map(str, create)]) == 0
        assert capsys.readouterr().err == ""
        assert main(["check", "--data", str(place)]) == 0
        assert capsys.readouterr().out == f"{place}: healthy\n"


def test_a_build_that_is_interrupted_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "data"
    seed(place, 10_000)
    create = ("index", "create", "Orders", "customer", "--data", str(place))
    building = subprocess.Popen(
        [COMMAND, *create], stderr=subprocess.PIPE, text=True, env=clean_environment()
    )
    while building.poll() is None:
        assert main(["index", "list", "--data", str(place)]) == 0
        if capsys.readouterr().out:
            break
    building.send_signal(signal.SIGINT)
    _, error = building.communicate()
    stopped = "tablestone: Stopped. The same command continues."
    assert (building.returncode, error.strip()) == (130, stopped)
    assert main([*create]) == 0
    assert capsys.readouterr().err == ""
    assert main(["index", "check", "Orders", "customer", "--data", str(place)]) == 0


def test_an_index_goes_with_its_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever writes the database anew leaves the index ready, and right."""
    data, made, restored = (tmp_path / name for name in ("data", "made.db", "restored"))
    key = tmp_path / "key"
    key.write_text("5e" * 32)
    seed(data, 300)

    def printed(*command: str | Path) -> str:
        assert main([*map(str, command)]) == 0, command
        return capsys.readouterr().out

    with_key = ("--data", restored, "--encryption-key-file", key)
    for command in (
        ("index", "create", "Orders", "customer", "--data", data),
        ("compact", "--data", data),
        ("upgrade", "--data", data),
        ("backup", "--data", data, made),
        ("restore", made, "--data", restored),
        ("encrypt", *with_key),
    ):
        printed(*command)
    for place in (("--data", data), with_key):
        assert printed("index", "list", *place) == "Orders\tcustomer\ttable\tready\n"
        checked = "The index on customer of Orders is right: 300 entities.\n"
        assert printed("index", "check", "Orders", "customer", *place) == checked
        printed("check", *place)
