"""Insight of a real server: two workers, the page, the command, and what it must not show."""

import json
import shlex
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from cli.admin_pages import admin_of, page
from cli.command_line import Ended, tablestone
from cli.insight_workload import LARGE, REQUESTS, SECRET_VALUE, work
from cli.worker_processes import wait_until
from explorer import insight_stand_in as stand_in
from server_process import ServerProcess, start_server
from tablestone.cli.commands.insight import print_insight, spark
from tablestone.insight.report import DAY, HOUR, NOW, PERIODS, InsightReport
from tablestone.model.keys import EntityKey
from tablestone.tools.client import Operation, Query, TableEndpoint
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.errors import ServiceError
from tablestone.tools.odata import TypedEntity, write_body

pytestmark = pytest.mark.slow

StartServer = Callable[..., ServerProcess]
SOON = {"tablestone.server.admin.size_survey.SURVEY_PAUSE_SECONDS": 0.2}
AT_LENGTH = 120.0
"""How long a condition may take on a busy machine."""


def report_of(server: ServerProcess, query: str = "") -> InsightReport:
    status, text = page(server, f"/insight{query}")
    assert status == 200
    return InsightReport.from_json(text.encode())


def requests_of(server: ServerProcess) -> int:
    found = [table.activity[NOW] for table in report_of(server).tables]
    return sum(each.reads + each.writes + each.refused for each in found)


def entities_of(server: ServerProcess) -> int:
    return sum(table.size.entities for table in report_of(server).tables if table.size)


def insight(server: ServerProcess, *arguments: str) -> Ended:
    return tablestone("insight", *arguments, "--admin", admin_of(server))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("insight")


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[ServerProcess]:
    """A server that has handled a workload and counted its tables."""
    started = start_server(directory, "--admin=0", "--workers=2", constants=SOON)
    work(started)
    wait_until(lambda: requests_of(started) == REQUESTS, AT_LENGTH)
    wait_until(lambda: entities_of(started) == 30, AT_LENGTH)
    yield started
    started.kill()


def test_the_report_of_all_workers(server: ServerProcess) -> None:
    report = report_of(server)
    assert report.workers == 2
    (account,) = report.accounts
    assert account.account == server.account_name
    (table,) = report.tables
    assert table.table == "Orders"
    assert table.writes[HOUR] == {"delete": 1, "insert": 31, "update": 1}
    assert table.plans[HOUR] == {"point": 25, "table": 3}
    activity = table.activity[DAY]
    assert (activity.writes, activity.conflicts, activity.refused) == (33, 1, 4)
    assert activity.bytes_in > LARGE  # includes the body of a refused request
    assert activity.entities_read == 24 + 3 * 30  # also those that SQLite leaves out
    hottest = report.partitions[NOW][0]
    assert hottest.partition_key == "customer1"
    assert hottest.activity.entities_read == 20
    (query,) = report.queries[HOUR]
    assert (query.filter, query.plan, query.queries) == ("Price gt ?", "table", 3)
    assert (query.entities_read, query.entities_returned) == (90, 3)
    assert query.p99_ms >= query.p50_ms > 0
    assert table.size is not None
    assert (table.size.entities, table.size.partitions) == (30, 3)
    assert [each.entities for each in table.size.largest] == [10, 10, 10]
    assert table.size.bytes == sum(each.bytes for each in table.size.largest) > 30 * 100


def test_what_a_tool_asks_for_is_counted_apart(server: ServerProcess) -> None:
    """A point read, a scan, a transaction and a refused insert by an agent `tablestone-…`: no other count moves."""
    before = report_of(server)
    key = EntityKey("customer1", "by tools")
    body = write_body(TypedEntity(key, {}))
    with TableEndpoint(
        parse_connection_string(server.connection_string), agent="tablestone-looking"
    ) as tool:
        assert tool.write("Orders", Operation("POST", key, body))
        assert tool.get("Orders", key)
        assert len(tool.page(Query("Orders"), None).entities) == 31
        with pytest.raises(ServiceError):
            tool.write("Orders", Operation("POST", key, body))
        tool.transact("Orders", [Operation("DELETE", key, if_match="*")])
    wait_until(lambda: report_of(server).tables[0].tool_requests[HOUR] == 5, AT_LENGTH)
    after = report_of(server)
    (table,), (old,) = after.tables, before.tables
    by_tools = table.by_tools[HOUR]
    assert (by_tools.reads, by_tools.writes, by_tools.conflicts) == (2, 2, 1)
    assert (by_tools.entities_read, by_tools.entities_returned) == (32, 32)
    assert (table.activity, table.plans, table.writes) == (old.activity, old.plans, old.writes)
    activities = [
        [(each.partition_key, each.activity) for each in report.partitions[HOUR]]
        for report in (before, after)
    ]
    assert activities[0] == activities[1]
    assert [each.from_tools for each in after.queries[HOUR]] == [False, True]


def test_the_options_of_the_server_can_be_pasted(server: ServerProcess, directory: Path) -> None:
    storage = report_of(server).storage
    assert storage == f" --data {directory}"
    given = ["--account", server.account_name, *shlex.split(storage)]
    assert tablestone("index", "list", "Orders", *given) == Ended(0, [], "")


def test_one_table(server: ServerProcess) -> None:
    report = report_of(server, "?table=ORDERS")
    heat = report.tables[0].heat
    assert heat is not None
    # A scan of the table belongs to no range of keys.
    assert (sum(map(sum, heat.hour.read)), sum(heat.hour.scanned)) == (24, 90)
    assert report_of(server, "?table=None").tables == ()
    assert report_of(server, "?account=other").partitions[HOUR] == ()


def test_no_row_key_and_no_value_is_shown(server: ServerProcess) -> None:
    text = page(server, "/insight?table=Orders")[1]
    assert "customer1" in text
    assert SECRET_VALUE not in text
    assert "row-" not in text


@pytest.mark.parametrize("arguments", [(), ("orders",), ("--period", "now"), ("--top", "1")])
def test_the_command(server: ServerProcess, arguments: tuple[str, ...]) -> None:
    ended = insight(server, *arguments)
    assert (ended.status, ended.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in ended.lines]
    hot = next(line for line in lines if line.startswith("Orders customer1 "))
    assert " 20 " in hot
    assert any(line.startswith("Orders Price gt ? table 3 90 30.0 ") for line in lines)
    assert any(line.startswith("Orders 30 ") for line in lines)
    assert ("The largest partitions" in lines) == ("orders" in arguments)
    is_second_shown = any(line.startswith("Orders customer2 ") for line in lines)
    assert is_second_shown == ("1" not in arguments)


def test_the_command_prints_json(server: ServerProcess) -> None:
    ended = insight(server, "Orders", "--json")
    assert ended.status == 0
    report = InsightReport.from_json("\n".join(ended.lines).encode())
    assert report.tables[0].table == "Orders"


def test_a_table_that_is_not_there(server: ServerProcess) -> None:
    ended = insight(server, "Invoices")
    assert (ended.status, ended.lines) == (1, [])
    assert ended.stderr == (
        "tablestone: The server knows no table Invoices with requests of the last day.\n"
    )


def test_the_address_of_the_accounts_has_no_insight(server: ServerProcess) -> None:
    address = server.endpoint.removeprefix("http://").partition("/")[0]
    ended = tablestone("insight", "--admin", address)
    assert (ended.status, ended.stderr) == (
        1,
        f"tablestone: The admin address {address} answers, but not with insight: give the port of --admin of "
        "the server, not that of the tables.\n",
    )


@pytest.mark.parametrize("admin", ["x", "host:", ":1", "127.0.0.1:70000", "https://host:5"])
def test_no_address(admin: str) -> None:
    ended = tablestone("insight", "--admin", admin)
    assert (ended.status, ended.stderr) == (
        2,
        f"tablestone: --admin must be PORT or HOST:PORT, such as 10003 or 127.0.0.1:10003, not {admin!r}.\n",
    )


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:1", 200), ("localhost", 200), ("[::1]", 200), ("evil.example", 403), ("", 403)],
)
def test_the_name_of_another_site_is_refused(server: ServerProcess, host: str, status: int) -> None:
    """DNS rebinding: a page of that site could read keys in the operator's browser."""
    where = urlsplit(f"//{admin_of(server)}")
    connection = HTTPConnection(str(where.hostname), where.port, timeout=30)
    try:
        connection.request("GET", "/insight", headers={"Host": host})
        assert connection.getresponse().status == status
    finally:
        connection.close()


def test_no_server() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        ended = tablestone("insight", "--admin", str(port))
    assert ended.status == 1
    assert f"The admin address 127.0.0.1:{port} does not answer (" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", b"SSH-2.0-OpenSSH_9.2\r\n"],
    ids=["nothing", "other JSON", "another protocol"],
)
def test_another_server(answer: bytes) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(answer)

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        Thread(target=other.handle_request, daemon=True).start()
        ended = tablestone("insight", "--admin", str(other.server_port))
    assert ended.status == 1
    assert ended.stderr.startswith("tablestone: The admin address 127.0.0.1:")
    assert "Traceback" not in ended.stderr


def test_hashes_instead_of_keys(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--admin=0", "--workers=1", "--insight=hashed")
    work(server)
    wait_until(lambda: requests_of(server) == REQUESTS, AT_LENGTH)
    text = page(server, "/insight?table=Orders")[1]
    assert "customer" not in text
    assert len(json.loads(text)["partitions"][NOW]) == 4


def test_insight_that_is_off(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--admin=0", "--workers=1", "--insight=off")
    sentence = "Insight is off: the server was started with --insight off."
    assert page(server, "/insight") == (404, f"{sentence}\n")
    ended = insight(server)
    assert (ended.status, ended.stderr) == (1, f"tablestone: {sentence}\n")


def test_rows_in_memory_have_no_sizes(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--admin=0", "--engine=memory")
    work(server)
    wait_until(lambda: requests_of(server) == REQUESTS, AT_LENGTH)
    assert report_of(server).tables[0].size is None
    assert report_of(server).storage == ""
    lines = insight(server).lines
    assert "A server that keeps its tables in memory does not report their sizes." in lines


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ((), ""),
        ((0, 0), ""),
        ((0, 8, 4, 1, 0), " █▄▁ "),
        ((1,) * 60, "█" * 20),
        ((0,) * 57 + (1, 1, 1), " " * 19 + "█"),
    ],
)
def test_a_line_of_bars(counts: tuple[int, ...], shown: str) -> None:
    assert spark(counts) == shown


def test_a_large_share_is_remarked_upon(capsys: pytest.CaptureFixture[str]) -> None:
    """Also below Azure's target: JFK takes most of its table at 120 entities/s."""
    made = stand_in.report("devstoreaccount1", None)
    hot, calm = made.partitions[HOUR]
    cool = replace(hot, rate=replace(hot.rate, is_throttled=False))
    others = [replace(calm, partition_key=key) for key in ("EWR", *"ABCDEFG")]
    made = replace(made, partitions=dict.fromkeys(PERIODS, (cool, *others)))
    print_insight(made, HOUR, 10, (), of_one_table=False)
    shown = capsys.readouterr().out
    (line,) = {each.split("Weather", 1)[1] for each in shown.splitlines() if "JFK" in each}
    assert line.rstrip().endswith("31% of Weather")
    assert "% of Weather" not in next(each for each in shown.splitlines() if "EWR" in each)


def test_what_the_rates_are_and_a_minute_that_is_not_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The mean of the busiest minute divides by 60 s, so it says nothing before a minute is over."""
    made = stand_in.report("devstoreaccount1", None)
    for seconds, is_told in ((3_600, True), (59, False)):
        print_insight(replace(made, started=made.at - seconds), HOUR, 10, (), of_one_table=False)
        shown = capsys.readouterr().out
        assert "Entities/s: the mean; `minute`: in the busiest minute; `peak`: in the" in shown
        (head,) = {each for each in shown.splitlines() if "PartitionKey" in each}
        assert head.split()[-1] == "remark"
        assert ("2,400.0" in shown) is is_told


def test_a_scan_names_no_partition(capsys: pytest.CaptureFixture[str]) -> None:
    made = stand_in.report("devstoreaccount1", None)
    print_insight(
        replace(made, partitions=dict.fromkeys(PERIODS, ())), HOUR, 10, (), of_one_table=False
    )
    assert "No request named a PartitionKey." in capsys.readouterr().out


def test_when_entities_expire(capsys: pytest.CaptureFixture[str]) -> None:
    made = stand_in.report("devstoreaccount1", None)
    weather = replace(made.tables[0], size=None)
    expiring = replace(weather, expiry="24h after their Timestamp")
    for table, is_told in ((weather, False), (expiring, True)):
        print_insight(replace(made, tables=(table,)), HOUR, 10, (), of_one_table=False)
        sentence = f"Entities of {table.table} expire 24h after their Timestamp."
        assert (sentence in capsys.readouterr().out) is is_told
