"""The driver's session: credentials, TLS, time-outs, the order in which nodes are asked, and what errors mean.

If there can be no session, one sentence says why, without words of the driver or of Python. Sends no statement.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import cassandra
from cassandra import ConsistencyLevel, policies
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.connection import ConnectionException, ProtocolError
from cassandra.protocol import ErrorMessage, RequestValidationException

from tablestone.engines.cassandra.cluster_url import ClusterAddress
from tablestone.engines.contract import EngineRefused

Row: TypeAlias = tuple[Any, ...]


class Answer(list[Row]):
    """The rows that a statement returned; none for a plain write."""

    names: Sequence[str] = ()
    """Of the columns."""

    @classmethod
    def of(cls, names: Sequence[str], rows: Sequence[Row]) -> Answer:
        """The driver's `row_factory`."""
        answer = cls(rows)
        answer.names = names
        return answer


class Arrivals:
    """Hands answers from the driver's threads to an event loop. Those that arrive together wake it once.

    A command may use several event loops in turn. Each has its own arrivals: one that has ended holds up no other.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[tuple[asyncio.Future[Answer], Answer | Exception]] = deque()
        self._is_woken = False

    def put(self, future: asyncio.Future[Answer], outcome: Answer | Exception) -> None:
        """Give a future of the event loop its answer or error, on any thread."""
        self._arrived.append((future, outcome))
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                self.loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._is_woken = False  # before the last look: a later arrival wakes the loop again
        while self._arrived:
            future, outcome = self._arrived.popleft()
            if future.done():  # cancelled
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


REFUSED: Final = (cassandra.RequestValidationException, RequestValidationException)
"""A node refused the statement itself, and will again. The driver has two such classes, and raises both."""
PASSING: Final = (cassandra.DriverException, NoHostAvailable, ConnectionException, ErrorMessage)
"""Unless it is in `REFUSED`: the statement was not carried out, and may be when it is sent again."""
FROM_A_NODE: Final = (cassandra.RequestExecutionException, *REFUSED, ErrorMessage)
"""A node has answered with an error. All others come from the driver itself."""

_OF_THE_NODE: Final = re.compile(r'message="(.*)"', re.DOTALL)


_WORDS: Final[Mapping[Any, str]] = {
    NoHostAvailable: "no node can be reached",
    cassandra.Unavailable: "too few of the nodes that have the data are up",
    cassandra.Timeout | cassandra.OperationTimedOut: "too few nodes answered in time",
    cassandra.CoordinationFailure: "a node failed to carry it out",
    cassandra.Unauthorized | cassandra.AuthenticationFailed: "this user may not do that",
    ConnectionException: "the connection to a node has ended",
}


def in_words(error: Exception) -> str:
    """The reason of an error, as the second half of a sentence."""
    other = f"the log has the driver's error ({type(error).__name__})"
    return next((words for kind, words in _WORDS.items() if isinstance(error, kind)), other)


def words_of_the_node(refused: Exception) -> str:
    """Why a node refuses a statement, in one line and without a full stop."""
    found = _OF_THE_NODE.search(str(refused))
    return " ".join((found[1] if found else str(refused)).split()).rstrip(".")


PASSWORD_VARIABLE: Final = "CASSANDRA_PASSWORD"  # noqa: S105 - the name of a variable


def credentials(address: ClusterAddress) -> PlainTextAuthProvider | None:
    """None if the URL names no user. `EngineRefused` if there is no password."""
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
        except UnicodeDecodeError:
            raise EngineRefused(
                f"The password file {address.password_file} cannot be read: it is no UTF-8 text."
            ) from None
    if password is None:
        raise EngineRefused(
            f"There is no password for {address.user!r} of the cluster: say password-file=FILE in the engine's URL, or "
            f"set {PASSWORD_VARIABLE}."
        )
    return PlainTextAuthProvider(address.user, password)


def tls_context(address: ClusterAddress) -> ssl.SSLContext | None:
    """None without TLS. `EngineRefused` if a file cannot be used."""
    if not address.tls:
        return None
    for option, file in (
        ("ca-file", address.ca_file),
        ("certificate-file", address.certificate_file),
        ("key-file", address.key_file),
    ):
        if file is not None:
            try:
                Path(file).read_bytes()
            except OSError as error:
                raise EngineRefused(
                    f"The {option} {file} cannot be read: {error.strerror}."
                ) from error
    try:
        context = ssl.create_default_context(cafile=address.ca_file)
    except (OSError, ValueError) as error:
        raise EngineRefused(
            f"The ca-file {address.ca_file} holds no certificate in PEM form."
        ) from error
    # Nodes are known by address, and their certificates seldom have addresses: the signer counts.
    context.check_hostname = address.ca_file is None
    if address.certificate_file is not None:
        try:
            # Without one, OpenSSL would ask for a key's password on the terminal.
            context.load_cert_chain(address.certificate_file, address.key_file, password="")
        except (OSError, ValueError) as error:
            raise EngineRefused(
                f"The certificate-file {address.certificate_file} and the key-file {address.key_file} hold no "
                "certificate in PEM form with its key, which has no password."
            ) from error
    return context


_TLS: Final = re.compile(r"\[SSL(?:: (\w+))?\]|\bEOF occurred in violation of protocol\b|_ssl\.c")
"""An error of OpenSSL and its name, in the text of Python or of the driver."""
_UNTRUSTED: Final = re.compile(r"certificate verify failed: ([^(]*?)\s*(?:\(|$)")
_NO_TLS: Final = re.compile(
    "WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|UNKNOWN_PROTOCOL|HTTP_REQUEST"
)
"""OpenSSL's errors when the other side answers in another protocol."""


def refusal(address: ClusterAddress, error: Exception) -> EngineRefused:
    """One sentence about why the driver could not connect."""
    hosts = ", ".join(f"{name}:{port}" for name, port in address.hosts)
    causes = _causes(error)
    if any(isinstance(cause, cassandra.AuthenticationFailed) for cause in causes):
        said = "without a user" if address.user is None else f"for user {address.user!r}"
        return EngineRefused(f"The cluster at {hosts} refuses the credentials {said}.")
    if address.tls and (why := next(filter(None, map(_why_no_tls, causes)), None)):
        return EngineRefused(f"There is no TLS connection to the cluster at {hosts}: {why}.")
    return EngineRefused(f"No Cassandra node answers at {hosts}: {_why_no_answer(causes[0])}.")


def _causes(error: Exception) -> list[Exception]:
    """The error of each node, or else the error itself."""
    errors = getattr(error, "errors", None)
    return list(errors.values()) if isinstance(errors, Mapping) and errors else [error]


def _why_no_tls(cause: Exception) -> str | None:
    found = _TLS.search(str(cause))
    if found is None:
        return None
    name = found[1] or ""
    if untrusted := _UNTRUSTED.search(str(cause)):
        return f"its certificate is not trusted ({untrusted[1]})"
    if _NO_TLS.fullmatch(name):
        return "the node does not speak TLS"
    if "CERTIFICATE_REQUIRED" in name or "HANDSHAKE_FAILURE" in name:
        return "the node may want a certificate of its client (certificate-file and key-file)"
    return name.replace("_", " ").lower() or "the node ends it"


def _why_no_answer(cause: Exception) -> str:
    if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        return os.strerror(cause.errno)
    if isinstance(cause, cassandra.OperationTimedOut | cassandra.Timeout | OSError):
        return "it did not answer in time"
    if isinstance(cause, ProtocolError | ErrorMessage):
        return "it does not speak the protocol of Cassandra 5.0"
    if isinstance(cause, ConnectionException):
        return "it ends the connection, as a node does that wants TLS (tls=yes)"
    return "the connection cannot be opened"


log = logging.getLogger(__name__)
# The driver logs every attempt to reach a node with its stack; `_NodeLog` says what matters.
logging.getLogger("cassandra").setLevel(logging.CRITICAL)

CONNECT_SECONDS_MAX: Final = 10.0
FAR_CONNECT_SECONDS_MAX: Final = 5.0
"""To a node of another datacenter, which may be out of this machine's reach."""
FAR_CONNECTS_AT_ONCE: Final = 16
"""Threads that connect. With the driver's two, nodes out of reach would be waited for in turn."""
REQUEST_SECONDS_MAX: Final = 3.0
"""How long one statement may take: longer than the nodes' own time-outs for writes, which say more."""
AVOIDED_SECONDS: Final = 10.0
"""Avoid a node that was late for this long. Then one request tries it, and the others avoid it as long again. Longer
than `REQUEST_SECONDS_MAX`, so a node has one trial at a time."""
RECONNECT_SECONDS_MAX: Final = 10.0
"""Try a lost node again at least this often; the driver's own limit is ten minutes."""


class Nodes(policies.TokenAwarePolicy):  # type: ignore[misc]
    """The order in which nodes are asked: first those with the partition, last those that seem to hang.

    The driver takes a node for lost when its connections break, but a paused or cut-off node keeps them. So a node that
    was late is avoided until it answers, and one request at a time tries it.
    """

    def __init__(self, seconds: Callable[[], float], datacenter: str | None) -> None:
        # Shuffled, so that the nodes of a busy partition share the work.
        super().__init__(
            policies.DCAwareRoundRobinPolicy(local_dc=datacenter), shuffle_replicas=True
        )
        self._seconds = seconds
        self._avoided: dict[Any, float] = {}
        """When to try each late node next. Several threads change it, each in one step."""

    def is_near(self, host: Any) -> bool:
        """Whether the node is in the near datacenter, which gets the requests."""
        return bool(self.distance(host) != policies.HostDistance.IGNORED)

    def avoid(self, host: Any) -> None:
        """This node did not answer in time."""
        if host is not None:
            self._avoided[host] = self._seconds() + AVOIDED_SECONDS

    def heard(self, host: Any) -> None:
        """This node has answered, whenever the request was sent."""
        if self._avoided:
            self._avoided.pop(host, None)

    def make_query_plan(self, working_keyspace: Any = None, query: Any = None) -> Iterator[Any]:
        plan = super().make_query_plan(working_keyspace, query)
        if not self._avoided:
            return iter(plan)
        hosts = list(plan)
        first = next(filter(self._may_be_asked, hosts), None)
        return iter(sorted(hosts, key=lambda host: (host is not first, host in self._avoided)))

    def on_up(self, host: Any) -> None:
        super().on_up(host)
        self.heard(host)

    def on_remove(self, host: Any) -> None:
        super().on_remove(host)
        self.heard(host)

    def _may_be_asked(self, host: Any) -> bool:
        """False for a late node. When it is due, the request that asks is the trial."""
        trial = self._avoided.get(host)
        if trial is None:
            return True
        now = self._seconds()
        if now < trial:
            return False
        self._avoided[host] = now + AVOIDED_SECONDS
        return True


class _NodeLog(policies.HostStateListener):  # type: ignore[misc]
    def on_up(self, host: Any) -> None:
        log.warning("the Cassandra node %s answers again", host.endpoint)

    def on_down(self, host: Any) -> None:
        log.warning("the Cassandra node %s does not answer", host.endpoint)

    def on_add(self, host: Any) -> None:
        log.info("the Cassandra node %s has joined the cluster", host.endpoint)

    def on_remove(self, host: Any) -> None:
        log.info("the Cassandra node %s has left the cluster", host.endpoint)


def open_session(address: ClusterAddress, nodes: Nodes) -> tuple[Cluster, Session]:
    """Connect; `EngineRefused` if that fails."""
    cluster = _cluster(address, nodes)
    try:
        session = cluster.connect()
    except Exception as error:
        there = sorted({str(host.datacenter) for host in cluster.metadata.all_hosts()} - {"None"})
        cluster.shutdown()
        if there and address.datacenter not in {None, *there}:
            raise EngineRefused(
                f"The cluster has no datacenter {address.datacenter!r}: there is {', '.join(there)}."
            ) from error
        raise refusal(address, error) from error
    cluster.register_listener(_NodeLog())
    return cluster, session


def open_far_session(address: ClusterAddress) -> Session:
    """Try to connect to the nodes of all datacenters; `EngineRefused` if none can be reached.

    The session has its own `Cluster`, so that nothing else goes to far nodes.
    """
    cluster = _cluster(
        address,
        policies.RoundRobinPolicy(),
        connect_seconds=FAR_CONNECT_SECONDS_MAX,
        threads=FAR_CONNECTS_AT_ONCE,
    )
    try:
        return cluster.connect(wait_for_all_pools=True)
    except Exception as error:
        cluster.shutdown()
        raise refusal(address, error) from error


def _cluster(
    address: ClusterAddress,
    order: policies.LoadBalancingPolicy,
    *,
    connect_seconds: float = CONNECT_SECONDS_MAX,
    threads: int = 2,
) -> Cluster:
    profile = ExecutionProfile(
        load_balancing_policy=order,
        # The driver does not know which statements may be repeated, so it repeats none.
        retry_policy=policies.FallthroughRetryPolicy(),
        consistency_level=ConsistencyLevel.QUORUM,
        serial_consistency_level=ConsistencyLevel.SERIAL,
        request_timeout=REQUEST_SECONDS_MAX,
        row_factory=Answer.of,
    )
    try:
        return Cluster(
            list(address.hosts),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            auth_provider=credentials(address),
            ssl_context=tls_context(address),
            reconnection_policy=policies.ExponentialReconnectionPolicy(1.0, RECONNECT_SECONDS_MAX),
            connect_timeout=connect_seconds,
            control_connection_timeout=connect_seconds,
            executor_threads=threads,
            compression=False,
            # That of Cassandra 4.0; by default the driver tries newer ones.
            protocol_version=cassandra.ProtocolVersion.V5,
            sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )
    except cassandra.UnresolvableContactPoints as error:
        names = ", ".join(name for name, _ in address.hosts)
        raise EngineRefused(f"No Cassandra node has an address under {names}.") from error
