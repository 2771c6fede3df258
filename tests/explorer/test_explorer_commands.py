"""The commands that pages show, and what pages suggest: each works here, or is not shown."""

import html
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import click
import httpx
import pytest
from azure.data.tables import TableServiceClient

from explorer.test_explorer_bad_input import answering
from explorer.test_page_guard import COOKIE, send
from server_process import ServerProcess, start_server
from tablestone.cli.main import commands, main
from tablestone.explorer import account
from tablestone.insight.report import TableSize
from tablestone.testing import TableStorage
from tablestone.tools.connection import parse_connection_string

SCAN = "/tables/Sessions?" + urlencode({"filter": "user eq 'a'"})
PAGES = (
    *("/", "/service", "/signature", "/import", "/tables/Sessions", SCAN),
    *(f"/tables/Sessions/{each}" for each in ("indexes", "policies", "export", "import", "delete")),
)
COMMAND = re.compile(r"<code[^>]*>(tablestone [^<]*)</code>")


def shown_commands(text: str) -> list[str]:
    return [html.unescape(found) for found in COMMAND.findall(text)]


def require_parses(line: str) -> None:
    """Parse the line as the command line does, up to its end; a question for help ends there."""
    name, *words = shlex.split(line)
    command: click.Command = commands
    context: click.Context | None = None
    with suppress(click.exceptions.Exit):
        while True:
            context = command.make_context(name, words, parent=context)
            if not isinstance(command, click.Group):
                return
            given = [*context._protected_args, *context.args]
            _, found, words = command.resolve_command(context, given)
            assert found is not None
            name, command = str(found.name), found


@pytest.mark.parametrize(
    "line", ["tablestone index create T", "tablestone accounts", "tablestone serve --nix"]
)
def test_a_line_that_does_not_parse_is_found(line: str) -> None:
    with pytest.raises(click.ClickException):
        require_parses(line)


def pages_of(connection_string: str, **settings: Any) -> dict[str, str]:
    connection = parse_connection_string(connection_string)
    return {
        path: send("GET", path, {"cookie": COOKIE}, connection=connection, **settings).text
        for path in PAGES
        if not (settings.get("read_only") and path.endswith("import"))
    }


SETTINGS: dict[str, dict[str, Any]] = {
    "explore": {},
    "explore, read-only": {"read_only": True},
    "serve": {"keys": 2, "stored": " --data '/d d'", "storage": " --data '/d d'"},
    "serve, an account of its options": {"keys": 1, "storage": " --data /d"},
    "serve, in memory or on a cluster": {"keys": 1, "stored": ""},
}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that takes no first index over the wire."""
    data = tmp_path_factory.mktemp("closed")
    server = start_server(data, "--workers", "1", "--explorer")
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        table = service.create_table("Sessions")
        table.create_entity({"PartitionKey": "p", "RowKey": "r", "user": "u"})
    yield server
    server.stop()


@pytest.mark.parametrize("case", SETTINGS)
def test_every_command_that_is_shown_parses(closed: ServerProcess, case: str) -> None:
    pages = pages_of(closed.connection_string, **SETTINGS[case])
    found = {path: shown_commands(text) for path, text in pages.items()}
    for each in {command for lines in found.values() for command in lines}:
        require_parses(each)
    assert ("account show" in str(found["/service"])) == (case == "serve")
    assert bool(found["/tables/Sessions/indexes"]) != ("read_only" in SETTINGS[case])


def test_the_command_for_the_first_index_makes_it(closed: ServerProcess) -> None:
    """As pasted from the page of the server's own explorer."""
    line = next(each for each in closed.stdout if each.startswith("Explorer: "))
    address = line.split(" ", 1)[1].strip()
    with httpx.Client(follow_redirects=True) as client:
        client.get(address)
        root = address.partition("?")[0].rstrip("/")
        client.get(f"{root}/tables/Sessions")
        (command,) = shown_commands(client.get(f"{root}/tables/Sessions/indexes").text)
        assert command.startswith("tablestone index create Sessions user --account devstore")
        assert main(shlex.split(command)[1:]) == 0
        assert "<bdi>user</bdi>" in client.get(f"{root}/tables/Sessions/indexes").text


def test_another_service_gets_no_advice_on_indexes() -> None:
    """One that ignores the question answers with entities, as Azurite does."""
    body = b'{"value":[{"PartitionKey":"p","RowKey":"r","user":"u"}]}'
    with answering(lambda _path: (200, "application/json", body)) as place:
        pages = pages_of(place)
    assert "<bdi>p</bdi>" in pages["/tables/Sessions"] or ">p<" in pages["/tables/Sessions"]
    assert "make an index" not in pages[SCAN]
    assert not [each for text in pages.values() for each in shown_commands(text) if "index" in each]


def test_the_first_page_says_what_the_tabs_of_a_table_do(
    closed: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the service has no such thing, and where nothing may be changed, it promises less."""
    with TableStorage(keep_changes=True) as storage:
        storage.seed({"Sessions": [{"PartitionKey": "p", "RowKey": "r"}]})
        text = pages_of(storage.connection_string)["/"]
        reads = pages_of(storage.connection_string, read_only=True)["/"]
    assert (
        "show every change, put an old version back, make indexes and let entities expire." in text
    )
    assert "show every change, list indexes and say when entities expire." in reads
    text = pages_of(closed.connection_string)["/"]
    kept = "With <code>serve --keep-changes 7d</code>, the server keeps every change"
    assert kept in text
    monkeypatch.setattr(
        account.ExploredAccount, "own_parts", lambda *_: account.OwnParts(None, "", {})
    )
    text = pages_of(closed.connection_string)["/"]
    assert "Its tabs let entities expire." in text, (
        "an engine that keeps neither indexes nor changes"
    )
    assert kept not in text
    monkeypatch.setattr(
        account.ExploredAccount, "own_parts", lambda *_: account.OwnParts([], "ready", {})
    )
    assert kept not in pages_of(closed.connection_string)["/"], "one that keeps no changes"
    monkeypatch.undo()
    with answering(
        lambda _path: (200, "application/json", b'{"value":[{"TableName":"A"}]}')
    ) as place:
        assert "Its tabs" not in pages_of(place)["/"]


def test_a_read_only_explorer_suggests_no_change(closed: ServerProcess) -> None:
    pages = pages_of(closed.connection_string, read_only=True)
    with TableStorage() as storage:  # where an index can be made at once
        storage.seed({"Sessions": [{"PartitionKey": "p", "RowKey": "r", "user": "u"}]})
        assert "on the tab Indexes" in pages_of(storage.connection_string)[SCAN]
        pages |= {
            f"{path} ": each
            for path, each in pages_of(storage.connection_string, read_only=True).items()
        }
    for path, text in pages.items():
        content = text.partition("<main")[2]
        for words in (
            "on the tab Indexes",
            "remove it",
            "--remote-indexes",
            "Count first",
            "New table",
        ):
            assert words not in content, (path, words)


def test_sizes_say_that_they_count_what_is_hidden() -> None:
    with TableStorage() as storage, pytest.MonkeyPatch.context() as patch:
        storage.seed({"Sessions": [{"PartitionKey": "p", "RowKey": "r", "expires": 1}]})
        size = TableSize(0.0, 1, 1, 90, (), (), "Sessions")
        known = {"sessions": account.KnownTable(size=size)}
        patch.setattr(account, "known_tables", lambda _settings: (known, ""))
        words = "hidden ones included"
        pages = pages_of(storage.connection_string)
        assert "1 entity · 90 B" in pages["/tables/Sessions/policies"]
        assert not [path for path, text in pages.items() if words in text]
        storage.set_expiry("Sessions", property="expires")
        pages = pages_of(storage.connection_string)
        for path in ("/tables/Sessions", "/tables/Sessions/policies", "/tables/Sessions/indexes"):
            assert words in pages[path]
    assert "expired entities, which are hidden, count until they are removed" in pages["/"]


@pytest.mark.parametrize("wanted", ["sessions", "Sessions"])
def test_the_search_opens_the_table_of_exactly_that_name(wanted: str) -> None:
    """Also if other names contain it; a part of a name lists them."""
    with TableStorage() as storage:
        storage.seed({"Sessions": [], "SessionsOld": []})
        connection = parse_connection_string(storage.connection_string)
        found = send("GET", f"/?find={wanted}", {"cookie": COOKIE}, connection=connection)
        assert (found.status_code, found.headers["location"]) == (303, "/tables/Sessions")
        listed = send("GET", f"/?find={wanted[:-1]}", {"cookie": COOKIE}, connection=connection)
        assert "2 tables with" in listed.text


def test_the_question_before_a_deletion_keeps_what_was_typed() -> None:
    with TableStorage() as storage:
        storage.seed({"Sessions": []})
        connection = parse_connection_string(storage.connection_string)
        headers = {"cookie": COOKIE, "origin": "http://127.0.0.1:7777"}
        path = "/tables/Sessions/delete"
        answer = send("POST", path, headers, connection=connection, data={"typed": "session"})
        assert 'name="typed" value="session"' in answer.text
        assert 'data-field="typed">' in answer.text
