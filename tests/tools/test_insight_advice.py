"""The advice of `tablestone insight` on a server's requests: right for a scan, none where nothing is wrong."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from cli.admin_pages import admin_of
from conftest import StartServer
from server_process import ServerProcess
from tablestone.testing import TableStorage
from tools.data_tools import DataTools, entity

SECONDS_MAX = 60
RUNS = 3


@pytest.fixture
def server(private_server: StartServer, tools: DataTools, tmp_path: Path) -> ServerProcess:
    started = private_server(tmp_path / "data", "--admin", "0", "--workers", "1")
    tools.connection_string = started.connection_string
    return started


def seen(tools: DataTools, server: ServerProcess, table: str) -> dict[str, Any]:
    """The report, once the server has counted the queries: a worker reports once a second."""
    end = time.monotonic() + SECONDS_MAX
    while True:
        ran = tools.run("insight", table, "--admin", admin_of(server), "--json", status=None)
        report: dict[str, Any] = json.loads(ran.stdout) if ran.status == 0 else {}
        queries = report.get("queries", {}).get("hour", [])
        if any(each["filter"] and each["queries"] == RUNS for each in queries):
            return report
        assert time.monotonic() < end, ran
        time.sleep(0.2)


@pytest.mark.slow
def test_the_advice_on_a_server(tools: DataTools, server: ServerProcess) -> None:
    rows = [
        entity(f"station{n % 3}", f"2013-07-04T{n:04}", wind=n % 60, gust=n % 7, note="x" * 40)
        for n in range(300)
    ]
    path = tools.write_lines("rows.jsonl", rows)
    for table, text in (
        ("Healthy", "PartitionKey eq 'station1' and RowKey ge '2013-07-04T0100'"),
        ("Scanned", "wind eq 7 and gust ge 3"),
    ):
        tools.run("import", path, table, "--quiet")
        # A scan by a tool that looks at the table is in the list, and gets no advice.
        tools.run("count", table, "--filter", "note eq 'y'", "--quiet")
        for _ in range(RUNS):
            tools.run("query", table, "--filter", text, "--output", "jsonl")
    healthy = seen(tools, server, "Healthy")
    assert healthy["advice"] == []
    looks = {each["filter"]: each["from_tools"] for each in healthy["queries"]["hour"]}
    # A count that finds nothing looks at the first entities too, to say why.
    assert looks == {"note eq ?": True, "": True, "PartitionKey eq ? and RowKey ge ?": False}
    assert "Advice" not in tools.run("insight", "Healthy", "--admin", admin_of(server)).stdout
    (advice,) = seen(tools, server, "Scanned")["advice"]
    assert (advice["rule"], advice["filter"]) == ("compound-key", "wind eq ? and gust ge ?")
    keys = advice["partition_key"], advice["row_key"]
    assert keys == ("{wind:010}", "{gust:010}_{PartitionKey}_{RowKey}")
    told = tools.run("insight", "Scanned", "--admin", admin_of(server)).stdout
    assert f"  {advice['change']}\n  cost of writes: {advice['cost']}\n" in told


@pytest.mark.slow
def test_which_commands_count_apart(
    tools: DataTools, server: ServerProcess, tmp_path: Path
) -> None:
    """Those that look at tables or copy them, but not those that do a program's work."""
    rows = [entity("p", f"{n:04}", n=n) for n in range(50)]
    tools.run("import", tools.write_lines("rows.jsonl", rows), "Rows", "--quiet")
    with TableStorage() as other:
        tools.run("export", "Rows", str(tmp_path / "out.jsonl"), "--quiet")
        tools.run("partitions", "Rows")
        tools.run("count", "Rows", "--quiet")
        places = server.connection_string, other.connection_string
        tools.run("copy", "--from", places[0], "--to", places[1], "Rows", "--quiet")
        tools.run("diff", *places, "Rows", "--quiet")
    for _ in range(RUNS):
        tools.run("query", "Rows", "--filter", "n eq 7", "--output", "jsonl")
    (table,) = seen(tools, server, "Rows")["tables"]
    activity, by_tools = table["activity"]["hour"], table["by_tools"]["hour"]
    assert (activity["writes"], activity["entities_read"]) == (50, RUNS * 50)
    assert by_tools["entities_read"] >= 4 * 50
    assert by_tools["writes"] == 0
