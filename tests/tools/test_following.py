"""`tablestone copy --follow`: both sides equal in the end, whatever is killed, deleted or refused on the way."""

import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest

from conftest import StartServer
from server_process import ServerProcess
from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.model.edm import parse_date_time
from tablestone.model.keys import EntityKey
from tablestone.testing import TableStorage
from tablestone.tools import following, odata
from tablestone.tools.changes import ChangesPage
from tablestone.tools.client import Operation, Page, Query, TableEndpoint
from tablestone.tools.connection import local_connection, parse_connection_string
from tablestone.tools.copying import Side
from tablestone.tools.errors import ServiceError, TransferFailed, Unreachable
from tablestone.tools.positions import TABLE, Positions
from tablestone.tools.resume_journal import Journal
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
    assert sides.catch_up().endswith("0 changes applied. The same command continues.\n")
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
    assert sides.catch_up("--json") == '{"changes": 0}\n'


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
    assert process.stderr.readline() == "Orders: 0 entities copied, 0 B.\n"
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
@pytest.mark.slow
def test_it_survives_kills_of_each_side_and_of_itself(
    tools: DataTools, private_server: StartServer, tmp_path: Path
) -> None:
    chance = random.Random(40)
    source = private_server(tmp_path / "source", *KEEPING)
    target = private_server(tmp_path / "target", "--workers", "1")
    sides = Sides(tools, source, target)
    ports = [str(server.address[1]) for server in (source, target)]
    done = threading.Event()
    writing = threading.Thread(target=change_at_random, args=(sides, random.Random(1), done))
    writing.start()
    process: subprocess.Popen[str] | None = None
    try:
        for turn in range(9):
            is_begun = process is not None
            process = process or sides.start()
            if turn % 3 == 0:
                time.sleep(chance.uniform(0.3, 1.5))
                process.kill()
                process.communicate()
                process = None
                continue
            if not is_begun:
                # Before, a side that is away ends the command, which says so.
                assert process.stderr is not None
                assert any(line.startswith("follow: ") for line in process.stderr)
            time.sleep(chance.uniform(0.2, 1.2))
            if turn % 3 == 1:
                source.kill()
                source = private_server(tmp_path / "source", *KEEPING, "--port", ports[0])
            else:
                target.kill()
                arguments = ("--workers", "1", "--port", ports[1])
                target = private_server(tmp_path / "target", *arguments)
            time.sleep(chance.uniform(0.2, 1.2))
            assert process.poll() is None, process.communicate()
    finally:
        done.set()
        writing.join()
        if process is not None:
            process.kill()
            process.communicate()
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
            follower = following.Follower(
                sides.source,
                target,
                (),
                parallel=4,
                journal=journal,
                tell=lambda _: None,
            )
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

    def transact(self, _table: str, operations: Any) -> None:
        self.refuse(operations)
        self.got.append([(each.method, each.key.row_key) for each in operations])

    def write(self, table: str, operation: Operation) -> str | None:
        self.transact(table, [operation])
        return None

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
        follower = following.Follower(
            sides.source,
            target,
            ("Orders",),
            parallel=1,
            journal=journal,
            tell=lambda _: None,
        )
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
        follower = following.Follower(
            sides.source,
            sides.target,
            (),
            parallel=1,
            journal=journal,
            tell=lambda _: None,
        )
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
        assert "--restart does so; what the source deleted meanwhile stays" in ran.stderr
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
