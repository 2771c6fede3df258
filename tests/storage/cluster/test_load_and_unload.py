"""`tablestone cluster load` and `unload`: a data directory into a keyspace and back, with every ETag unchanged."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableAccessPolicy, TableServiceClient, UpdateMode

from server_process import COMMAND, ServerProcess, clean_environment, start_server
from storage.cluster.keyspaces import made_keyspace, on_a_cluster, tablestone
from storage.cluster_engine import drop_keyspace
from tablestone.clock import system_clock
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY, DEVELOPMENT_ACCOUNT_NAME
from tablestone.engines.cassandra.cluster_url import parse_address
from tablestone.engines.contract import EngineUnavailable
from tablestone.engines.registry import held_for_processes, open_engine
from tablestone.tables.storage_migration import move

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tablestone.engines.contract import StoredRow

pytestmark = [on_a_cluster, pytest.mark.sdk]

KEYSPACE = "moved"
PARTITIONS = 30
ROWS = 450
LONG = "x" * 30_000
POLICY = TableAccessPolicy(permission="r", start=None, expiry=None)


@pytest.fixture
def url() -> Iterator[str]:
    with made_keyspace(KEYSPACE) as url:
        yield url


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that a server has filled: an account, policies, properties, tables, small and large rows."""
    directory = tmp_path_factory.mktemp("moving") / "data"
    keys = directory.with_name("keys")
    keys.write_text(DEVELOPMENT_ACCOUNT_KEY)
    name = DEVELOPMENT_ACCOUNT_NAME
    run("account", "create", name, "--key-file", str(keys), "--data", str(directory))
    server = start_server(directory)
    try:
        service = service_of(server)
        service.set_service_properties(cors=[])
        many = service.create_table("Many")
        for number in range(PARTITIONS):
            many.create_entity({"PartitionKey": f"p{number:02}", "RowKey": "r", "n": number})
        large = service.create_table("Large")
        large.set_table_access_policy({"readers": POLICY})
        for start in range(0, ROWS, 90):
            rows = range(start, min(start + 90, ROWS))
            large.submit_transaction(
                [
                    ("create", {"PartitionKey": "p", "RowKey": f"{row:04}", "s": LONG})
                    for row in rows
                ]
            )
        service.create_table("Gone").create_entity({"PartitionKey": "p", "RowKey": "r"})
        service.delete_table("Gone")
    finally:
        server.stop(signal.SIGTERM)
    run("index", "create", "Many", "n", "--data", str(directory))
    run("expiry", "set", "Large", "--after", "7d", "--yes", "--data", str(directory))
    return directory


def run(*arguments: str) -> str:
    ended = tablestone(*arguments)
    assert ended.returncode == 0, ended
    return ended.stdout


def service_of(server: ServerProcess) -> TableServiceClient:
    credential = AzureNamedKeyCredential(DEVELOPMENT_ACCOUNT_NAME, DEVELOPMENT_ACCOUNT_KEY)
    return TableServiceClient(server.endpoint, credential=credential, retry_total=0)


def shown(server: ServerProcess) -> dict[str, Any]:
    """Everything that a client can see, with versions."""
    service = service_of(server)
    return {
        "policies": list(service.get_table_client("Large").get_table_access_policy()),
        **{
            table.name: [
                (dict(entity), entity.metadata["etag"], entity.metadata["timestamp"])
                for entity in service.get_table_client(table.name).list_entities()
            ]
            for table in service.list_tables()
        },
    }


def test_a_directory_comes_into_the_cluster_and_back_as_it_was(
    directory: Path, url: str, tmp_path: Path
) -> None:
    at_home = start_server(directory)
    before = shown(at_home)
    refused = tablestone("cluster", "load", "--from", str(directory), "--engine", url)
    assert (refused.returncode, "in use by another Tablestone server" in refused.stderr) == (
        2,
        True,
    )
    at_home.stop(signal.SIGTERM)

    loaded = run("cluster", "load", "--from", str(directory), "--engine", url)
    assert (
        f"The keyspace {KEYSPACE} holds what {directory} holds: 1 account, 2 tables, 480" in loaded
    )
    assert "keeps them: Large 7d after their Timestamp.\n" in loaded
    assert loaded.endswith("so the queries that these served will scan: Many n.\n")
    again = tablestone("cluster", "load", "--from", str(directory), "--engine", url)
    assert again.returncode == 2
    assert f"The keyspace {KEYSPACE} holds data already" in again.stderr

    server = start_server(tmp_path, "--engine", url, "--workers", "1")
    try:
        assert shown(server) == before
        many = service_of(server).get_table_client("Many")
        assert [each["RowKey"] for each in many.query_entities("n eq 5")] == ["r"]
        assert DEVELOPMENT_ACCOUNT_NAME in run("account", "list", "--engine", url)
        in_use = tablestone("cluster", "unload", "--to", str(tmp_path / "new"), "--engine", url)
        assert (in_use.returncode, "stop every server first" in in_use.stderr) == (2, True)
        table = service_of(server).get_table_client("Many")
        entity = table.get_entity("p07", "r")
        entity["n"] = -7
        table.update_entity(  # the ETag from the directory's server
            entity,
            UpdateMode.REPLACE,
            etag=before["Many"][7][1],
            match_condition=MatchConditions.IfNotModified,
        )
        table.delete_entity("p08", "r")
        table.create_entity({"PartitionKey": "p08", "RowKey": "r", "n": -8})
        after = shown(server)
    finally:
        assert server.stop(signal.SIGTERM) == 0
    assert run("check", "--engine", url).endswith("healthy\n")

    unloaded = run("cluster", "unload", "--to", str(tmp_path / "new"), "--engine", url)
    assert "1 account, 2 tables, 480 entities" in unloaded
    assert "\ntablestone index check Many n --data " in unloaded
    assert "keeps them: Large 7d after their Timestamp.\n" in unloaded
    listed = run("index", "list", "--data", str(tmp_path / "new"))
    assert listed == "Many\tn\ttable\tbroken\n"
    refused = tablestone("cluster", "unload", "--to", str(tmp_path / "new"), "--engine", url)
    assert (refused.returncode, "is not empty" in refused.stderr) == (2, True)
    assert run("check", "--data", str(tmp_path / "new")).endswith("healthy\n")
    back = start_server(tmp_path / "new")
    try:
        assert shown(back) == after
    finally:
        back.stop(signal.SIGTERM)


def test_a_load_that_was_interrupted_keeps_servers_out_and_is_continued(
    directory: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tablestone.engines.cassandra import loading, opening  # noqa: PLC0415 - needs the driver

    place = f"sqlite:{directory}"
    monkeypatch.setattr(loading, "KEPT_SECONDS", -1.0)

    async def interrupted() -> None:
        target = opening.open_cassandra(parse_address(url), system_clock, may_be_loading=True)
        with held_for_processes(place) as storage:
            source = open_engine(place, system_clock, shared=True, storage=storage)
            load = loading.Load(target.connection, storage)
            write, pieces = load.write, 0

            async def fail_at_the_sixth(rows: Sequence[StoredRow]) -> None:
                nonlocal pieces
                pieces += 1
                if pieces == 6:
                    raise EngineUnavailable("the network is gone")
                await write(rows)

            load.write = fail_at_the_sixth  # type: ignore[method-assign]
            with pytest.raises(EngineUnavailable):
                await move(source, load, lambda *_: None)
            await source.close()
        await target.close()

    asyncio.run(interrupted())
    for command in (("serve", "--port", "0"), ("cluster", "unload", "--to", str(tmp_path / "x"))):
        refused = tablestone(*command, "--engine", url)
        assert (refused.returncode, "is being loaded" in refused.stderr) == (2, True)
    assert run("cluster", "status", "--engine", url).startswith("The keyspace is being loaded")
    other = tmp_path / "other"
    start_server(other).stop(signal.SIGTERM)
    refused = tablestone("cluster", "load", "--from", str(other), "--engine", url)
    assert (refused.returncode, "loaded from another directory" in refused.stderr) == (2, True)
    assert "480 entities" in run("cluster", "load", "--from", str(directory), "--engine", url)
    server = start_server(tmp_path, "--engine", url, "--workers", "1")
    try:
        assert len(list(service_of(server).get_table_client("Large").list_entities())) == ROWS
    finally:
        server.stop(signal.SIGTERM)


def test_a_load_that_lost_a_row_says_which_and_lets_no_server_in(directory: Path, url: str) -> None:
    """Plants a fault that the comparison has to find."""
    plant = (
        "import sys; from tablestone.engines.cassandra import loading; write = loading.Load.write\n"
        "async def lossy(self, rows):\n"
        "    await write(self, [row for row in rows if not row.row.startswith(b'0123')])\n"
        "loading.Load.write = lossy\n"
        "from tablestone.cli.main import main; sys.exit(main())"
    )
    python = str(Path(COMMAND).with_name("python"))
    ended = subprocess.run(
        [python, "-c", plant, "cluster", "load", "--from", str(directory), "--engine", url],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
    )
    assert ended.returncode == 1, ended
    assert "The entity PartitionKey='p', RowKey='0123' of table Large is missing." in ended.stdout
    assert "is being loaded" in tablestone("serve", "--port", "0", "--engine", url).stderr


def test_a_keyspace_that_a_server_has_used_is_not_loaded(
    directory: Path, url: str, tmp_path: Path
) -> None:
    """A deletion could hide loaded rows, and no read would show it."""
    load = ("cluster", "load", "--from", str(directory), "--engine", url)
    run("check", "--engine", url)
    run("account", "list", "--engine", url)
    start_server(tmp_path, "--engine", url, "--workers", "1").stop(signal.SIGTERM)
    refused = tablestone(*load)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"The keyspace {KEYSPACE} was used before, and its deletions" in refused.stderr
    assert "A server can use it." in run("cluster", "check", "--engine", url)
    drop_keyspace(parse_address(url))
    run("cluster", "init", "--engine", url + "&replication=1")
    run("check", "--engine", url)
    run("account", "list", "--engine", url)
    assert "480 entities" in run(*load)


def test_a_commit_is_later_than_what_was_loaded_whatever_the_clocks_say(
    directory: Path, url: str
) -> None:
    """A load takes its timestamps from a node's clock. Where that was ahead, commits of other nodes stayed hidden."""
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver

    run("cluster", "load", "--from", str(directory), "--engine", url)
    connection = Connection(parse_address(url))
    try:
        rows = connection.execute("SELECT writetime(value), writetime(mark), listed FROM rows")
        entries = connection.execute("SELECT writetime(epoch), epoch FROM directory")
    finally:
        connection.close()
    assert len(rows) > PARTITIONS + ROWS
    assert {tuple(row) for row in rows} == {(1, 1, 1)}
    assert {tuple(entry) for entry in entries} == {(1, 1)}


def test_a_directory_without_data_is_refused(url: str, tmp_path: Path) -> None:
    refused = tablestone("cluster", "load", "--from", str(tmp_path / "no"), "--engine", url)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "holds no Tablestone data" in refused.stderr
    assert not (tmp_path / "no").exists()


def test_status_shows_nodes_largest_partitions_and_the_nodes_of_a_given_one(
    directory: Path, url: str
) -> None:
    run("cluster", "load", "--from", str(directory), "--engine", url)
    node = url.split("/")[2]
    nodes = run("cluster", "status", "--engine", url).splitlines()
    assert nodes[0].split()[:6] == ["node", "datacenter", "rack", "version", "state", "share"]
    assert nodes[1].split()[0] == node
    assert "up     100%" in nodes[1]
    counted = run("cluster", "status", "--count", "--engine", url)
    assert "  450 rows, about 12.9 MiB: " in counted
    assert f"PartitionKey 'p' of table Large of devstoreaccount1, on {node}" in counted
    given = ("--table", "Large", "--partition-key", "p", "--engine", url)
    assert run("cluster", "status", *given) == node + "\n"
    absent = tablestone("cluster", "status", "--table", "No", *given[2:])
    assert (absent.returncode, absent.stdout, absent.stderr) == (
        1,
        "",
        "tablestone: The account devstoreaccount1 has no table No.\n",
    )
    nowhere = run("cluster", "status", "--table", "Large", "--partition-key", "q", *given[4:])
    assert nowhere == (
        f"No entity has this PartitionKey. These nodes would hold the partition:\n{node}\n"
    )
    alone = tablestone("cluster", "status", "--table", "Large", "--engine", url)
    assert (alone.returncode, "belong together" in alone.stderr) == (2, True)
