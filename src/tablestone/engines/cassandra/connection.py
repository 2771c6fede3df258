"""Sends statements to the cluster and awaits the answers: the driver's threads on one side, asyncio on the other.

The only module that sends anything. It knows which failures mean that nothing was done, and retries reads until
their time is over; it knows no table and no statement. The driver is imported here, so this module is only imported
when a cluster is opened.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    ResponseFuture,
    Session,
)
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    HostStateListener,
    TokenAwarePolicy,
)
from cassandra.query import BatchStatement, BatchType, PreparedStatement, tuple_factory

import cassandra
from cassandra import ConsistencyLevel
from tablestone.engines.cassandra.cluster_url import ClusterAddress
from tablestone.engines.contract import EngineRefused, EngineUnavailable

log = logging.getLogger(__name__)
# The driver logs every attempt to reach a node with its stack. The sentences below say what matters of it.
logging.getLogger("cassandra").setLevel(logging.CRITICAL)

PASSWORD_VARIABLE: Final = "CASSANDRA_PASSWORD"  # noqa: S105 - the name of a variable
CONNECT_SECONDS_MAX: Final = 10.0
"""How long opening a connection may take."""
REQUEST_SECONDS_MAX: Final = 3.0
"""How long one statement may take: longer than the nodes' own time-outs for writes, which say more."""
AVOIDED_SECONDS: Final = 10.0
"""For how long a node that did not answer in time is asked only if no other one is there."""
READ_SECONDS_MAX: Final = 15.0
"""How long a read is tried again; the service's own limit for a request is 30 s."""
PAUSE_SECONDS: Final = 0.02
"""The first pause before a statement is sent again; each one is twice as long, up to 1 s."""

Row = tuple[Any, ...]
Statement: TypeAlias = PreparedStatement
Call = tuple[Statement, Sequence[Any]]
"""A prepared statement and what is bound to it."""

NOTHING_DONE: Final = (cassandra.Unavailable, NoHostAvailable, cassandra.RequestValidationException)
"""The statement was refused before any node carried it out."""


class OutcomeInDoubt(Exception):
    """A conditional write was sent, and nothing said whether it was applied."""


class Answer(list[Row]):
    """The rows of an answer, with the names of their columns."""

    names: Sequence[str] = ()


class Connection:
    """A session of the driver. `chance` gives numbers from 0 to 1; `seconds` never steps back."""

    def __init__(
        self,
        address: ClusterAddress,
        seconds: Callable[[], float],
        chance: Callable[[], float],
        *,
        in_keyspace: bool = True,
    ) -> None:
        self._seconds = seconds
        self._chance = chance
        self._arrived: deque[tuple[asyncio.Future[Answer], Answer | None, Exception | None]] = (
            deque()
        )
        self._is_woken = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.keyspace = address.keyspace
        self.is_open = True
        self._nodes = _Nodes(seconds, address.datacenter)
        self.cluster, self.session = _session(address, self._nodes)
        self.cluster.register_listener(_Told())
        if in_keyspace:
            if address.keyspace not in self.cluster.metadata.keyspaces:
                self.close()
                raise EngineRefused(
                    f"The cluster has no keyspace {address.keyspace!r}: make it with `tablestone cluster init`."
                )
            self.session.set_keyspace(address.keyspace)

    def prepare(self, text: str, *, serial: bool = False) -> Statement:
        """A statement ready to be bound; a serial one reads what every conditional write has left, or finishes it."""
        statement = self.session.prepare(text)
        statement.consistency_level = ConsistencyLevel.SERIAL if serial else ConsistencyLevel.QUORUM
        statement.serial_consistency_level = ConsistencyLevel.SERIAL
        return statement

    def execute(self, text: str, parameters: Sequence[Any] = (), host: Any = None) -> list[Row]:
        """A statement that is not prepared, waited for on this thread: for making and examining a keyspace.

        With a host it is asked of that node, about itself.
        """
        return list(self.session.execute(text, parameters, host=host))

    async def read(self, statement: Statement, parameters: Sequence[Any]) -> Answer:
        """The rows of a statement that may be repeated, tried again until `READ_SECONDS_MAX` have passed."""
        deadline = self._seconds() + READ_SECONDS_MAX
        pause = PAUSE_SECONDS
        while True:
            try:
                return await self._send(statement, parameters)
            except cassandra.RequestValidationException as error:
                raise EngineUnavailable(f"The cluster refuses a statement: {error}") from error
            except EngineUnavailable:
                raise
            except Exception as error:
                if not self.is_open or self._seconds() + pause > deadline:
                    raise EngineUnavailable(f"The cluster does not answer: {error}") from error
            await self.pause(pause)
            pause = min(2 * pause, 1.0)

    repeatable = read
    """A write that may be repeated, such as one with a timestamp of its own, is sent as a read is."""

    async def write_if(self, calls: Sequence[Call]) -> Answer | None:
        """Send conditional statements of one partition as one batch; None if they were applied.

        Otherwise what their conditions found. `EngineUnavailable` if nothing was applied, `OutcomeInDoubt` if that is
        not known.
        """
        if len(calls) == 1:
            request: Any = calls[0][0].bind(calls[0][1])
        else:
            request = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.QUORUM)
            request.serial_consistency_level = ConsistencyLevel.SERIAL
            for statement, parameters in calls:
                request.add(statement, parameters)
        try:
            answer = await self._send(request, None)
        except NOTHING_DONE as error:
            if isinstance(error, NoHostAvailable) and _may_have_been_sent(error):
                raise OutcomeInDoubt(str(error)) from error
            raise EngineUnavailable(f"The cluster does not take a write: {error}") from error
        except EngineUnavailable:  # the connection is closed: nothing was sent
            raise
        except Exception as error:
            raise OutcomeInDoubt(str(error)) from error
        return None if answer[0][0] else answer

    async def pause(self, seconds: float) -> None:
        """Wait about this long: writers that met must not meet again."""
        await asyncio.sleep(seconds * (0.5 + self._chance()))

    def close(self) -> None:
        """Close every connection to the cluster."""
        self.is_open = False
        self.cluster.shutdown()

    def _send(self, request: Any, parameters: Sequence[Any] | None) -> asyncio.Future[Answer]:
        if not self.is_open:
            raise EngineUnavailable("The engine is closed.")
        loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        sent: ResponseFuture = self.session.execute_async(request, parameters)
        sent.add_callbacks(self._answered, self._failed, (sent, future), None, (future,), None)
        return future

    # On the driver's thread, from here to `_wake`.

    def _answered(
        self, rows: list[Row] | None, sent: ResponseFuture, future: asyncio.Future[Answer]
    ) -> None:
        answer = Answer(rows or ())
        answer.names = sent._col_names or ()  # noqa: SLF001 - there is no other way to them without waiting
        self._arrived.append((future, answer, None))
        self._wake(future)

    def _failed(self, error: Exception, future: asyncio.Future[Answer]) -> None:
        if isinstance(error, cassandra.OperationTimedOut):
            self._nodes.avoid(error.last_host)
        self._arrived.append((future, None, error))
        self._wake(future)

    def _wake(self, future: asyncio.Future[Answer]) -> None:
        """Answers that arrive together wake the event loop once."""
        if self._is_woken and self._loop is future.get_loop():
            return
        self._is_woken = True
        try:
            future.get_loop().call_soon_threadsafe(self._hand_over)
        except RuntimeError:  # the loop is closed: nothing waits any more
            self._is_woken = False

    def _hand_over(self) -> None:
        self._is_woken = False
        while self._arrived:
            future, answer, error = self._arrived.popleft()
            if future.done():  # cancelled
                continue
            if error is not None:
                future.set_exception(error)
            else:
                assert answer is not None
                future.set_result(answer)


class _Nodes(TokenAwarePolicy):  # type: ignore[misc]
    """The order in which nodes are asked: those that hold the partition first, those that seem to hang last.

    The driver takes a node for lost when its connections break. A node that is paused, or cut off, keeps them.
    """

    def __init__(self, seconds: Callable[[], float], datacenter: str | None) -> None:
        super().__init__(DCAwareRoundRobinPolicy(local_dc=datacenter))
        self._seconds = seconds
        self._avoided: dict[Any, float] = {}

    def avoid(self, host: Any) -> None:
        """This node did not answer in time."""
        if host is not None:
            self._avoided[host] = self._seconds() + AVOIDED_SECONDS

    def make_query_plan(self, working_keyspace: Any = None, query: Any = None) -> Iterator[Any]:
        plan = super().make_query_plan(working_keyspace, query)
        if not self._avoided:
            return iter(plan)
        now = self._seconds()
        self._avoided = {host: until for host, until in self._avoided.items() if until > now}
        return iter(sorted(plan, key=lambda host: host in self._avoided))


class _Told(HostStateListener):  # type: ignore[misc]
    """Says which nodes go and come."""

    def on_up(self, host: Any) -> None:
        log.warning("the Cassandra node %s answers again", host.endpoint)

    def on_down(self, host: Any) -> None:
        log.warning("the Cassandra node %s does not answer", host.endpoint)

    def on_add(self, host: Any) -> None:
        log.info("the Cassandra node %s has joined the cluster", host.endpoint)

    def on_remove(self, host: Any) -> None:
        log.info("the Cassandra node %s has left the cluster", host.endpoint)


def _session(address: ClusterAddress, nodes: _Nodes) -> tuple[Cluster, Session]:
    """A session that is connected; `EngineRefused` says why there is none."""
    try:
        cluster = _cluster(address, nodes)
    except cassandra.UnresolvableContactPoints as error:
        names = ", ".join(name for name, _ in address.hosts)
        raise EngineRefused(f"No Cassandra node has an address under {names}.") from error
    try:
        session = cluster.connect()
    except Exception as error:
        there = sorted({str(host.datacenter) for host in cluster.metadata.all_hosts()} - {"None"})
        cluster.shutdown()
        if there and address.datacenter not in {None, *there}:
            raise EngineRefused(
                f"The cluster has no datacenter {address.datacenter!r}: there is {', '.join(there)}."
            ) from error
        raise _refusal(address, error) from error
    return cluster, session


def _cluster(address: ClusterAddress, nodes: _Nodes) -> Cluster:
    profile = ExecutionProfile(
        load_balancing_policy=nodes,
        # This module decides about retries: the driver does not know which statements may be repeated.
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=ConsistencyLevel.QUORUM,
        serial_consistency_level=ConsistencyLevel.SERIAL,
        request_timeout=REQUEST_SECONDS_MAX,
        row_factory=tuple_factory,
    )
    return Cluster(
        list(address.hosts),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        auth_provider=_credentials(address),
        ssl_context=_tls(address),
        connect_timeout=CONNECT_SECONDS_MAX,
        control_connection_timeout=CONNECT_SECONDS_MAX,
        # Pages are cut by the engine, which knows what one moment is.
        compression=False,
        protocol_version=cassandra.ProtocolVersion.V5,  # of Cassandra 4.0; without it the driver asks for newer ones
    )


def _credentials(address: ClusterAddress) -> PlainTextAuthProvider | None:
    if address.user is None:
        return None
    password = os.environ.get(PASSWORD_VARIABLE)
    if address.password_file is not None:
        try:
            password = Path(address.password_file).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise EngineRefused(
                f"The password file {address.password_file} cannot be read: {error.strerror}."
            ) from error
    if password is None:
        raise EngineRefused(
            f"There is no password for {address.user!r} of the cluster: say password-file=FILE in the engine's URL, or "
            f"set {PASSWORD_VARIABLE}."
        )
    return PlainTextAuthProvider(address.user, password)


def _tls(address: ClusterAddress) -> ssl.SSLContext | None:
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca_file)
        # Nodes name each other by address, and certificates of clusters seldom have addresses: the signer counts.
        context.check_hostname = address.ca_file is None
        if address.certificate_file is not None:
            context.load_cert_chain(address.certificate_file, address.key_file)
    except (OSError, ssl.SSLError) as error:
        raise EngineRefused(
            f"The certificates of the engine's URL cannot be used: {error}."
        ) from error
    return context


def _refusal(address: ClusterAddress, error: Exception) -> EngineRefused:
    hosts = ", ".join(f"{name}:{port}" for name, port in address.hosts)
    told = getattr(error, "errors", None)
    causes = list(told.values()) if isinstance(told, Mapping) and told else [error]
    first = causes[0]
    if any(isinstance(cause, cassandra.AuthenticationFailed) for cause in causes):
        said = "without a user" if address.user is None else f"for user {address.user!r}"
        return EngineRefused(f"The cluster at {hosts} refuses the credentials {said}.")
    if address.tls and "SSL" in str(first):
        return EngineRefused(f"There is no TLS connection to the cluster at {hosts}: {first}.")
    if isinstance(first, OSError) and first.errno:
        why = os.strerror(first.errno)
    else:
        why = str(first).strip() or type(first).__name__
    return EngineRefused(f"No Cassandra node answers at {hosts}: {why}.")


def _may_have_been_sent(error: NoHostAvailable) -> bool:
    """Whether a host in the list failed after it had the statement."""
    return any(
        isinstance(cause, cassandra.DriverException) and not isinstance(cause, NOTHING_DONE)
        for cause in (error.errors or {}).values()
    )
