"""What the connection does without a cluster: statements after it was closed, and those of a start."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from random import random
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

import cassandra
from cassandra.cluster import EXEC_PROFILE_DEFAULT, NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.policies import NoSpeculativeExecutionPolicy, RetryPolicy
from cassandra.protocol import (
    ConfigurationException,
    InvalidRequestException,
    ServerError,
    SyntaxException,
    UnauthorizedErrorMessage,
)

from tablestone.engines.cassandra.cluster_url import parse_address
from tablestone.engines.cassandra.connection import Connection, EveryNode, OutcomeInDoubt, _busy
from tablestone.engines.cassandra.session import Nodes as NodesToAsk
from tablestone.engines.cassandra.session import _cluster, in_words
from tablestone.engines.contract import EngineBusy, EngineRefused, EngineUnavailable, Key
from tablestone.engines.memory import MemoryEngine
from tablestone.tables.metadata import probe_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PATIENCE_SECONDS = 30.0


class Bound:
    """A statement that binds to itself."""

    def bind(self, _parameters: object) -> Bound:
        return self


@pytest.mark.parametrize("calls", [1, 2])
def test_a_write_to_a_closed_connection_was_certainly_not_sent(calls: int) -> None:
    """There is no doubt about it, so nothing retries it."""
    connection = object.__new__(Connection)
    connection.is_open = False

    async def write() -> None:
        await connection.write_if([(Bound(), ())] * calls)

    with pytest.raises(EngineUnavailable), ended_within(PATIENCE_SECONDS):
        asyncio.run(write())
    assert not issubclass(EngineUnavailable, OutcomeInDoubt)


@pytest.mark.parametrize(
    "question", ["on_read_timeout", "on_write_timeout", "on_unavailable", "on_request_error"]
)
def test_the_driver_repeats_no_request(question: str) -> None:
    """A batch that was refused must not be carried out later (docs/decisions/0009-cassandra-versions.md)."""
    cluster = _cluster(
        parse_address("cassandra://127.0.0.1/tablestone"), NodesToAsk(lambda: 0.0, None)
    )
    try:
        profile = cluster.profile_manager.profiles[EXEC_PROFILE_DEFAULT]
        decision, _ = getattr(profile.retry_policy, question)(*[None] * 6, retry_num=0)
        assert decision == RetryPolicy.RETHROW
        assert isinstance(profile.speculative_execution_policy, NoSpeculativeExecutionPolicy)
    finally:
        cluster.shutdown()


def test_a_write_that_is_to_happen_ends_on_a_closed_connection() -> None:
    """It is retried while its outcome is unknown; it used to be retried forever, without a wait."""
    connection = object.__new__(Connection)
    connection.is_open = False
    connection._seconds, connection.chance = monotonic, random
    with pytest.raises(EngineUnavailable), ended_within(PATIENCE_SECONDS):
        asyncio.run(connection.ensure(Bound(), ()))


@contextmanager
def ended_within(seconds: float) -> Iterator[None]:
    """Fail a test that takes longer, even in a loop that never waits, which no asyncio time-out ends."""

    def fail(*_: object) -> None:
        pytest.fail(f"it did not end within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Host(NamedTuple):
    """A node as the driver describes it."""

    datacenter: str
    is_up: bool = True
    endpoint: str = "127.0.0.1:9042"


class Nodes:
    """A session and a cluster that call `act` for each statement and each refreshed list of nodes."""

    def __init__(self, act: Callable[[int], object], datacenters: Sequence[str] = ()) -> None:
        self._act = act
        self.calls = 0
        self.datacenters = datacenters

    def execute(self, *_arguments: object, **_named: object) -> object:
        self.calls += 1
        return self._act(self.calls)

    refresh_nodes = prepare = execute

    @property
    def metadata(self) -> Nodes:
        return self

    cluster = metadata

    def all_hosts(self) -> list[Host]:
        return [Host(name) for name in self.datacenters]


def connection_to(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """A connection whose clock advances only when it waits."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("time.sleep", sleep)
    connection = object.__new__(Connection)
    connection.is_open = True
    connection._seconds = lambda: now
    connection.session = nodes
    connection.cluster = nodes
    order = NodesToAsk(lambda: now, "dc1")
    connection.every_node = EveryNode(nodes, order, lambda: pytest.fail("there is no far node"))
    return connection


def refuse(error: Exception, times: int) -> Callable[[int], object]:
    """Raise the error in the first calls, and return a row afterwards."""

    def act(call: int) -> object:
        if call <= times:
            raise error
        return [("found",)]

    return act


TIME_OUT = cassandra.OperationTimedOut()
UNAVAILABLE = cassandra.Unavailable("too few nodes")
NO_HOST = NoHostAvailable("none", {})


SYNTAX = SyntaxException(0x2000, "line 1:9 no viable alternative at input 'table'", None)
SYNTAX_OF_TWO_LINES = SyntaxException(0x2000, "one\n  two.", None)
CONFIGURATION = ConfigurationException(0x2300, "Unrecognized strategy option {dc9}", None)
INVALID = InvalidRequestException(
    0x2200, "Undefined column name widest in table f.rows", None
).to_exception()
UNAUTHORIZED = UnauthorizedErrorMessage(
    0x2100, "User u has no CREATE permission on <all keyspaces>", None
).to_exception()


@pytest.mark.parametrize("error", [TIME_OUT, UNAVAILABLE, NO_HOST], ids=str)
def test_a_statement_of_a_start_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """`tablestone cluster init` failed because a node that had just started did not answer in time."""
    nodes = Nodes(refuse(error, 3))
    connection = connection_to(nodes, monkeypatch)
    assert connection.execute("SELECT") == [("found",)]
    assert nodes.calls == 4
    nodes = connection.session = Nodes(refuse(error, 3))
    connection.define("CREATE")
    assert nodes.calls == 4


def test_nodes_that_never_answer_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connection_to(Nodes(refuse(UNAVAILABLE, 10_000)), monkeypatch)
    with pytest.raises(EngineBusy, match="The cluster does not answer"):
        connection.execute("SELECT")
    with pytest.raises(EngineBusy):
        connection.define("CREATE")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NO_HOST, "no node can be reached"),
        (UNAVAILABLE, "too few of the nodes that have the data are up"),
        (TIME_OUT, "too few nodes answered in time"),
        (cassandra.ReadTimeout("raw"), "too few nodes answered in time"),
        (cassandra.ReadFailure("raw"), "a node failed to carry it out"),
        (cassandra.Unauthorized("raw"), "this user may not do that"),
        (cassandra.InvalidRequest("raw"), "the log has the driver's error (InvalidRequest)"),
    ],
    ids=str,
)
def test_an_operator_gets_words_and_the_log_the_drivers_text(error: Exception, words: str) -> None:
    assert in_words(error) == words
    busy = _busy("The cluster does not answer", error)
    assert busy.sentence == f"The cluster does not answer: {words}."
    assert str(error) in str(busy)


def test_a_probe_shows_the_sentence() -> None:
    class Unreachable(MemoryEngine):
        async def get(self, key: Key) -> bytes | None:
            raise EngineBusy(f"raw {key}", "The cluster does not answer.")

    found = asyncio.run(probe_storage(Unreachable(lambda: 1)))
    assert found == "The cluster does not answer."


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SYNTAX, "line 1:9 no viable alternative at input 'table'"),
        (CONFIGURATION, "Unrecognized strategy option {dc9}"),
        (SYNTAX_OF_TWO_LINES, "one two"),
        (INVALID, "Undefined column name widest in table f.rows"),
        (UNAUTHORIZED, "User u has no CREATE permission on <all keyspaces>"),
        (cassandra.InvalidRequest("no such table"), "no such table"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_statement_that_is_wrong_is_sent_once_and_the_node_says_why(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    """`tablestone cluster init` ended with a traceback of the driver, which has two classes for each of these."""
    nodes = Nodes(refuse(error, 10_000))
    connection = connection_to(nodes, monkeypatch)
    sends: list[Callable[[str], object]] = [
        connection.execute,
        connection.define,
        connection.prepare,
    ]
    for number, send in enumerate(sends, 1):
        with pytest.raises(EngineRefused) as refused:
            send("SELECT")
        assert str(refused.value) == f"The cluster refuses a statement: {words}."
        assert nodes.calls == number


def test_a_connection_that_ends_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver raises an error outside its own family for it, and for a node that is not ready."""
    for error in (ConnectionShutdown("raw"), ServerError(0, "raw", None)):
        nodes = Nodes(refuse(error, 3))
        connection = connection_to(nodes, monkeypatch)
        assert connection.execute("SELECT") == [("found",)]
        connection.session = Nodes(refuse(error, 10_000))
        with pytest.raises(EngineBusy) as busy:
            connection.execute("SELECT")
        assert "raw" not in busy.value.sentence


def test_a_read_that_meets_too_many_deleted_rows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    error = cassandra.ReadFailure("raw", error_code_map={"127.0.0.1": 1})
    with pytest.raises(EngineBusy, match="more deleted rows than the nodes allow"):
        connection_to(Nodes(refuse(error, 10_000)), monkeypatch).execute("SELECT")


def test_a_question_to_each_node_is_repeated_and_refused_as_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`cluster load` and `unload` ask each node for its clients, which needs a permission."""
    nodes = Nodes(refuse(TIME_OUT, 1), ["dc1"])
    nodes.get_pool_state = dict  # type: ignore[attr-defined]
    connection = connection_to(nodes, monkeypatch)
    connection.keyspace = "k"
    nodes._act = lambda call: refuse(TIME_OUT, 1)(call) and [("127.0.0.1", "k")]
    assert connection.other_clients() == ["127.0.0.1"]
    nodes._act = refuse(UNAUTHORIZED, 10_000)
    with pytest.raises(EngineRefused, match="has no CREATE permission"):
        connection.other_clients()


def test_news_of_a_node_that_has_just_started_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def act(call: int) -> object:
        if call == 1:
            raise cassandra.DriverException("not refreshed")
        nodes.datacenters = ["dc1", "dc2", "dc1", "dc1"]
        return None

    nodes = Nodes(act, ["dc1", "dc2"])
    connection = connection_to(nodes, monkeypatch)
    assert connection.nodes_in("dc1", 1) == 1
    assert nodes.calls == 0
    assert connection.nodes_in("dc1", 3) == 3
    assert connection.nodes_in("dc1", 4) == 3
