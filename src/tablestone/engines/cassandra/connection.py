"""Sends statements to the cluster and awaits the answers: the driver's threads on one side, asyncio on the other.

It knows which failures mean that nothing was done, retries reads until their time is over, cuts long lists of writes
into batches, and asks single nodes about themselves.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

import cassandra
from cassandra import ConsistencyLevel
from cassandra.cluster import NoHostAvailable, ResponseFuture, Session
from cassandra.query import BatchStatement, BatchType, PreparedStatement

from tablestone.clock import monotonic_seconds
from tablestone.engines import request_time
from tablestone.engines.cassandra.cluster_url import ClusterAddress
from tablestone.engines.cassandra.kind import REQUEST
from tablestone.engines.cassandra.session import (
    FROM_A_NODE,
    PASSING,
    REFUSED,
    Answer,
    Arrivals,
    Nodes,
    Row,
    in_words,
    open_far_session,
    open_session,
    words_of_the_node,
)
from tablestone.engines.contract import (
    EngineBusy,
    EngineRefused,
    EngineUnavailable,
    Key,
    WriteTooLarge,
)
from tablestone.engines.figures import Distribution

PAUSE_SECONDS: Final = 0.02
"""The first pause before a statement is sent again; then each is twice as long, up to `PAUSE_SECONDS_MAX`."""
PAUSE_SECONDS_MAX: Final = 1.0


class Attempts:
    """Attempts until a time is over. `seconds` never steps back; `chance` gives numbers from 0 to 1."""

    def __init__(
        self, seconds: Callable[[], float], chance: Callable[[], float], seconds_max: float
    ) -> None:
        self._seconds = seconds
        self._chance = chance
        self._until = seconds() + seconds_max
        self._next = PAUSE_SECONDS

    @property
    def left(self) -> float:
        """Seconds; negative when the time is over."""
        return self._until - self._seconds()

    async def pause(self, over: Exception, longest: float = PAUSE_SECONDS_MAX) -> None:
        """Wait before the next attempt, or raise `over` if there is no time for one."""
        if self._next > self.left:
            raise over
        # By chance, so that servers which collided do not collide again.
        await asyncio.sleep(self._next * (0.5 + self._chance()))
        self._next = min(2 * self._next, longest)

    def with_at_least(self, seconds_min: float) -> Attempts:
        """Attempts until the same time, or for this long if that is later."""
        return Attempts(self._seconds, self._chance, max(self.left, seconds_min))


class EveryNode:
    """The nodes of all datacenters. `open_far` makes a session that has tried to connect to each of them.

    Requests go to the near datacenter only, so the driver does not connect to far nodes and does not know whether they
    are up. The first question to one of them opens the second session.
    """

    def __init__(self, near: Session, nodes: Nodes, open_far: Callable[[], Session]) -> None:
        self._near = near
        self.is_near = nodes.is_near
        self._open_far = open_far
        self._far: Session | None = None

    def all(self) -> list[Any]:
        """By address."""
        hosts = self._near.cluster.metadata.all_hosts()
        return sorted(hosts, key=lambda host: str(host.endpoint))

    def is_up(self, host: Any) -> bool:
        """Whether there is a connection to this node. May open the second session and wait for it."""
        if self.is_near(host):
            return bool(host.is_up)
        pool = self._far_session().get_pool_state().get(host, {})
        return bool(pool.get("open_count", 0))

    def silent_datacenters(self) -> list[str]:
        """The datacenters without a node that is up."""
        hosts = self.all()
        heard = {str(host.datacenter) for host in hosts if self.is_up(host)}
        return sorted({str(host.datacenter) for host in hosts} - heard)

    def ask(self, host: Any, text: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Ask one node about itself, once. Raises the driver's error."""
        session = self._near if self.is_near(host) else self._far_session()
        return list(session.execute(text, parameters, host=host))

    def leave(self) -> None:
        """Close the second session; the next question to a far node opens it again."""
        if self._far is not None:
            self._far.cluster.shutdown()
            self._far = None

    def _far_session(self) -> Session:
        if self._far is None:
            self._far = self._open_far()
        return self._far


READ_SECONDS_MAX: Final = 15.0
"""How long a read is tried again, within the time of its request (`request_time`)."""
SCHEMA_SECONDS_MAX: Final = 60.0
"""How long a change of the schema may take: all nodes have to agree on it."""
NEWS_SECONDS_MAX: Final = 10.0
"""How long the other nodes may take to learn of a node that has just started."""
START_PAUSE_SECONDS: Final = 0.5
"""The pause between two attempts while a start or a command waits."""

_Result = TypeVar("_Result")
_RANDOM: Final = secrets.SystemRandom()

Statement: TypeAlias = PreparedStatement
Call = tuple[Statement, Sequence[Any]]
"""A prepared statement and its values."""

UNREADABLE: Final = {
    1: "A read meets more deleted rows than the nodes allow (tombstone_failure_threshold): spread the entities over "
    "more partitions, or wait until the nodes have removed what was deleted.",
    4: "A read is larger than the nodes allow (local_read_size_fail_threshold).",
}
"""A node refuses the same read again for these reasons: codes of the native protocol's Read_failure."""
UNNAMED: Final = (
    " A node fails to read, and only its own log says why; most often a partition has more deleted rows "
    "(tombstone_failure_threshold), or a read is larger (local_read_size_fail_threshold), than the nodes allow."
)
"""At SERIAL a node gives no code. The read is sent again, because the reason may pass."""
UNLIMITED: Final = 1 << 62
OVERSIZED: Final = "exceeds allowed maximum"
"""What a node says of a message over its `native_transport_max_message_size`: its settings were another node's, or
have changed since the start."""
NOTHING_DONE: Final = (cassandra.Unavailable, NoHostAvailable, cassandra.RequestValidationException)
"""No node carried out the statement."""


class OutcomeInDoubt(Exception):
    """A conditional write was sent, and no answer said whether it was applied."""


class Connection:
    """A session of the driver. `chance` gives numbers from 0 to 1; `seconds` never steps back."""

    write_bytes_max: int = UNLIMITED
    """The largest batch that every node takes, as far as their settings are known."""

    def __init__(
        self,
        address: ClusterAddress,
        seconds: Callable[[], float] = monotonic_seconds,
        chance: Callable[[], float] = _RANDOM.random,
        *,
        in_keyspace: bool = True,
    ) -> None:
        self._seconds = seconds
        self.chance = chance
        self.request_seconds = Distribution(REQUEST.bounds)
        self.failures = 0
        self.keyspace = address.keyspace
        self.names_user = address.user is not None
        self.is_open = True
        self._nodes = Nodes(seconds, address.datacenter)
        self._arrivals: Arrivals | None = None
        self.cluster, self.session = open_session(address, self._nodes)
        far = functools.partial(open_far_session, address)
        self.every_node = EveryNode(self.session, self._nodes, far)
        if in_keyspace:
            if address.keyspace not in self.cluster.metadata.keyspaces:
                self.close()
                raise EngineRefused(
                    f"The cluster has no keyspace {address.keyspace!r}: make it with `tablestone cluster init`."
                )
            self.use_keyspace()

    def use_keyspace(self) -> None:
        """Use the keyspace, which must exist, for later statements."""
        try:
            self.waited_for(lambda: self.session.set_keyspace(self.keyspace), READ_SECONDS_MAX)
        except BaseException:
            self.close()
            raise

    def prepare(self, text: str, *, serial: bool = False) -> Statement:
        """Prepare a statement. A serial one sees, and finishes, every conditional write that has begun."""
        statement = self.waited_for(lambda: self.session.prepare(text), READ_SECONDS_MAX)
        statement.consistency_level = ConsistencyLevel.SERIAL if serial else ConsistencyLevel.QUORUM
        statement.serial_consistency_level = ConsistencyLevel.SERIAL
        statement.fetch_size = None  # the engine cuts pages itself, each at one moment
        return statement

    def execute(self, text: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Execute a plain statement, for up to `READ_SECONDS_MAX`. Blocks. `EngineRefused` if the nodes refuse it."""
        return self.waited_for(
            lambda: list(self.session.execute(text, parameters)), READ_SECONDS_MAX
        )

    def define(self, text: str) -> None:
        """Change the schema, by a statement that may be repeated. Blocks."""
        self.waited_for(
            lambda: self.session.execute(text, timeout=SCHEMA_SECONDS_MAX), SCHEMA_SECONDS_MAX
        )

    def nodes_in(self, datacenter: str, wanted: int) -> int:
        """The number of nodes in a datacenter. Waits up to `NEWS_SECONDS_MAX` for as many as `wanted`."""
        deadline = self._seconds() + NEWS_SECONDS_MAX
        while True:
            hosts = self.cluster.metadata.all_hosts()
            there = sum(bool(host.datacenter == datacenter) for host in hosts)
            if there >= wanted or self._seconds() > deadline:
                return there
            time.sleep(START_PAUSE_SECONDS)
            with suppress(cassandra.DriverException):
                self.cluster.refresh_nodes()

    def other_clients(self) -> list[str]:
        """The addresses of the keyspace's clients; empty if this is the only one. Blocks."""
        mine = self.session.get_pool_state()
        found: set[str] = set()
        ask = "SELECT address, keyspace_name FROM system_views.clients"
        nodes = self.every_node
        for host in filter(nodes.is_up, nodes.all()):
            clients = self.waited_for(functools.partial(nodes.ask, host, ask), READ_SECONDS_MAX)
            users = [str(address) for address, keyspace in clients if keyspace == self.keyspace]
            if len(users) > mine.get(host, {}).get("open_count", 0):
                found.update(users)
        return sorted(found)

    def attempts(self, seconds_max: float | None = None) -> Attempts:
        """Attempts for `READ_SECONDS_MAX` by default, within the request's time; `EngineBusy` if that is over."""
        if seconds_max is None:
            seconds_max = READ_SECONDS_MAX
        left = request_time.left()
        if left <= 0:
            raise EngineBusy("The cluster does not answer in the time of a request.")
        return Attempts(self._seconds, self.chance, min(seconds_max, left))

    async def read(
        self, statement: Statement, parameters: Sequence[Any], attempts: Attempts | None = None
    ) -> Answer:
        """Send a query again until the attempts are over (None: for `READ_SECONDS_MAX`)."""
        return await self._repeated(((statement, parameters),), attempts)

    async def write(self, calls: Sequence[Call]) -> None:
        """Send writes to one partition as a batch. They may be repeated: each has its own timestamp."""
        await self._repeated(calls)

    async def _repeated(self, calls: Sequence[Call], attempts: Attempts | None = None) -> Answer:
        attempts = attempts or self.attempts()
        while True:
            try:
                return await self._send(calls)
            except cassandra.RequestValidationException as error:
                raise _busy("The cluster refuses a statement", error) from error
            except EngineUnavailable:
                raise
            except Exception as error:
                if why := _why_unreadable(error):
                    raise EngineBusy(why) from error
                hint = UNNAMED if isinstance(error, cassandra.ReadFailure) else ""
                busy = _busy("The cluster does not answer", error, hint)
                if not self.is_open:
                    raise busy from error
                await attempts.pause(busy)

    async def write_if(self, calls: Sequence[Call]) -> Answer | None:
        """Send conditional statements of one partition as a batch; None if they were applied, else what they found.

        `EngineUnavailable` if nothing was applied, `OutcomeInDoubt` if that is not known.
        """
        try:
            answer = await self._send(calls)
        except NOTHING_DONE as error:
            if isinstance(error, NoHostAvailable) and _may_have_been_sent(error):
                raise OutcomeInDoubt(in_words(error)) from error
            if OVERSIZED in str(error):
                raise WriteTooLarge(
                    f"The cluster never takes the write: {in_words(error)}."
                ) from error
            raise _busy("The cluster does not take a write", error) from error
        except EngineUnavailable:  # the connection is closed: nothing was sent
            raise
        except Exception as error:
            raise OutcomeInDoubt(in_words(error)) from error
        return None if answer[0][0] else answer

    def require_takable(self, calls: Sequence[Call], key: Key | None = None) -> None:
        """Raise `WriteTooLarge` for writes that the nodes would refuse each time. `key` is that of their one row."""
        size = sum(map(size_of, calls))
        if size > self.write_bytes_max:
            raise WriteTooLarge(
                f"The write has {size:,} bytes, and the nodes of the cluster take {self.write_bytes_max:,} "
                "(max_mutation_size, native_transport_max_message_size).",
                key,
            )

    async def ensure(self, statement: Statement, parameters: Sequence[Any]) -> None:
        """Send a conditional write until an answer comes: then this engine or another one has applied it.

        `EngineUnavailable` if none comes in `READ_SECONDS_MAX`; it may have been applied, or may yet be.
        """
        attempts = self.attempts()
        while True:
            try:
                await self.write_if([(statement, parameters)])
            except OutcomeInDoubt as doubt:
                await attempts.pause(EngineBusy(f"The cluster does not answer a write: {doubt}."))
            else:
                return

    def nodes(self) -> tuple[int, int]:
        """The number of nodes that get requests, and of those that seem to be up."""
        hosts = [host for host in self.cluster.metadata.all_hosts() if self._nodes.is_near(host)]
        return len(hosts), sum(bool(host.is_up) for host in hosts)

    def close(self) -> None:
        self.is_open = False
        self.every_node.leave()
        self.cluster.shutdown()

    def waited_for(self, attempt: Callable[[], _Result], seconds_max: float) -> _Result:
        """Repeat the attempt until it succeeds; `EngineBusy` after that time, `EngineRefused` if a node refuses it."""
        deadline = self._seconds() + seconds_max
        while True:
            try:
                return attempt()
            except REFUSED as error:
                raise EngineRefused(
                    f"The cluster refuses a statement: {words_of_the_node(error)}."
                ) from error
            except PASSING as error:
                if not self.is_open or self._seconds() > deadline:
                    if why := _why_unreadable(error):
                        raise EngineBusy(why) from error
                    raise _busy("The cluster does not answer", error) from error
            except EngineUnavailable:
                if not self.is_open or self._seconds() > deadline:
                    raise
            time.sleep(START_PAUSE_SECONDS)

    def _send(self, calls: Sequence[Call]) -> asyncio.Future[Answer]:
        if not self.is_open:
            raise EngineUnavailable("The engine is closed.")
        loop = asyncio.get_running_loop()
        arrivals = self._arrivals
        if arrivals is None or arrivals.loop is not loop:
            arrivals = self._arrivals = Arrivals(loop)
        statement, parameters = calls[0] if len(calls) == 1 else (_batch(calls), None)
        future: asyncio.Future[Answer] = loop.create_future()
        begun = self._seconds()
        sent: ResponseFuture = self.session.execute_async(statement, parameters)

        # The driver calls these, mostly on its own thread.
        def succeed(answer: Answer | None) -> None:
            self._nodes.heard(sent.coordinator_host)
            self.request_seconds.add(self._seconds() - begun)
            arrivals.put(future, Answer() if answer is None else answer)

        def fail(error: Exception) -> None:
            self.failures += 1
            if isinstance(error, FROM_A_NODE):
                self._nodes.heard(sent.coordinator_host)
            elif isinstance(error, cassandra.OperationTimedOut):
                self._nodes.avoid(error.last_host)
            arrivals.put(future, error)

        sent.add_callbacks(succeed, fail)
        return future


def _batch(calls: Sequence[Call]) -> BatchStatement:
    batch = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.QUORUM)
    batch.serial_consistency_level = ConsistencyLevel.SERIAL
    for statement, parameters in calls:
        batch.add(statement, parameters)
    return batch


def _busy(what: str, error: Exception, hint: str = "") -> EngineBusy:
    """With the driver's text for the log, and without it for an operator."""
    return EngineBusy(f"{what}: {error}{hint}", f"{what}: {in_words(error)}.{hint}")


def _why_unreadable(error: Exception) -> str | None:
    """Why nodes refuse to read a partition every time; None if they may not."""
    codes = getattr(error, "error_code_map", None) or {}
    return next((why for code, why in UNREADABLE.items() if code in codes.values()), None)


def _may_have_been_sent(error: NoHostAvailable) -> bool:
    """Whether one of the hosts failed after it got the statement."""
    return any(
        isinstance(cause, cassandra.DriverException) and not isinstance(cause, NOTHING_DONE)
        for cause in (error.errors or {}).values()
    )


# A batch of one partition is one mutation, to which `batch_size_fail_threshold` does not apply (`verifyBatchSize` in
# Cassandra's BatchStatement.java). But nodes refuse a message above `native_transport_max_message_size`, the lesser of
# `max_mutation_size`, by default 16 MiB, and a fortieth of the heap.
CALLS_MAX: Final = 200
"""Calls in a batch. More of them gain little: 2,000 short entries took 0.3 s in tens of batches, and 0.2 s in two."""
BYTES_MAX: Final = 512 << 10
"""Bytes of a batch in a message: half the default `native_transport_receive_queue_capacity` (1 MiB). Beyond that
capacity, all connections of a server draw on one share of the node's heap."""
CALL_BYTES: Final = 21
"""Before its values, a call has kind, statement id (MD5) and count of values: native_protocol_v5.spec, 4.1.7."""
LENGTH_BYTES: Final = 4
"""The length before each value (section 3, [value])."""
NUMBER_BYTES: Final = 8
"""The longest value that is not a blob: a bigint."""


def pieces(
    calls: Iterable[Call], calls_max: int = CALLS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[list[Call]]:
    """The calls in order, in lists within both limits. A call that is too long is its own list."""
    piece: list[Call] = []
    size = 0
    for call in calls:
        length = size_of(call)
        if piece and (len(piece) == calls_max or size + length > bytes_max):
            yield piece
            piece, size = [], 0
        piece.append(call)
        size += length
    if piece:
        yield piece


def size_of(call: Call) -> int:
    """The bytes of a call in a batch, at most a few too many."""
    _, values = call
    return CALL_BYTES + sum(
        LENGTH_BYTES + (len(value) if isinstance(value, bytes) else NUMBER_BYTES)
        for value in values
    )
