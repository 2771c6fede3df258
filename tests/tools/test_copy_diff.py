"""Copies between two servers: resumed, verified, and brought up to date; and exact reports of differences."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from azure.data.tables import TableAccessPolicy, TableServiceClient

from conftest import StartServer
from server_process import ServerProcess, start_server
from tablestone.clock import TICKS_PER_SECOND
from tablestone.model.keys import EntityKey
from tablestone.tools import copying, odata, writing
from tablestone.tools.client import Operation, Page, Query, TableEndpoint
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.errors import Unreachable
from tablestone.tools.queries import TableReader
from tools.data_tools import DataTools, entity

ENTITIES = [entity(f"p{n // 1000}", f"{n:05}", n=n, s="x") for n in range(3500)]


@pytest.fixture(scope="module")
def second_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = start_server(tmp_path_factory.mktemp("second"))
    yield server
    assert server.stop() == 0, server.stderr


@pytest.fixture
def places(tools: DataTools, second_server: ServerProcess, table: str) -> Iterator[tuple[str, str]]:
    """Both connection strings as `@FILE`, so that no key is on a command line."""
    found = []
    for name, text in (("a", tools.connection_string), ("b", second_server.connection_string)):
        path = tools.directory / f"{name}.txt"
        path.write_text(text)
        found.append(f"@{path}")
    yield found[0], found[1]
    tools.run("tables", "--connection-string", found[1], "--delete", table, "--yes", status=None)


def wait_until_all_are_older(tools: DataTools, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait until the source's clock is past every Timestamp of the table, and stays so.

    A copy that begins then takes no earlier write for a change. Each worker of a server updates its Date header about
    once a second, in whole seconds, so another worker's may be two seconds older.
    """
    monkeypatch.setattr(copying, "MARGIN_TICKS", 0)
    with TableEndpoint(parse_connection_string(tools.connection_string)) as source:
        newest = max(map(writing.timestamp_of, TableReader(source).entities(Query(table))))
        until = time.monotonic() + 60
        while (told := source.service_time() or 0) <= newest:
            assert time.monotonic() < until, "the date of the source does not go on"
            time.sleep(0.1)
    real = TableEndpoint.service_time
    monkeypatch.setattr(
        TableEndpoint, "service_time", lambda endpoint: max(told, real(endpoint) or 0)
    )


def at_second(tools: DataTools, place: str, table: str) -> list[dict[str, Any]]:
    return tools.run("query", table, "--connection-string", place, "--output", "jsonl").entities


def load(tools: DataTools, table: str, entities: list[dict[str, Any]], *arguments: str) -> None:
    tools.run("import", tools.write_lines("load.jsonl", entities), table, *arguments)


def test_a_copy_is_equal_and_says_so(tools: DataTools, table: str, places: tuple[str, str]) -> None:
    load(tools, table, ENTITIES)
    told = tools.run("copy", "--from", places[0], "--to", places[1], table, "--quiet").lines
    assert told[0].startswith(f"{table}: ")
    assert "  Verified: 3,500 entities on both sides, and they are equal." in told
    assert at_second(tools, places[1], table) == ENTITIES
    equal = tools.run("diff", *places, table).lines
    assert equal == [f"{table}: 3,500 entities on both sides, and they are equal."]
    again = tools.run(
        "copy", "--from", places[0], "--to", places[1], table, "--on-conflict", "skip"
    )
    assert "  3,500 skipped: their keys were taken." in again.lines


def test_policies_are_not_copied_and_that_is_said(
    tools: DataTools, table: str, places: tuple[str, str]
) -> None:
    """Compared or not, and by `diff`; entities are equal nevertheless. Nothing is said where they are the same."""
    load(tools, table, ENTITIES[:2])
    policy = TableAccessPolicy(permission="r", expiry="2030-01-01T00:00:00Z")
    between = ("copy", "--from", places[0], "--to", places[1], table)
    said = "  Access policies are not copied, and those of the target differ: reader."
    differs = "  stored access policies differ: reader"
    with TableServiceClient.from_connection_string(tools.connection_string) as service:
        service.get_table_client(table).set_table_access_policy({"reader": policy})
    for more in ((), ("--no-verify", "--restart", "--on-conflict", "replace")):
        assert said in tools.run(*between, *more).lines
    assert tools.run("diff", *places, table).lines[1:] == [differs]
    text = Path(places[1][1:]).read_text()
    with TableServiceClient.from_connection_string(text) as service:
        service.get_table_client(table).set_table_access_policy({"reader": policy})
    assert said not in tools.run(*between, "--restart", "--on-conflict", "replace").lines
    assert differs not in tools.run("diff", *places, table).lines


def test_differences_are_listed_one_by_one(
    tools: DataTools, table: str, places: tuple[str, str]
) -> None:
    load(
        tools, table, [entity("p", "1", a=1), entity("p", "2", a=1, b="x"), entity("p", "3", a=1.5)]
    )
    other = [
        entity("p", "2", a=2, c="x"),
        entity("p", "3", **{"a@odata.type": "Edm.Double", "a": 1.5}),
        entity("q", "4"),
    ]
    load(tools, table, other, "--connection-string", places[1])
    told = tools.run("diff", *places, table, status=1).lines
    assert told[0] == f"{table}: 3 differ; 3 entities in A, 3 in B"
    assert told[1].startswith("  partitions 'p' to 'q': 3 and 3 entities, hashes ")
    assert told[2:] == [
        "  only in A: PartitionKey 'p', RowKey '1'",
        "  differs: PartitionKey 'p', RowKey '2': a, b, c",
        "  only in B: PartitionKey 'q', RowKey '4'",
    ]
    as_json = orjson.loads(
        tools.run("diff", *places, table, "--json", "--top", "1", status=1).stdout
    )
    assert (as_json["differing"], len(as_json["differences"])) == (3, 1)
    copied = tools.run(
        "copy", "--from", places[0], "--to", places[1], table, "--on-conflict", "replace", status=1
    )
    assert "  1 differs; 3 entities at the source, 4 at the target" in copied.lines
    assert "    only at the target: PartitionKey 'q', RowKey '4'" in copied.lines


def test_entities_written_just_before_a_copy_count_as_copied(
    tools: DataTools, table: str, places: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if everything had been written a moment before, however slow the machine is.
    monkeypatch.setattr(copying, "MARGIN_TICKS", 600 * TICKS_PER_SECOND)
    load(tools, table, ENTITIES[:300])
    told = tools.run("copy", "--from", places[0], "--to", places[1], table, "--quiet").lines
    assert told[0].startswith(f"{table}: 300 entities read, 300 written, ")
    assert not told[0].endswith(" 0 B.")
    assert told[1].startswith("  300 of them were written at the source during the copy or in the ")


def test_a_table_that_only_one_side_has(
    tools: DataTools, table: str, places: tuple[str, str]
) -> None:
    load(tools, table, [entity("p", "1")])
    told = tools.run("diff", *places, table, status=1).stdout
    assert told.startswith(f"{table}: not at http://127.0.0.1:")


def test_what_changes_during_the_copy_is_copied_again(
    tools: DataTools, table: str, places: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tools, table, ENTITIES)
    wait_until_all_are_older(tools, table, monkeypatch)
    changed = [entity("p0", "00001", changed=True), entity("p9", "new", changed=True)]
    path = tools.write_lines("changed.jsonl", changed)
    real = TableEndpoint.page
    done: list[bool] = []

    def page(self: TableEndpoint, query: Query, token: Any, **how: Any) -> Page:
        found = real(self, query, token, **how)
        if token is not None and not done and query.filter is None:
            done.append(True)
            # Another client writes in the middle of the copy.
            with TableEndpoint(self.connection) as writer:
                for raw in map(orjson.loads, path.read_bytes().splitlines()):
                    body = orjson.dumps(raw)
                    key = odata.key_of(raw)
                    writer.transact(table, [Operation("PUT", key, body)])
        return found

    monkeypatch.setattr(TableEndpoint, "page", page)
    ended = tools.run("copy", "--from", places[0], "--to", places[1], table)
    assert "written at the source meanwhile and copied now: 2." in ended.stderr
    assert any(line.startswith("  Verified: 3,501 entities on both sides") for line in ended.lines)
    assert {each["RowKey"] for each in at_second(tools, places[1], table) if "changed" in each} == {
        "00001",
        "new",
    }


def test_a_copy_since_a_time_takes_only_what_changed(
    tools: DataTools, table: str, places: tuple[str, str]
) -> None:
    load(tools, table, ENTITIES[:10])
    tools.run("copy", "--from", places[0], "--to", places[1], table)
    stamps = tools.run("query", table, "--select", "Timestamp", "--output", "jsonl").stdout
    last = max(orjson.loads(line)["Timestamp"] for line in stamps.splitlines())
    load(tools, table, [entity("p0", "00003", changed=True)], "--on-conflict", "replace")
    since = f"{last[:-2]}9Z"
    told = tools.run("copy", "--from", places[0], "--to", places[1], table, "--since", since).lines
    assert told[0].startswith(f"{table}: ")
    assert at_second(tools, places[1], table)[3] == entity("p0", "00003", changed=True)
    refused = tools.run("copy", "--from", places[0], "--to", places[1], "--since", "soon", status=2)
    assert "--since 'soon' is not a time" in refused.stderr


def test_a_copy_since_a_time_lists_what_was_deleted(
    tools: DataTools, table: str, places: tuple[str, str]
) -> None:
    load(tools, table, ENTITIES[:10])
    first = tools.run("copy", "--from", places[0], "--to", places[1], table).lines
    since = first[-1].rpartition(" ")[2]
    tools.run("delete-entity", table, "p0", "00003", "--yes")
    copy = ("copy", "--from", places[0], "--to", places[1], table, "--since", since)
    told = tools.run(*copy, status=1).lines
    assert "  1 differs; 9 entities at the source, 10 at the target" in told
    assert any("RowKey '00003'" in line for line in told)
    unverified = tools.run(*copy, "--no-verify").lines
    assert any("Nothing was compared (--no-verify)" in line for line in unverified)


@pytest.mark.parametrize("on_conflict", ["skip", "merge"])
def test_a_copy_that_compares_nothing_says_so(
    tools: DataTools, table: str, places: tuple[str, str], on_conflict: str
) -> None:
    load(tools, table, ENTITIES[:3])
    copy = ("copy", "--from", places[0], "--to", places[1], table, "--on-conflict", on_conflict)
    told = tools.run(*copy).lines
    assert (
        f"  Nothing was compared (with --on-conflict {on_conflict} the target keeps what only it has): "
        "`tablestone diff` finds deletions and differences."
    ) in told


@pytest.mark.slow
def test_a_copy_goes_on_where_it_was(
    tools: DataTools, table: str, places: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tools, table, ENTITIES)
    monkeypatch.setattr(copying, "PAGES_PER_CHECKPOINT", 1)
    wait_until_all_are_older(tools, table, monkeypatch)
    real = TableEndpoint.transact
    calls = iter(range(10**9))

    def transact(self: TableEndpoint, *arguments: Any) -> None:
        if next(calls) >= 25:
            raise Unreachable("gone")
        real(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TableEndpoint, "transact", transact)
        patch.setattr("tablestone.tools.retrying.FIRST_PAUSE_SECONDS", 0.0)
        tools.run("copy", "--from", places[0], "--to", places[1], table, status=1)
    (journal,) = (tools.directory / "journals").glob("*.json")
    assert "AccountKey" not in journal.read_text()
    told = tools.run("copy", "--from", places[0], "--to", places[1], table).lines
    assert any("An earlier run had read" in line for line in told)
    assert "  Verified: 3,500 entities on both sides, and they are equal." in told


@pytest.mark.slow
def test_a_copy_that_is_done_again_finds_everything_there(
    tools: DataTools, table: str, places: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tools, table, ENTITIES[:50])
    wait_until_all_are_older(tools, table, monkeypatch)
    for first in (
        f"{table}: 50 entities read, 50 written, ",
        f"{table}: 50 entities read, 0 written, 0 B.",
    ):
        told = tools.run("copy", "--from", places[0], "--to", places[1], table, "--quiet").lines
        assert told[0].startswith(first)
        assert "  Verified: 50 entities on both sides, and they are equal." in told
        is_again = "  50 were at the target already, as they are at the source." in told
        assert is_again is (" 0 written" in first)
    load(
        tools,
        table,
        [entity("p0", "00003", n=-1)],
        "--connection-string",
        places[1],
        "--on-conflict",
        "replace",
    )
    wait_until_all_are_older(tools, table, monkeypatch)
    failed = tools.run("copy", "--from", places[0], "--to", places[1], table, status=1).stderr
    assert "tablestone: An entity with PartitionKey 'p0' and RowKey '00003' is in " in failed


def test_both_ends_must_be_different(tools: DataTools, places: tuple[str, str]) -> None:
    refused = tools.run("copy", "--from", places[0], "--to", places[0], status=2).stderr
    assert refused == "tablestone: --from and --to are the same endpoint.\n"


def test_a_target_that_does_not_answer(
    tools: DataTools, table: str, private_server: StartServer, tmp_path: Path
) -> None:
    """The target has stopped: the copy ends with one sentence."""
    server = private_server(tmp_path / "data")
    target = tools.directory / "c.txt"
    target.write_text(server.connection_string)
    load(tools, table, ENTITIES[:5])
    source = tools.directory / "a.txt"
    source.write_text(tools.connection_string)
    server.stop()
    failed = tools.run("copy", "--from", f"@{source}", "--to", f"@{target}", table, status=1).stderr
    assert " cannot be reached: " in failed


def test_an_account_without_tables(tools: DataTools, places: tuple[str, str]) -> None:
    at = ("tables", "--connection-string", places[1])
    for name in tools.run(*at).lines:
        tools.run(*at, "--delete", name, "--yes")
    ended = tools.run("copy", "--from", places[1], "--to", places[0])
    assert ended.stdout == ""
    assert ended.stderr.endswith(" has no tables.\n")


def test_an_entity_of_the_targets_own_is_a_conflict_in_every_round(
    tools: DataTools, places: tuple[str, str], table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source writes its key during the copy; the target has had it since before."""
    tools.run("import", tools.write_lines("a.jsonl", ENTITIES[:10]), table, "--quiet")
    own = tools.write_lines("b.jsonl", [entity("p", "own", whose="the target's")])
    there = ("--connection-string", places[1])
    tools.run("import", own, table, *there, "--quiet")
    real = copying.TableCopy._follow_changes
    source_text = tools.connection_string
    tools.connection_string = Path(places[1][1:]).read_text()
    wait_until_all_are_older(tools, table, monkeypatch)
    tools.connection_string = source_text

    def follow_changes(copy: copying.TableCopy, began: int) -> list[int]:
        body = odata.body_of(entity("p", "own", whose="the source's"))
        with TableEndpoint(parse_connection_string(tools.connection_string)) as source:
            source.write(table, Operation("PUT", EntityKey("p", "own"), body))
        return real(copy, began)

    monkeypatch.setattr(copying.TableCopy, "_follow_changes", follow_changes)
    words = ("copy", "--from", places[0], "--to", places[1], table, "--quiet")
    for _ in range(2):
        ran = tools.run(*words, status=1)
        assert "RowKey 'own' is in" in ran.stderr
        shown = tools.run("get", table, "p", "own", *there, "--output", "jsonl").entities
        assert shown[0]["whose"] == "the target's"
    tools.run(*words, "--on-conflict", "replace")
    shown = tools.run("get", table, "p", "own", *there, "--output", "jsonl").entities
    assert shown[0]["whose"] == "the source's"
