"""`tablestone copy --follow`: both sides equal in the end, whatever is killed, deleted or refused on the way."""

import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import (
    AccountSasPermissions,
    ResourceTypes,
    generate_account_sas,
    generate_table_sas,
)

from conftest import StartServer
from server_process import ServerProcess
from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.model.edm import parse_date_time
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import EntityKey
from tablestone.testing import TableStorage
from tablestone.tools import following, odata
from tablestone.tools.changes import ChangesPage, pages_of_changes
from tablestone.tools.client import Operation, Page, Query, RawEntity, TableEndpoint
from tablestone.tools.connection import Connection, local_connection, parse_connection_string
from tablestone.tools.copying import Side
from tablestone.tools.errors import ServiceError, TransferFailed, UnknownHost, Unreachable
from tablestone.tools.positions import TABLE, Positions
from tablestone.tools.resume_journal import Journal
from tablestone.tools.retrying import InFlight, Retry
from tools.data_tools import DataTools, entity
from tools.faulty_service import ANSWER_LOST, RESET, THROTTLED, faulty_service

ONE_OR_TWO = [f"{n} applied. The same command continues.\n" for n in ("1 change", "2 changes")]
NAMES = ("Orders", "Stock")
QUICKER = {
    "tablestone.tools.positions.SAVE_SECONDS": 0.1,
    "tablestone.tools.positions.RENEW_SECONDS": 0.3,
    "tablestone.tools.positions.FREE_SECONDS": 1.0,
}
"""No test waits half a minute to see whether another run is still there."""
KEEPING = ("--keep-changes", "7d", "--workers", "1")


class Sides:
    """A source that keeps changes, and a target."""

    def __init__(self, tools: DataTools, source: ServerProcess, target: ServerProcess) -> None:
        self.tools = tools
        tools.connection_string = source.connection_string
        self.places = [self.place("a", source), self.place("b", target)]
        self.source = TableEndpoint(parse_connection_string(source.connection_string))
        self.target_server = target
        self.target = TableEndpoint(parse_connection_string(target.connection_string))

    def place(self, name: str, server: ServerProcess) -> str:
        (self.tools.directory / f"{name}.txt").write_text(server.connection_string)
        return f"@{self.tools.directory / name}.txt"

    def words(self, *more: str) -> tuple[str, ...]:
        return ("copy", "--from", self.places[0], "--to", self.places[1], "--follow", *more)

    def start(self, *more: str) -> subprocess.Popen[str]:
        return self.tools.start(*self.words(*more), constants=QUICKER)

    def catch_up(self, *more: str) -> str:
        return self.tools.run(*self.words("--until-caught-up", "--quiet", *more)).stdout

    def follower(
        self, target: TableEndpoint, journal: Journal, *names: str, parallel: int = 1
    ) -> following.Follower:
        """One in this process, whose position is in the journal."""
        return following.Follower(
            self.source, target, names, parallel=parallel, journal=journal, tell=lambda _: None
        )

    def require_equal(self) -> None:
        ran = self.tools.run("diff", *self.places, "--quiet", status=None)
        assert ran.status == 0, ran.stdout

    def tables_of_target(self) -> set[str]:
        return set(self.target.table_names()) - {TABLE}

    def put(self, table: str, partition: str, row: str, **properties: object) -> None:
        body = odata.body_of(entity(partition, row, **properties))
        self.source.write(table, Operation("PUT", EntityKey(partition, row), body))

    def delete(self, table: str, partition: str, row: str) -> None:
        self.source.write(table, Operation("DELETE", EntityKey(partition, row), if_match="*"))


@pytest.fixture(autouse=True)
def quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in QUICKER.items():
        monkeypatch.setattr(name, seconds)


@pytest.fixture
def sides(tools: DataTools, private_server: StartServer, tmp_path: Path) -> Iterator[Sides]:
    source = private_server(tmp_path / "source", *KEEPING)
    target = private_server(tmp_path / "target", "--engine", "memory:")
    made = Sides(tools, source, target)
    with made.source, made.target:
        yield made


def test_a_copy_and_then_every_change(sides: Sides) -> None:
    for table in ("Orders", "Gone"):
        sides.source.create_table(table)
        for n in range(30):
            sides.put(table, f"p{n % 3}", str(n), Value=1.0, Big=2)
    told = "2 tables with 60 entities copied; 0 changes applied. The same command continues.\n"
    assert sides.catch_up() == told
    sides.require_equal()
    sides.put("Orders", "p0", "0", Value=2.0)
    sides.put("Orders", "new", "é'", Text="ü")
    sides.delete("Orders", "p1", "1")
    sides.put("Orders", "p1", "soon gone")
    sides.delete("Orders", "p1", "soon gone")
    sides.put("Gone", "p9", "with the table")
    sides.source.delete_table("Gone")
    sides.source.create_table("Gone")
    sides.put("Gone", "p0", "again")
    sides.source.create_table("Later")
    sides.put("Later", "p", "1")
    assert sides.catch_up() == "11 changes applied. The same command continues.\n"
    sides.require_equal()
    assert orjson.loads(sides.catch_up("--json")) == {
        "tables_copied": 0,
        "tables_copied_again": 0,
        "entities_copied": 0,
        "changes": 0,
    }


def test_a_table_that_is_copied_again_is_counted_also_if_quiet(sides: Sides) -> None:
    sides.source.create_table("Orders")
    for n in range(3):
        sides.put("Orders", "p", str(n))
    sides.catch_up()
    sides.target.delete_table("Orders")
    told = "1 table with 3 entities copied, 1 of them again; 0 changes applied."
    assert sides.catch_up() == f"{told} The same command continues.\n"
    sides.target.delete_table("Orders")
    assert orjson.loads(sides.catch_up("--json"))["tables_copied_again"] == 1


def test_a_table_that_is_still_empty_gets_its_policy(sides: Sides) -> None:
    """No line of the feed has it, and later the target has entities of its own."""
    sides.source.create_table("Orders")
    sides.catch_up()
    sides.source.create_table("Tokens")
    sides.source.offer_expiry("Tokens", ExpiryPolicy(after=90))
    sides.catch_up()
    assert sides.target.expiry("Tokens") == ExpiryPolicy(after=90)


def test_one_table_and_some_tables(sides: Sides) -> None:
    for table in ("Orders", "Stock", "Other"):
        sides.source.create_table(table)
    for words in (("Orders",), ("Stock", "orders")):
        sides.catch_up(*words)
    for table in ("Orders", "Stock", "Other"):
        sides.put(table, "p", "1")
    for words, applied in ((("Orders",), "1 change"), (("Stock", "orders"), "2 changes")):
        assert sides.catch_up(*words) == f"{applied} applied. The same command continues.\n"
    assert sides.tables_of_target() == {"Orders", "Stock"}
    assert sides.tools.run("diff", *sides.places, "Orders", "Stock", "--quiet").status == 0


def test_a_table_that_is_not_there_is_named_and_may_come_later(sides: Sides) -> None:
    sides.source.create_table("Orders")
    words = ("Orders", "Later")
    first = sides.tools.run(*sides.words("--until-caught-up", *words))
    assert "Later: the source has no such table now.\n" in first.stderr
    sides.source.create_table("Later")
    sides.put("Later", "p", "1")
    assert sides.catch_up(*words) == "2 changes applied. The same command continues.\n"
    sides.require_equal()


def test_follow_says_its_lag_and_ends_when_told(sides: Sides) -> None:
    sides.source.create_table("Orders")
    process = sides.start()
    assert process.stderr is not None
    assert process.stderr.readline() == "Orders: 0 entities read, 0 written, 0 B.\n"
    assert process.stderr.readline() == "follow: 0 changes, caught up\n"
    sides.put("Orders", "p", "1")
    deadline = time.monotonic() + 20
    while sides.target.get("Orders", EntityKey("p", "1")) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Stopped. The same command continues." in stderr
    sides.put("Orders", "p", "2")
    assert sides.catch_up() in ONE_OR_TWO
    sides.require_equal()


def change_at_random(sides: Sides, chance: random.Random, done: threading.Event) -> None:
    """Write until told; the source may be away."""
    failures: list[int] = []
    while not done.is_set():
        time.sleep(0.002)
        table, partition = chance.choice(NAMES), f"p{chance.randrange(3)}"
        row = str(chance.randrange(20))
        try:
            dice = chance.random()
            if dice < 0.02:
                sides.source.delete_table(table)
            elif dice < 0.06:
                sides.source.create_table(table)
            elif dice < 0.3:
                sides.delete(table, partition, row)
            elif dice < 0.5:
                rows = chance.sample(range(20), 5)
                keys = [EntityKey(partition, str(n)) for n in rows]
                bodies = [odata.body_of(entity(*key, N=chance.random())) for key in keys]
                writes = [Operation("PUT", k, b) for k, b in zip(keys, bodies, strict=True)]
                sides.source.transact(table, writes)
            else:
                sides.put(table, partition, row, N=chance.random())
        except Unreachable:
            time.sleep(0.05)
        except ServiceError as error:  # there is no such table or entity
            failures.append(error.status)
    assert set(failures) <= {404}


@pytest.mark.crash
@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_it_survives_kills_of_each_side_and_of_itself(
    tools: DataTools, private_server: StartServer, tmp_path: Path, kills: int
) -> None:
    """Also inside the first copy, and between entities and position. A sound target is never refused."""
    chance = random.Random(40)
    source = private_server(tmp_path / "source", *KEEPING)
    target = private_server(tmp_path / "target", "--workers", "1")
    sides = Sides(tools, source, target)
    ports = [str(server.address[1]) for server in (source, target)]
    for name in NAMES:
        sides.source.create_table(name)
        for start in range(0, 100 * kills, 100):
            keys = [EntityKey("first", str(start + n)) for n in range(100)]
            bodies = [odata.body_of(entity(*key, Text="x" * 500)) for key in keys]
            writes = [Operation("PUT", key, body) for key, body in zip(keys, bodies, strict=True)]
            sides.source.transact(name, writes)
    done = threading.Event()
    writing = threading.Thread(target=change_at_random, args=(sides, random.Random(1), done))
    writing.start()
    process: subprocess.Popen[str] | None = None

    def end() -> None:
        """Kill the run, unless it has ended because a side was away before it had a position."""
        if process is not None:
            process.kill()
            _, stderr = process.communicate()
            assert "--on-conflict" not in stderr, stderr
            assert process.returncode in (1, -signal.SIGKILL), stderr
            assert process.returncode < 0 or "cannot be reached" in stderr, stderr

    try:
        for turn in range(kills):
            if process is None or process.poll() is not None:
                end()
                process = sides.start()
            time.sleep(chance.uniform(0.4, 1.6))
            if turn % 4 in (0, 2):
                end()
                process = None
            elif turn % 4 == 1:
                source.kill()
                source = private_server(tmp_path / "source", *KEEPING, "--port", ports[0])
            else:
                target.kill()
                arguments = ("--workers", "1", "--port", ports[1])
                target = private_server(tmp_path / "target", *arguments)
    finally:
        done.set()
        writing.join()
        end()
    with sides.source, sides.target:
        for name in NAMES:
            sides.source.create_table(name)
            sides.put(name, "p", "last")
        sides.catch_up()
        sides.require_equal()
        assert sides.tables_of_target() == set(NAMES)


def test_throttling_and_lost_answers_lose_nothing(sides: Sides, tmp_path: Path) -> None:
    sides.source.create_table("Orders")
    sides.catch_up()
    faults = [THROTTLED, None, RESET, ANSWER_LOST, THROTTLED, None]

    def plan(number: int, method: str, _path: str) -> str | None:
        return faults[number % len(faults)] if method == "POST" else None

    address = sides.target_server.address
    with faulty_service(address, plan) as service, closing(Journal(tmp_path / "a", {})) as journal:
        text = sides.target_server.connection_string
        text = text.replace("{}:{}".format(*address), f"127.0.0.1:{service.port}")
        with TableEndpoint(parse_connection_string(text)) as target:
            follower = sides.follower(target, journal, parallel=4)
            follower.start()
            for n in range(200):
                sides.put("Orders", f"p{n % 20}", str(n % 40), N=n)
                if n % 7 == 0:
                    sides.delete("Orders", f"p{n % 20}", str(n % 40))
            follower.run(system_clock() + 600 * TICKS_PER_SECOND)
        assert set(service.done) == {THROTTLED, RESET, ANSWER_LOST}
    sides.require_equal()


class Target(TableEndpoint):
    """A target that notes the transactions it gets; `refuse` may raise."""

    def __init__(self) -> None:
        self.connection = local_connection()
        self.watch = None
        self.got: list[list[tuple[str, str]]] = []
        self.names_taken = 0

    def transact(self, _table: str, operations: Any) -> list[str | None]:
        self.refuse(operations)
        self.got.append([(each.method, each.key.row_key) for each in operations])
        return []

    def write(self, table: str, operation: Operation) -> str | None:
        self.transact(table, [operation])
        return None

    def get(self, table: str, key: EntityKey, select: Sequence[str] = ()) -> RawEntity | None:  # noqa: ARG002
        is_there = any(("PUT", key.row_key) in each for each in self.got)
        return {odata.ETAG: ""} if is_there else None

    def expiry(self, _table: str) -> None:
        return None

    def refuse(self, operations: Any) -> None:
        pass

    def service_time(self) -> int | None:
        return None

    def page(self, *_: Any, **__: Any) -> Page:
        return Page([], None, 0)

    def create_table(self, _name: str) -> bool:
        self.names_taken -= 1
        if self.names_taken >= 0:
            raise ServiceError(409, "TableBeingDeleted", "")
        return True


def put(row: str, size: int = 2, partition: str = "p") -> Operation:
    return Operation("PUT", EntityKey(partition, row), b"x" * size)


def written(target: Target, *transactions: list[Operation]) -> list[list[tuple[str, str]]]:
    side = Side("target", target, 2)
    writer = following._Writer(side, 2, Positions(None, "", side, None))  # type: ignore[arg-type]
    try:
        for each in transactions:
            writer.add("Orders", each)
        writer.send()
        writer.wait()
    finally:
        writer.close()
    return target.got


def test_transactions_are_joined_and_never_divided() -> None:
    singles = [[put(str(n))] for n in range(150)]
    assert [len(each) for each in written(Target(), *singles)] == [100, 50]
    wide = [[put(f"{n}-{row}") for row in range(40)] for n in range(5)]
    assert [len(each) for each in written(Target(), *wide)] == [80, 80, 40]
    large = [[put(str(n), 1_000_000)] for n in range(7)]
    assert [len(each) for each in written(Target(), *large)] == [3, 3, 1]
    again = [put("1"), put("2")], [put("2"), Operation("DELETE", EntityKey("p", "1"))]
    assert written(Target(), *again) == [[("DELETE", "1"), ("PUT", "2")]]


def test_a_transaction_of_the_source_stays_one(sides: Sides, tmp_path: Path) -> None:
    sides.source.create_table("Orders")
    with closing(Journal(tmp_path / "a", {})) as journal:
        target = Target()
        follower = sides.follower(target, journal, "Orders")
        for followed in follower.start():
            follower.positions.set_copy(followed, {"begun": True, "copied": True})
        for n in range(60):
            sides.put("Orders", "p", f"single {n}")
        keys = [EntityKey("p", f"joined {n}") for n in range(60)]
        sides.source.transact(
            "Orders", [Operation("PUT", key, odata.body_of(entity(*key))) for key in keys]
        )
        follower.run(system_clock() + 600 * TICKS_PER_SECOND)
    assert [len(each) for each in target.got] == [60, 60]


def test_nothing_is_lost_when_the_target_refuses_an_entity(sides: Sides) -> None:
    with TableStorage() as target:
        (sides.tools.directory / "b.txt").write_text(target.connection_string)
        sides.source.create_table("Orders")
        sides.catch_up()
        sides.put("Orders", "good", "1")
        sides.put("Orders", "bad", "1")
        target.faults.add(
            operation="EntityGroupTransaction", table="Orders", nth=1, error="InvalidInput"
        )
        ran = sides.tools.run(*sides.words("--until-caught-up"), status=1)
        assert "The target does not take the entity with PartitionKey " in ran.stderr
        assert "caught up" not in ran.stderr
        sides.catch_up()
        sides.require_equal()


def test_what_is_deleted_already_is_no_failure() -> None:
    class Without(Target):
        def refuse(self, operations: Any) -> None:
            for index, each in enumerate(operations):
                if each.method == "DELETE":
                    raise ServiceError(404, "ResourceNotFound", "", index=index)

    gone = [Operation("DELETE", EntityKey("p", str(n))) for n in range(3)]
    assert written(Without(), [gone[0], put("a"), gone[1], put("b"), gone[2]]) == [
        [("PUT", "a"), ("PUT", "b")]
    ]


def test_a_refused_entity_is_named() -> None:
    class Refusing(Target):
        def refuse(self, operations: Any) -> None:
            rows = [each.key.row_key for each in operations]
            if "bad" in rows:
                raise ServiceError(400, "PropertyNameInvalid", "no", index=rows.index("bad"))

    sentence = "does not take the entity with PartitionKey 'p' and RowKey 'bad': PropertyName"
    with pytest.raises(TransferFailed, match=sentence):
        written(Refusing(), [put("a"), put("bad")])


def test_a_name_that_is_taken_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "DELETION_PAUSE_SECONDS", 0.01)

    class Later(Target):
        def refuse(self, _operations: Any) -> None:
            if self.names_taken >= 0:
                raise ServiceError(404, "TableNotFound", "")

    target = Later()
    target.names_taken = 3
    assert written(target, [put("a")]) == [[("PUT", "a")]]


def test_a_table_that_the_target_still_deletes(sides: Sides) -> None:
    """As Azure does: the name stays taken for 40 seconds, and writes to it are refused."""
    with TableStorage(realism=True) as azure:
        azure.clock.tick(20)
        (sides.tools.directory / "b.txt").write_text(azure.connection_string)
        sides.source.create_table("Orders")
        sides.put("Orders", "p", "1")
        sides.catch_up()
        sides.source.delete_table("Orders")
        sides.source.create_table("Orders")
        sides.put("Orders", "p", "2")
        sides.catch_up()
        assert azure.dump()["Orders"] == [entity("p", "2")]
        refused = [each.error for each in azure.requests if each.operation == "CreateTable"]
        assert "TableBeingDeleted" in refused


@pytest.fixture
def made_up(sides: Sides, tmp_path: Path) -> Iterator[following.Follower]:
    """A follower whose feed a test makes up."""
    with closing(Journal(tmp_path / "a", {})) as journal:
        journal.save({"cursor": "a", "applied": "", "tables": {}})
        follower = sides.follower(sides.target, journal)
        follower.positions.cursor = "a"
        yield follower


def test_a_source_that_never_stops_is_caught_up_with(
    made_up: following.Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(*_arguments: object, **_options: object) -> Iterator[ChangesPage]:
        for second in count():
            time = f"2026-01-01T00:00:{second:02}.0000000Z"
            line = {"kind": "table-created", "table": "Orders", "time": time}
            yield ChangesPage([orjson.dumps(line)], str(second), is_last=False)

    monkeypatch.setattr(following, "pages_of_changes", endless)
    follower = made_up
    monkeypatch.setattr(follower, "_look", lambda: None)  # it would read this feed to its end
    follower.run(parse_date_time("2026-01-01T00:00:07Z"))
    assert (follower.changes, follower.positions.cursor) == (8, "7")


def test_a_change_of_a_later_version_is_refused(
    made_up: following.Follower, sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = {"kind": "renamed", "table": "Orders", "time": "2026-01-01T00:00:00Z"}
    page = ChangesPage([orjson.dumps(line)], "b", is_last=False)
    monkeypatch.setattr(following, "pages_of_changes", lambda *_, **__: iter([page]))
    sides.target.create_table("Orders")
    follower = made_up
    with pytest.raises(TransferFailed, match="does not know a change 'renamed'"):
        follower.run(None)
    assert follower.positions.cursor == "a"
    assert list(sides.target.table_names()) == ["Orders"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--until-caught-up",), "--until-caught-up goes with --follow, which is not given."),
        (("--follow", "--since", "2026-01-01"), "--follow goes neither with --since"),
        (("--follow", "--on-conflict", "skip"), "--follow goes neither with --since nor with skip"),
    ],
)
def test_options_that_do_not_go_together(
    tools: DataTools, words: tuple[str, ...], sentence: str
) -> None:
    ran = tools.run("copy", "--from", "local", "--to", "local", *words, status=2)
    assert sentence in ran.stderr


def test_a_source_without_a_feed(sides: Sides) -> None:
    sides.places.reverse()
    ran = sides.tools.run(*sides.words(), status=1)
    assert "has no feed of changes: a Tablestone server with --keep-changes has one." in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_cursor_that_is_not_kept(
    tools: DataTools, private_server: StartServer, tmp_path: Path
) -> None:
    source = private_server(tmp_path / "source", *KEEPING)
    target = private_server(tmp_path / "target", "--engine", "memory:")
    sides = Sides(tools, source, target)
    with sides.source, sides.target:
        sides.source.create_table("Orders")
        sides.catch_up()
        port = str(source.address[1])
        for more in (("--keep-changes", "none"), KEEPING):
            assert source.stop() == 0, source.stderr
            source = private_server(tmp_path / "source", *more, "--port", port)
        sides.put("Orders", "p", "1")
        ran = tools.run(*sides.words("--until-caught-up", "--quiet"), status=1)
        assert "InvalidChangeCursor" in ran.stderr
        assert "--restart does so, with --on-conflict replace where the target is" in ran.stderr
        sides.catch_up("--restart")
        sides.require_equal()


def test_a_conflict_is_one_every_time(sides: Sides) -> None:
    """What the target has of its own is not overwritten by the same command, nor by one that begins again."""
    sides.source.create_table("Orders")
    sides.put("Orders", "p", "1", n=1)
    sides.target.create_table("Orders")
    body = orjson.dumps({"PartitionKey": "p", "RowKey": "1", "own": "of the target"})
    sides.target.transact("Orders", [Operation("POST", EntityKey("p", "1"), body)])
    for more in ((), (), ("--restart",), ()):
        ran = sides.tools.run(*sides.words("--until-caught-up", "--quiet", *more), status=2)
        assert "has no position of this copy. --on-conflict replace copies over it" in ran.stderr
        page = sides.target.page(Query("Orders"), None)
        assert [each.get("own") for each in page.entities] == ["of the target"]
    sides.catch_up("--on-conflict", "replace")
    sides.require_equal()


def test_a_second_run_ends_and_a_killed_one_is_waited_for(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another machine, whose journals are elsewhere."""
    sides.source.create_table("Orders")
    first = sides.start()
    assert first.stderr is not None
    assert any("caught up" in line for line in first.stderr)
    sides.tools.extra = {"TABLESTONE_JOURNALS": str(tmp_path / "elsewhere")}
    with monkeypatch.context() as patched:
        # A first run that gets no turn for a second would be taken for one that was killed.
        patched.setattr("tablestone.tools.positions.FREE_SECONDS", 30.0)
        refused = sides.tools.run(*sides.words("--until-caught-up"), status=2)
    assert "Another run of copy --follow writes into" in refused.stderr
    first.kill()
    first.communicate()
    time.sleep(0.5)  # what it sent last is carried out
    sides.put("Orders", "p", "1")
    taken = sides.tools.run(*sides.words("--until-caught-up"))
    assert "Another run has not said that it ended: waiting" in taken.stderr
    sides.require_equal()
    assert "waiting" not in sides.tools.run(*sides.words("--until-caught-up")).stderr


def test_a_run_that_was_stopped_for_long_writes_nothing_more(sides: Sides, tmp_path: Path) -> None:
    sides.source.create_table("Orders")
    first = sides.start()
    assert first.stderr is not None
    assert any("caught up" in line for line in first.stderr)
    first.send_signal(signal.SIGSTOP)
    sides.tools.extra = {"TABLESTONE_JOURNALS": str(tmp_path / "elsewhere")}
    sides.put("Orders", "p", "1")
    sides.catch_up()
    first.send_signal(signal.SIGCONT)
    _, stderr = first.communicate(timeout=40)
    assert first.returncode == 1
    assert "or another run follows. The same command looks, and goes on." in stderr
    sides.require_equal()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_ends_lets_the_next_one_follow_at_once(sides: Sides, number: int) -> None:
    sides.source.create_table("Orders")
    process = sides.start()
    assert process.stderr is not None
    assert any("caught up" in line for line in process.stderr)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert "waiting" not in sides.tools.run(*sides.words("--until-caught-up")).stderr


def test_an_answer_to_the_position_that_is_lost_is_looked_up(sides: Sides) -> None:
    """Each second write of it is done and not answered, or not done."""
    sides.source.create_table("Orders")
    faults = [None, ANSWER_LOST, RESET]

    def plan(number: int, method: str, _path: str) -> str | None:
        return faults[number % len(faults)] if method != "GET" else None

    address = sides.target_server.address
    with faulty_service(address, plan) as service:
        text = sides.target_server.connection_string
        text = text.replace("{}:{}".format(*address), f"127.0.0.1:{service.port}")
        (sides.tools.directory / "b.txt").write_text(text)
        for n in range(5):
            sides.put("Orders", "p", str(n))
            sides.catch_up()
        assert set(service.done) == {RESET, ANSWER_LOST}
        sides.require_equal()


def test_a_side_that_is_away_is_named_at_once(
    tools: DataTools, private_server: StartServer, tmp_path: Path
) -> None:
    source = private_server(tmp_path / "source", *KEEPING)
    target = private_server(tmp_path / "target", "--workers", "1")
    sides = Sides(tools, source, target)
    with sides.source, sides.target:
        sides.source.create_table("Orders")
        sides.catch_up("Orders")
        sides.put("Orders", "p", "1")
        sides.catch_up("Orders")
        sides.put("Orders", "p", "2")
        for name, server, more in (("source", source, KEEPING), ("target", target, ())):
            server.kill()
            process = sides.start("--until-caught-up", "Orders")
            assert process.stderr is not None
            line = process.stderr.readline()
            while "waiting" in line:
                line = process.stderr.readline()
            # Where the target is away, nobody knows.
            known = r", last applied change of \d\d:\d\d" if name == "source" else ""
            assert re.fullmatch(rf"{name} away since \d\d:\d\d{known}\n", line), line
            port = str(server.address[1])
            private_server(tmp_path / name, *(more or ("--workers", "1")), "--port", port)
            _, stderr = process.communicate(timeout=40)
            assert process.returncode == 0, stderr
            assert f"{name} is back" in stderr
        sides.require_equal()


def test_a_side_that_is_away_at_the_first_start_ends_it(sides: Sides) -> None:
    away = sides.tools.directory / "away.txt"
    text = sides.target_server.connection_string
    away.write_text(text.replace(str(sides.target_server.address[1]), "1"))
    for number, role in enumerate(("source", "target")):
        places = [*sides.places]
        places[number] = f"@{away}"
        words = ("copy", "--from", places[0], "--to", places[1], "--follow")
        ran = sides.tools.run(*words, status=1)
        assert f"The {role} http://127.0.0.1:1/" in ran.stderr
        assert "cannot be reached" in ran.stderr


class TestJournals:
    """Those of earlier versions, which had the position."""

    def begun(self, sides: Sides, **state: Any) -> None:
        """Copied, and then left with the journal only."""
        for n in range(20):
            sides.put("Orders", "p", str(n))
        page = next(pages_of_changes(sides.source, None, "now", follows=False))
        sides.catch_up()
        sides.target.delete_table(TABLE)
        (path,) = (sides.tools.directory / "journals").glob("*.json")
        read = orjson.loads(path.read_bytes())
        table = {"began": 1, "begun": True, "token": None, "copied": True}
        read["state"] = {"cursor": page.cursor, "tables": {"Orders": table}, "copied": True}
        read["state"] |= state
        path.write_bytes(orjson.dumps(read))

    def test_is_adopted_once_by_a_target_that_has_what_it_says(self, sides: Sides) -> None:
        sides.source.create_table("Orders")
        self.begun(sides)
        sides.put("Orders", "p", "later")
        sides.delete("Orders", "p", "0")
        assert sides.catch_up() == "2 changes applied. The same command continues.\n"
        sides.require_equal()
        sides.target.delete_table(TABLE)
        ran = sides.tools.run(*sides.words("--until-caught-up"), status=2)
        assert "the target has no position of this copy" in ran.stderr

    def test_is_not_adopted_by_another_target(self, sides: Sides) -> None:
        sides.source.create_table("Orders")
        self.begun(sides)
        sides.target.delete_table("Orders")
        sides.target.create_table("Orders")
        body = odata.body_of(entity("p", "1", own=True))
        sides.target.write("Orders", Operation("PUT", EntityKey("p", "1"), body))
        ran = sides.tools.run(*sides.words("--until-caught-up"), status=2)
        assert "does not show what the journal says was copied. --on-conflict" in ran.stderr

    def test_that_has_not_copied_all_goes_on_from_its_token(self, sides: Sides) -> None:
        sides.source.create_table("Orders")
        state: dict[str, Any] = {"began": 1, "begun": True, "copied": False}
        for n in range(20):
            sides.put("Orders", "p", str(n))
        state["token"] = sides.source.page(Query("Orders", top=15), None).next_token
        state["token"] = list(state["token"])
        self.begun(sides, tables={"Orders": state}, copied=False)
        ran = sides.tools.run(*sides.words("--until-caught-up"))
        assert "Orders: 5 entities read, 5 written" in ran.stderr
        sides.require_equal()


def test_credentials_for_one_table_keep_the_position_in_the_journal(sides: Sides) -> None:
    for side in (sides.source, sides.target):
        side.create_table("Orders")
    sides.put("Orders", "p", "1")
    url = signature(sides.target.connection, "Orders", "raud")
    (sides.tools.directory / "b.txt").write_text(url)
    sides.tools.directory.joinpath("key.txt").write_text(sides.target_server.connection_string)
    found = []
    for n in range(2):
        ran = sides.tools.run(*sides.words("--until-caught-up", "Orders"))
        assert "it is in the journal of this machine alone" in ran.stderr
        found = sides.target.page(Query("Orders"), None).entities
        assert [each["RowKey"] for each in found] == [str(each + 1) for each in range(n + 1)]
        sides.put("Orders", "p", str(n + 2))
    assert sides.tables_of_target() == {"Orders"}
    assert TABLE not in set(sides.target.table_names())
    for each in found:
        deletion = Operation("DELETE", odata.key_of(each), if_match="*")
        sides.target.write("Orders", deletion)
    ran = sides.tools.run(*sides.words("--until-caught-up", "Orders"))
    assert "Orders: is not the table that was followed, so it is copied again." in ran.stderr
    assert len(sides.target.page(Query("Orders"), None).entities) == 3


def signature(connection: Connection, table: str, permission: str) -> str:
    """The URL of the account with a signature of one table."""
    text = generate_table_sas(
        AzureNamedKeyCredential(connection.account, str(connection.secret)),
        table,
        permission=permission,
        start=datetime.now(UTC) - timedelta(hours=1),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    return f"{connection.url}?{text}"


def test_a_journal_with_the_position_waits_for_a_side_that_is_away(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    for side in (sides.source, sides.target):
        side.create_table("Orders")
    url = signature(sides.target.connection, "Orders", "raud")
    (sides.tools.directory / "b.txt").write_text(url)
    sides.catch_up("Orders")
    sides.target_server.stop()
    monkeypatch.setattr(following, "ATTEMPTS", 7)
    ran = sides.tools.run(*sides.words("Orders"), status=1)
    assert "target away since" in ran.stderr
    assert "(tried 7 times)" in ran.stderr


def test_without_a_table_a_signature_is_asked_for_the_key(sides: Sides) -> None:
    sides.source.create_table("Orders")
    place = sides.tools.directory / "a.txt"
    place.write_text(signature(sides.source.connection, "Orders", "r"))
    words = ("copy", "--from", sides.places[0], "--to", sides.places[1])
    needed = "alone: name this table, or give the account's key."
    for command in (words, sides.words(), ("diff", *sides.places), (*words, "Stock")):
        assert needed in sides.tools.run(*command, status=2).stderr
    connection = sides.source.connection
    text = generate_account_sas(
        AzureNamedKeyCredential(connection.account, str(connection.secret)),
        resource_types=ResourceTypes(object=True),
        permission=AccountSasPermissions(read=True, list=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    place.write_text(f"{connection.url}?{text}")
    for command in (words, sides.words(), ("diff", *sides.places)):
        refused = sides.tools.run(*command, status=1).stderr
        assert refused.endswith("Give the account's key, or name one table.\n")


def test_a_named_table_is_compared_with_a_signature_of_it(sides: Sides) -> None:
    sides.source.create_table("Orders")
    sides.put("Orders", "p", "1")
    sides.catch_up()
    for name, side in (("a", sides.source), ("b", sides.target)):
        url = signature(side.connection, "Orders", "r")
        (sides.tools.directory / f"{name}.txt").write_text(url)
    ran = sides.tools.run("diff", *sides.places, "Orders", "--quiet")
    assert ran.stdout == "Orders: 1 entity on both sides, and they are equal.\n"


def test_expired_entities_are_deleted_one_by_one_in_the_order_of_their_key() -> None:
    class Half(Target):
        def refuse(self, operations: Any) -> None:
            (each,) = operations if operations[0].method == "DELETE" else (operations[0],)
            if each.method == "DELETE" and int(each.key.row_key) % 2:
                raise ServiceError(404, "ResourceNotFound", "")

    target = Half()
    side = Side("target", target, 4)
    writer = following._Writer(side, 4, Positions(None, "", side, None))  # type: ignore[arg-type]
    with closing(writer):
        writer.add("Orders", [put("0"), put("1"), put("2")])
        for n in range(5):
            writer.add_expired("Orders", Operation("DELETE", EntityKey("p", str(n)), if_match="*"))
        writer.add("Orders", [put("2")])
        writer.send()
        writer.wait()
    first, *between, last = target.got
    assert (first, last) == ([("PUT", "0"), ("PUT", "1"), ("PUT", "2")], [("PUT", "2")])
    assert sorted(between) == [[("DELETE", each)] for each in "024"]


@pytest.mark.parametrize(
    ("error", "was_there", "attempts"),
    [
        (Unreachable("refused"), True, 9),
        (Unreachable("refused"), False, 4),
        (UnknownHost("no such name"), True, 4),
        (ServiceError(403, "AuthenticationFailed", ""), True, 1),
        (ServiceError(503, "ServerBusy", "", retry_after=0), False, 9),
    ],
)
def test_how_long_a_side_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, error: Exception, attempts: int, *, was_there: bool
) -> None:
    monkeypatch.setattr("tablestone.tools.retrying.PAUSE_SECONDS_MAX", 0.001)
    made = 0

    def request() -> None:
        nonlocal made
        made += 1
        raise error

    with pytest.raises((TransferFailed, ServiceError)):
        Retry(InFlight(1), attempts=9, was_there=was_there)(request)
    assert made == attempts


def test_a_side_that_stays_away_is_named_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.0
    monkeypatch.setattr(following, "monotonic_seconds", lambda: seconds)
    told: list[str] = []
    away = following._Away("target", told.append, lambda: ", last applied change of 12:03")
    away(None)
    for seconds in range(0, 130, 10):  # noqa: B007 - what the clock says
        away(Unreachable("refused"))
    away(None)
    assert [line.partition(" since")[0] for line in told] == ["target away"] * 3 + [
        "target is back"
    ]
    away(ServiceError(503, "ServerBusy", ""))
    assert len(told) == 4
    seconds += 60
    away(ServiceError(503, "ServerBusy", ""))
    assert len(told) == 5
