"""`tablestone changes`: lines to the end or as they come, from a cursor on, and a sentence where there is no feed."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from conftest import StartServer
from sas_signing import query_of, signed
from server_process import ServerProcess, start_server
from tablestone.tools import changes
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.errors import ServiceError
from tools.data_tools import DataTools, Ran

KEEPING = ("--keep-changes", "7d", "--workers", "1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = start_server(tmp_path_factory.mktemp("kept") / "data", *KEEPING)
    yield started
    assert started.stop() == 0, started.stderr


@pytest.fixture
def kept(tools: DataTools, server: ServerProcess) -> DataTools:
    tools.connection_string = server.connection_string
    return tools


def put(tools: DataTools, table: str, row: str, value: int = 1) -> None:
    tools.run("tables", "--create", table, status=None)
    tools.run("put", table, "p", row, f"Value:Edm.Int32={value}")


def row_of(line: str) -> str:
    found = orjson.loads(line)
    row: str = found.get("entity", found)["RowKey"]
    return row


def rows(ran: Ran) -> list[str]:
    return [row_of(line) for line in ran.lines]


def next_row(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return row_of(process.stdout.readline())


def cursor_in(ran: Ran) -> str:
    assert ran.stderr.startswith("For later changes: --since ")
    return ran.stderr.split()[-1]


def test_all_that_are_kept_and_those_after_a_cursor(kept: DataTools, table: str) -> None:
    put(kept, table, "1")
    put(kept, table, "2", 7)
    first = kept.run("changes", table)
    assert rows(first) == ["1", "2"]
    second = orjson.loads(first.lines[1])
    assert (second["kind"], second["entity"]["Value"]) == ("put", 7)
    kept.run("delete-entity", table, "p", "1", "--yes")
    later = kept.run("changes", table, "--since", cursor_in(first))
    assert [orjson.loads(line)["kind"] for line in later.lines] == ["delete"]
    assert rows(kept.run("changes", table, "--since", second["cursor"])) == ["1"]
    assert len(kept.run("changes", table, "--since", "2020-01-01T00:00Z").lines) == 3
    now = kept.run("changes", table, "--since", "now")
    assert now.lines == []
    put(kept, table, "3")
    assert rows(kept.run("changes", table, "--since", cursor_in(now))) == ["3"]


def test_without_a_table_those_of_the_account(kept: DataTools, table: str) -> None:
    cursor = cursor_in(kept.run("changes", "--since", "now"))
    put(kept, table, "1")
    kept.run("tables", "--delete", table, "--yes")
    lines = map(orjson.loads, kept.run("changes", "--since", cursor).lines)
    assert [(line["kind"], line["table"]) for line in lines] == [
        ("table-created", table),
        ("put", table),
        ("table-deleted", table),
    ]


def test_with_a_signature(kept: DataTools, server: ServerProcess, table: str) -> None:
    put(kept, table, "1")
    given = {"sv": "2019-02-02", "tn": table, "sp": "r", "se": "2099-01-01", "st": "2020-01-01"}

    def place(given: dict[str, str]) -> tuple[str, ...]:
        sas = query_of(signed(server.account_name, server.account_key, given))
        return ("--account-url", server.endpoint, "--sas", sas)

    assert rows(kept.run("changes", table, *place(given))) == ["1"]
    refused = kept.run("changes", *place(given), status=1)
    assert "answers AuthorizationFailure" in refused.stderr
    del given["st"]
    refused = kept.run("changes", table, *place(given), status=1)
    assert "needs a signature with a start" in refused.stderr


def test_follow_prints_each_change_as_it_comes(kept: DataTools, table: str) -> None:
    put(kept, table, "1")
    process = kept.start("changes", table, "--follow")
    assert next_row(process) == "1"
    for row in ("2", "3"):
        put(kept, table, row)
        assert next_row(process) == row
    time.sleep(0.5)  # it waits for the next
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr.strip()) == (130, "", "")


def test_follow_ends_quietly_when_its_reader_has_gone(kept: DataTools, table: str) -> None:
    put(kept, table, "1")
    process = kept.start("changes", table, "--follow")
    assert next_row(process) == "1"
    assert process.stdout is not None
    process.stdout.close()
    put(kept, table, "2")
    assert process.wait(60) == 141
    assert process.stderr is not None
    with process.stderr as stderr:
        assert stderr.read() == ""


def test_follow_goes_on_when_the_server_comes_back(
    tools: DataTools, private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path / "data", *KEEPING)
    tools.connection_string = server.connection_string
    put(tools, "Orders", "1")
    process = tools.start("changes", "Orders", "--follow")
    assert next_row(process) == "1"
    server.kill()
    time.sleep(0.3)
    again = private_server(tmp_path / "data", *KEEPING, "--port", str(server.address[1]))
    put(tools, "Orders", "2")
    assert next_row(process) == "2"
    assert again.stop() == 0, again.stderr
    ended = ("--keep-changes", "none", "--port", str(server.address[1]))
    again = private_server(tmp_path / "data", *ended)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert stderr == (
        f"tablestone: {again.endpoint} has no feed of changes: a Tablestone server with --keep-changes has one.\n"
    )


def test_follow_ends_with_its_table(kept: DataTools, server: ServerProcess, table: str) -> None:
    put(kept, table, "1")
    process = kept.start("changes", table, "--follow")
    assert next_row(process) == "1"
    kept.run("tables", "--delete", table, "--yes")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert stderr == f"tablestone: {server.endpoint} has no table {table}, or not any more.\n"


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["{}", "--since", "yesterday"], 1, "since is now, a time such as"),
        (["{}", "--since", ""], 1, "since is now, a time such as"),
        (["{}", "--since", "2999-01-01"], 1, "The time in since is in the future."),
        (["{}", "--since", "{account}"], 1, "InvalidChangeCursor: The cursor in since is of another"),
        (["NoSuch"], 1, "has no table NoSuch, or not any more."),
        ([""], 2, "TABLE is empty"),
    ],
)  # fmt: skip
def test_bad_input(
    kept: DataTools, table: str, arguments: list[str], status: int, sentence: str
) -> None:
    put(kept, table, "1")
    given = {"{}": table, "{account}": cursor_in(kept.run("changes", "--since", "now"))}
    ran = kept.run("changes", *(given.get(word, word) for word in arguments), status=status)
    assert sentence in ran.stderr
    assert (ran.stdout, ran.stderr.count("\n")) == ("", 1)


def test_what_is_not_kept_any_more(
    tools: DataTools, private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path / "data", "--keep-changes", "64KiB", "--workers", "1")
    tools.connection_string = server.connection_string
    put(tools, "Orders", "1")
    cursor = cursor_in(tools.run("changes", "Orders", "--since", "now"))
    lines = [{"PartitionKey": f"{n}", "RowKey": "1", "Text": "x" * 8_000} for n in range(40)]
    tools.run("import", tools.write_lines("a.jsonl", lines), "Orders", "--on-conflict", "replace")
    deadline = time.monotonic() + 20
    while (ran := tools.run("changes", "Orders", "--since", cursor, status=None)).status == 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert (ran.status, ran.stdout) == (1, "")
    assert "ChangesNotKept" in ran.stderr
    assert "since=now" in ran.stderr


@pytest.mark.parametrize("arguments", [("{}",), ()])
def test_an_endpoint_without_a_feed(
    tools: DataTools, table: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "has no feed of changes: a Tablestone server with --keep-changes has one."
    words = [table for _ in arguments]
    assert sentence in tools.run("changes", *words, status=1).stderr
    real = TableEndpoint._send

    def send(self: TableEndpoint, method: str, _target: str) -> object:
        """As a service answers that does not look at `comp`."""
        return real(self, method, "/Tables")

    with monkeypatch.context() as patch:
        patch.setattr(TableEndpoint, "_send", send)
        assert sentence in tools.run("changes", *words, status=1).stderr


class Feed(TableEndpoint):
    """An endpoint with a feed of made-up pages: the lines of each, its cursor, and whether there is more."""

    def __init__(self, pages: list[tuple[list[bytes], str, bool]]) -> None:
        self.connection = parse_connection_string("UseDevelopmentStorage=true")
        self.pages = iter(pages)
        self.asked: list[tuple[str | None, int]] = []

    def changes(
        self, _table: str | None, since: str | None, wait_seconds: int
    ) -> tuple[list[bytes], str, bool]:
        self.asked.append((since, wait_seconds))
        page = next(self.pages, None)
        if page is None:
            raise ServiceError(404, "TableNotFound", "")
        return page


def test_the_end_is_where_the_service_says_so() -> None:
    feed = Feed([([], "1", True), ([b"{}"], "2", True), ([], "2", True), ([b"{}"], "3", False)])
    found = list(changes.pages_of_changes(feed, None, None, follows=False))
    assert [page.is_last for page in found] == [False, False, False, True]
    assert [since for since, _ in feed.asked] == [None, "1", "2", "2"]


def test_follow_waits_only_where_nothing_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    pages = [([b"{}"], "1", True), ([], "1", False), ([], "2", False), ([], "2", True)]
    feed = Feed([*pages, ([b"{}"], "3", True)])
    followed = changes.pages_of_changes(feed, None, None, follows=True)
    for _ in range(5):
        next(followed)
    assert [wait for _, wait in feed.asked] == [0, 0, 30, 30, 0]
    assert pauses == [1.0, 1.0], "the pages that the service did not wait for"
