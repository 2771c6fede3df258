"""`tablestone upgrade`: a stored directory of every released format is upgraded, checked and served."""

import asyncio
import json
import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from azure.data.tables import TableServiceClient

from cli.command_line import Ended, commands_of, run_line, tablestone
from conftest import StartServer
from storage.formats.make import answers, changes
from tablestone.cli.stored_data import connection_string
from tablestone.clock import system_clock
from tablestone.configuration import DEVELOPMENT_ACCOUNT
from tablestone.engines.contract import EngineRefused, EngineUnavailable
from tablestone.engines.kind import Opening
from tablestone.engines.sqlite import data_directory
from tablestone.engines.sqlite.data_directory import (
    DATABASE_NAME,
    FORMAT_VERSION,
    KEEPING_FORMAT_VERSION,
    DataDirectory,
)
from tablestone.engines.sqlite.engine import SqliteEngine
from tablestone.engines.sqlite.upgrade import STEPS, upgrade

FORMATS = Path(__file__).parents[1] / "storage" / "formats"
STORED = sorted(path for path in FORMATS.iterdir() if path.name[0].isdigit())
NOTHING_TO_UPGRADE = {
    "1": (
        "format 1 (a record of changes makes it 2, an index makes it 3, a rule of an account makes it 4); "
        "nothing to upgrade"
    ),
    "2": "format 2 (an index makes it 3, a rule of an account makes it 4); nothing to upgrade",
    "3": "format 3 (a rule of an account makes it 4); nothing to upgrade",
    "4": "format 4, which is the newest; nothing to upgrade",
}
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "upgrading.md"


def test_there_is_a_directory_of_every_format_and_a_step_from_every_older_one() -> None:
    formats = {int(path.name.partition("-")[0]) for path in STORED}
    assert formats == set(range(1, KEEPING_FORMAT_VERSION + 1))
    assert STEPS.keys() == set(range(1, FORMAT_VERSION))


@pytest.fixture(params=STORED, ids=lambda path: path.name)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a stored directory, without the files that are only for the tests."""
    ignored = shutil.ignore_patterns("expected.json")
    return Path(shutil.copytree(request.param, tmp_path / request.param.name, ignore=ignored))


@pytest.mark.slow
@pytest.mark.parametrize("is_upgraded", [True, False], ids=["upgraded", "as it was"])
def test_a_stored_directory_is_served(
    stored: Path, private_server: StartServer, *, is_upgraded: bool
) -> None:
    if is_upgraded:
        assert tablestone("upgrade", "--data", stored) == Ended(
            0, [f"{stored}: {NOTHING_TO_UPGRADE[stored.name[0]]}"], ""
        )
        (found,) = tablestone("check", "--data", stored).lines
        assert found == f"{stored}: healthy"
    elif int(stored.name.partition("-")[0]) < FORMAT_VERSION:
        pytest.skip("an older format has to be upgraded first")
    expected = json.loads((FORMATS / stored.name / "expected.json").read_text(encoding="utf-8"))
    server = private_server(stored)
    host, port = server.address
    name = DEVELOPMENT_ACCOUNT.name  # the server prints the stored account first
    place = connection_string(name, DEVELOPMENT_ACCOUNT.keys[0], f"http://{host}:{port}/{name}")
    assert answers(place) == expected["tables"]
    if "changes" in expected:
        assert changes(place) == expected["changes"]
    assert tablestone("account", "list", "--data", stored).lines == expected["accounts"]
    assert tablestone("role", "list", "--data", stored).lines == expected["roles"]


def test_each_format_is_named_with_the_features_that_it_lacks(
    private_server: StartServer, tmp_path: Path
) -> None:
    data, found = tmp_path / "data", []
    server = private_server(data)
    TableServiceClient.from_connection_string(server.connection_string).create_table("Orders")
    assert server.stop() == 0
    for change in ((), ("index", "create", "Orders", "a", "--quiet", "--data", data)):
        assert not change or tablestone(*change).status == 0
        found += tablestone("upgrade", "--data", data).lines
    assert found == [f"{data}: {NOTHING_TO_UPGRADE[each]}" for each in "13"]


def test_the_guide(private_server: StartServer, tmp_path: Path) -> None:
    places = {"DIR": tmp_path / "dir", "BACKUPS": tmp_path / "backups"}
    places["BACKUPS"].mkdir()
    assert private_server(places["DIR"]).stop() == 0
    backup, install, bring_up, check, look = commands_of(GUIDE)
    assert install == "pip install --upgrade PACKAGE"
    assert (
        look == "tablestone cluster check --engine URL"
    )  # tests/storage/cluster/test_cluster_checks.py runs it
    run_line(backup, places, tmp_path)
    assert run_line(bring_up, places, tmp_path) == [f"{places['DIR']}: {NOTHING_TO_UPGRADE['1']}"]
    assert run_line(check, places, tmp_path) == [f"{places['DIR']}: healthy"]


def test_a_directory_in_use_is_refused(private_server: StartServer, tmp_path: Path) -> None:
    private_server(tmp_path / "data")
    assert tablestone("upgrade", "--data", tmp_path / "data") == Ended(
        2,
        [],
        f"tablestone: The data directory {tmp_path / 'data'} is in use by another Tablestone server.\n",
    )


# The next format, as a future version would define it.


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    DataDirectory(path, Opening.SHARED).close()
    return path


def add_column(connection: apsw.Connection) -> None:
    connection.execute("ALTER TABLE stored_rows ADD COLUMN more BLOB")


def fail(connection: apsw.Connection) -> None:
    add_column(connection)
    connection.execute("INSERT INTO nowhere VALUES (1)")


def format_of(data: Path) -> tuple[int, int]:
    """The number of the format, and the columns of the table."""
    with closing(apsw.Connection(str(data / "tablestone.db"))) as connection:
        columns = connection.execute("PRAGMA table_info(stored_rows)").fetchall()
        return int(connection.pragma("user_version")), len(columns)


def test_steps_are_applied_in_order_with_the_number(data: Path) -> None:
    def second(connection: apsw.Connection) -> None:
        connection.execute("ALTER TABLE stored_rows RENAME COLUMN more TO most")

    assert upgrade(data, {1: add_column, 2: second}, 3) == (1, 3)
    assert format_of(data) == (3, 5)


def test_what_is_upgraded_is_archived_in_a_new_life(data: Path) -> None:
    """Steps change rows without records, so an archive cannot go on after them."""
    engine = SqliteEngine(data, system_clock, Opening.SERVER)
    source = engine.archive_source()
    source.keep()
    source.begin_run("s3://bucket", "life", "run", 1)
    source.close()
    asyncio.run(engine.close())
    upgrade(data, {2: add_column}, 3)
    with closing(apsw.Connection(str(data / DATABASE_NAME))) as database:
        assert database.execute("SELECT life, run FROM archive_state").get == ("life", "")


def test_a_step_that_fails_changes_nothing(data: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"^The upgrade failed: no such table: nowhere\.$"):
        upgrade(data, {1: fail}, 2)
    assert format_of(data) == (1, 4)
    DataDirectory(data, Opening.SERVER).close()


def test_a_format_without_a_step_is_refused(data: Path) -> None:
    with pytest.raises(EngineRefused, match=r"has format 1, which cannot be upgraded\.$"):
        upgrade(data, {}, 2)


def test_a_newer_version_refuses_an_older_format_and_reads_it(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_directory, "FORMAT_VERSION", 2)
    for opening in (Opening.SERVER, Opening.SHARED):
        with pytest.raises(EngineRefused) as refused:
            DataDirectory(data, opening)
        assert str(refused.value) == (
            f"The data directory {data} was written by an older version of Tablestone (format 1; this one writes "
            f"2). After a backup: tablestone upgrade --data {data}"
        )
    DataDirectory(data, Opening.READ_ONLY).close()
    assert upgrade(data, {1: add_column}, 2)[1] == 2
    DataDirectory(data, Opening.SERVER).close()
