"""Sends prepared statements over the driver's connections without the driver's own object for each request.

The driver makes a future with locks, a plan of nodes and a timer for every request. A server needs none of them: it
sends from one thread, to the node that holds the partition, and looks for late answers itself. Here a request is a few
bytes and a callback. Where no node that holds the partition answers, or its connection takes no more, nothing is
sent (`send` gives None), and the caller takes the driver's own way.

Knows connections and their pools, and no table. The driver is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from cassandra.cluster import Session
from cassandra.connection import ConnectionBusy, ConnectionException, ConnectionShutdown
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage, PreparedQueryNotFound, ResultMessage
from cassandra.query import PreparedStatement

from cassandra import OperationTimedOut
from tablestone.engines.cassandra import native_protocol
from tablestone.engines.cassandra.native_protocol import (
    Deserializer,
    PreparedBytes,
    Serializer,
)

Call = tuple[PreparedStatement, Sequence[Any]]
"""A prepared statement and what is bound to it."""


class Placement(Protocol):
    """Knows where a partition is."""

    def holder(self, keyspace: str, partition: bytes) -> Any | None:
        """A node that holds this partition and is there; None if there is none."""

    def heard(self, host: Any) -> None:
        """This node has answered; on whichever thread."""


class Outcome(Protocol):
    """Is told what became of a request, on whichever thread."""

    def answered(self, rows: Sequence[Any], names: Sequence[str]) -> None:
        """The answer of the node."""

    def failed(self, error: Exception) -> None:
        """The node, or its connection, did not carry it out, or its outcome is unknown."""

    def forgotten(self) -> None:
        """The node has forgotten the prepared statement, and has done nothing."""


class DirectRequests:
    """The direct requests of one session."""

    def __init__(self, session: Session, placement: Placement, keyspace: str) -> None:
        self._session = session
        self._placement = placement
        self._keyspace = keyspace
        self._prepared: dict[bytes, _Prepared] = {}
        self._decode = session.client_protocol_handler.decode_message

    def learn(self, statement: PreparedStatement) -> None:
        """Let this statement be sent directly, if its partition key is one blob of its values."""
        indexes = statement.routing_key_indexes
        if not indexes or len(indexes) != 1:
            return
        if _typename(statement.column_metadata[indexes[0]]) != "blob":
            return
        self._prepared[statement.query_id] = _Prepared(statement, indexes[0], self._decode)

    def send(self, calls: Sequence[Call], outcome: Outcome) -> DirectRequest | None:
        """Send statements of one partition, more than one as a batch; None if nothing was sent, nor will be."""
        prepared = self._prepared
        statement, values = calls[0]
        first = prepared.get(statement.query_id)
        if first is None:
            return None
        host = self._placement.holder(self._keyspace, values[first.place])
        pool = self._session._pools.get(host)  # noqa: SLF001 - as the driver's own requests do
        if pool is None or pool.is_shutdown:
            return None
        if len(calls) == 1:
            opcode, body = native_protocol.EXECUTE, first.written.execute(values)
        else:
            opcode = native_protocol.BATCH
            body = first.written.batch(
                [(prepared[each.query_id].written, bound) for each, bound in calls]
            )
        try:
            connection, stream = pool.borrow_connection(0.0)
        except (NoConnectionsAvailable, ConnectionException):
            return None
        request = DirectRequest(self._placement, pool, connection, stream, outcome, first.names)
        try:
            connection.send_msg(
                (opcode, body),
                stream,
                cb=request.answer,
                encoder=_framed,
                decoder=first.decode,
                result_metadata=statement.result_metadata,
            )
        except (ConnectionException, ConnectionBusy):
            request.take_back()
            return None
        return request


class _Prepared:
    """A statement that may be sent directly: its bytes, and how its answers are read."""

    def __init__(
        self, statement: PreparedStatement, place: int, decode: Callable[..., Any]
    ) -> None:
        self.written = PreparedBytes(
            statement.query_id,
            statement.result_metadata_id or b"",
            [_serializer(column) for column in statement.column_metadata],
            statement.consistency_level,
            statement.serial_consistency_level,
            knows_metadata=bool(statement.result_metadata),
        )
        self.place = place
        """Where the partition is among the values."""
        columns = statement.result_metadata or ()
        self.names = [name for _, _, name, _ in columns]
        types = [_DESERIALIZERS.get(str(kind.typename)) for *_, kind in columns]
        self._decode = decode
        self._deserializers = [each for each in types if each is not None]
        self._is_plain = bool(types) and None not in types

    def decode(
        self,
        version: int,
        types: Any,
        stream: int,
        flags: int,
        opcode: int,
        body: bytes,
        *rest: Any,
    ) -> Any:
        """A few rows as a list, without the driver's objects; everything else as the driver decodes it."""
        if self._is_plain and opcode == native_protocol.RESULT and not flags:
            rows = native_protocol.plain_rows(body, self._deserializers)
            if rows is not None:
                return rows
        return self._decode(version, types, stream, flags, opcode, body, *rest)


_FROM_THE_NODE: Final = (list, ResultMessage, ErrorMessage)
"""Rows, and messages of a node. Everything else comes from the connection."""


class DirectRequest:
    """A request that was sent and has no answer yet."""

    __slots__ = ("_connection", "_names", "_outcome", "_placement", "_pool", "_stream")

    def __init__(
        self,
        placement: Placement,
        pool: Any,
        connection: Any,
        stream: int,
        outcome: Outcome,
        names: Sequence[str],
    ) -> None:
        self._placement = placement
        self._pool = pool
        self._connection = connection
        self._stream = stream
        self._outcome = outcome
        self._names = names

    def answer(self, response: Any) -> None:
        """As the driver's connections call it: with rows, a message of the node, or an error of the connection."""
        self._pool.return_connection(self._connection)
        if isinstance(response, _FROM_THE_NODE):
            self._placement.heard(self._pool.host)
        if type(response) is list:
            self._outcome.answered(response, self._names)
        elif isinstance(response, ResultMessage):
            self._outcome.answered(response.parsed_rows or (), response.column_names or ())
        elif isinstance(response, PreparedQueryNotFound):
            self._outcome.forgotten()
        elif isinstance(response, ErrorMessage):
            self._outcome.failed(response.to_exception())
        elif isinstance(response, Exception):
            if not isinstance(response, ConnectionShutdown) and isinstance(
                response, ConnectionException
            ):
                self._connection.defunct(response)
            self._outcome.failed(response)
        else:
            unexpected = ConnectionException(f"Got unexpected message: {response!r}")
            self._connection.defunct(unexpected)
            self._outcome.failed(unexpected)

    def time_out(self) -> None:
        """Wait no longer. The stream is not used again before the late answer has come."""
        connection = self._connection
        if connection._requests.pop(self._stream, None) is not None:  # noqa: SLF001 - as the driver's own requests do
            with connection.lock:
                connection.orphaned_request_ids.add(self._stream)
                if len(connection.orphaned_request_ids) >= connection.orphaned_threshold:
                    connection.orphaned_threshold_reached = True
            self._pool.return_connection(connection, stream_was_orphaned=True)
        self._outcome.failed(OperationTimedOut({}, self._pool.host))

    def take_back(self) -> None:
        """Nothing was sent: give the stream back."""
        connection = self._connection
        connection._requests.pop(self._stream, None)  # noqa: SLF001
        with connection.lock:
            connection.request_ids.append(self._stream)
        self._pool.return_connection(connection)


def _framed(message: tuple[int, bytes], stream: int, _version: int, **_options: Any) -> bytes:
    opcode, body = message
    return native_protocol.envelope(stream, opcode, body)


_SERIALIZERS: Final[dict[str, Serializer]] = {
    "blob": native_protocol.blob,
    "int": native_protocol.integer,
    "bigint": native_protocol.long_integer,
}
_DESERIALIZERS: Final[dict[str, Deserializer]] = {
    "blob": bytes,
    "int": native_protocol.of_integer,
    "bigint": native_protocol.of_integer,
}


def _typename(column: Any) -> str:
    return str(column.type.typename)


def _serializer(column: Any) -> Serializer:
    known = _SERIALIZERS.get(_typename(column))
    if known is not None:
        return known
    serialize: Callable[[Any, int], bytes] = column.type.serialize
    return lambda value: native_protocol.blob(serialize(value, native_protocol.VERSION))
