"""Requests that are sent without the driver's own objects: what becomes of answers, errors and silence."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from cassandra.connection import ConnectionBusy, ConnectionException, ConnectionShutdown
from cassandra.cqltypes import BytesType, Int32Type, UTF8Type
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import (
    PreparedQueryNotFound,
    ProtocolHandler,
    ResultMessage,
    UnavailableErrorMessage,
    WriteTimeoutErrorMessage,
)

import cassandra
from cassandra import ConsistencyLevel, OperationTimedOut, WriteTimeout, WriteType
from tablestone.engines.cassandra import native_protocol
from tablestone.engines.cassandra.direct_requests import DirectRequest, DirectRequests

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NODE = "the node"


class Wire:
    """A connection of the driver: what was sent on it, and the callback of each stream."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.in_flight = 0
        self.request_ids = [5]
        self.orphaned_request_ids: set[int] = set()
        self.orphaned_threshold = 2
        self.orphaned_threshold_reached = False
        self.sent: list[bytes] = []
        self.defuncts: list[Exception] = []
        self.refuses: Exception | None = None
        self._requests: dict[int, Any] = {}

    def send_msg(
        self, message: Any, stream: int, cb: Any, encoder: Any, decoder: Any, result_metadata: Any
    ) -> None:
        if self.refuses is not None:
            raise self.refuses
        self._requests[stream] = (cb, decoder, result_metadata)
        self.sent.append(encoder(message, stream, 5, compressor=None))

    def defunct(self, error: Exception) -> None:
        self.defuncts.append(error)

    def answer(self, body: bytes) -> None:
        """As the driver's connection does with an answer of rows."""
        stream, (tell, decode, metadata) = self._requests.popitem()
        tell(decode(5, {}, stream, 0, native_protocol.RESULT, body, None, metadata))
        self.request_ids.append(stream)


class Pool:
    """The driver's pool of one connection to a node."""

    host = NODE
    is_shutdown = False

    def __init__(self, connection: Wire) -> None:
        self._connection = connection
        self.refuses: Exception | None = None

    def borrow_connection(self, timeout: float) -> tuple[Wire, int]:
        assert timeout == 0.0, "the event loop would wait"
        if self.refuses is not None:
            raise self.refuses
        self._connection.in_flight += 1
        return self._connection, self._connection.request_ids.pop()

    def return_connection(self, connection: Wire, *, stream_was_orphaned: bool = False) -> None:
        if not stream_was_orphaned:
            connection.in_flight -= 1


class Heard:
    """Notes the outcomes that a request was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def answered(self, rows: Sequence[Any], names: Sequence[str]) -> None:
        self.told.append((list(rows), list(names)))

    def failed(self, error: Exception) -> None:
        self.told.append(error)

    def forgotten(self) -> None:
        self.told.append("forgotten")


class Holding:
    """Knows one node, or none."""

    def __init__(self, node: str | None) -> None:
        self._node = node
        self.heard_of: list[str] = []

    def holder(self, keyspace: str, partition: bytes) -> str | None:
        assert (keyspace, partition) == ("tables", b"partition")
        return self._node

    def heard(self, host: str) -> None:
        self.heard_of.append(host)


def statement(query_id: bytes, *, key_kind: Any = BytesType) -> Any:
    columns = [SimpleNamespace(type=key_kind), SimpleNamespace(type=BytesType)]
    return SimpleNamespace(
        query_id=query_id,
        result_metadata_id=b"m",
        routing_key_indexes=[0],
        column_metadata=columns,
        result_metadata=[("tables", "rows", "value", BytesType)],
        consistency_level=ConsistencyLevel.SERIAL,
        serial_consistency_level=ConsistencyLevel.SERIAL,
    )


class Setting:
    def __init__(self, node: str | None = NODE) -> None:
        self.wire = Wire()
        self.pool = Pool(self.wire)
        session = SimpleNamespace(client_protocol_handler=ProtocolHandler, _pools={NODE: self.pool})
        self.holding = Holding(node)
        self.requests = DirectRequests(session, self.holding, "tables")
        self.heard = Heard()
        self.statement = statement(b"get")
        self.requests.learn(self.statement)

    def send(self, calls: int = 1) -> DirectRequest | None:
        call = (self.statement, (b"partition", b"row"))
        return self.requests.send([call] * calls, self.heard)


def is_at_rest(wire: Wire) -> bool:
    """Every stream can be used again."""
    return wire.in_flight == 0 and wire.request_ids == [5] and not wire._requests


ROW = bytes.fromhex("00000002 00000004 00000001 00000001 00000003") + b"one"


@pytest.mark.parametrize(("calls", "opcode"), [(1, 0x0A), (2, 0x0D)])
def test_an_answer_is_told(calls: int, opcode: int) -> None:
    setting = Setting()
    assert setting.send(calls) is not None
    assert [sent[4] for sent in setting.wire.sent] == [opcode]
    setting.wire.answer(ROW)
    assert setting.heard.told == [([(b"one",)], ["value"])]
    assert setting.holding.heard_of == [NODE]
    assert is_at_rest(setting.wire)


def test_an_answer_with_metadata_is_told_as_the_driver_reads_it() -> None:
    setting = Setting()
    setting.send()
    names = b"".join(
        len(name).to_bytes(2, "big") + name for name in (b"tables", b"rows", b"[applied]")
    )
    setting.wire.answer(
        bytes.fromhex("00000002 00000001 00000001")
        + names
        + bytes.fromhex("0004 00000001 00000001 01")
    )
    assert setting.heard.told == [([(True,)], ["[applied]"])]
    assert setting.holding.heard_of == [NODE]


def unavailable() -> Any:
    return UnavailableErrorMessage(
        0x1000,
        "Cannot achieve consistency level QUORUM",
        {"consistency": 4, "required_replicas": 2, "alive_replicas": 1},
    )


def write_timeout() -> Any:
    info = {"consistency": 8, "received_responses": 1, "required_responses": 2}
    return WriteTimeoutErrorMessage(
        0x1100, "Operation timed out", {**info, "write_type": WriteType.CAS}
    )


@pytest.mark.parametrize(
    ("message", "error", "is_of_the_node"),
    [
        (unavailable, cassandra.Unavailable, True),
        (write_timeout, WriteTimeout, True),
        (lambda: ConnectionShutdown("closed"), ConnectionShutdown, False),
        (lambda: ConnectionException("broken"), ConnectionException, False),
        (lambda: ValueError("not decoded"), ValueError, False),
    ],
)
def test_an_error_is_told_as_the_driver_would_raise_it(
    message: Callable[[], Any], error: type[Exception], *, is_of_the_node: bool
) -> None:
    setting = Setting()
    request = setting.send()
    assert request is not None
    request.answer(message())
    (told,) = setting.heard.told
    assert type(told) is error
    assert setting.holding.heard_of == [NODE] * is_of_the_node
    broken = error is ConnectionException
    assert [type(each) for each in setting.wire.defuncts] == [ConnectionException] * broken


def test_something_else_ends_the_connection() -> None:
    setting = Setting()
    request = setting.send()
    assert request is not None
    request.answer(object())
    assert isinstance(setting.heard.told[0], ConnectionException)
    assert setting.wire.defuncts == setting.heard.told


def test_a_statement_that_the_node_has_forgotten_was_not_carried_out() -> None:
    """The caller sends it by the driver, which prepares it again."""
    setting = Setting()
    request = setting.send()
    assert request is not None
    request.answer(PreparedQueryNotFound(0x2500, "Prepared query not found", b"get"))
    assert setting.heard.told == ["forgotten"]
    assert setting.holding.heard_of == [NODE]


def test_a_late_answer_finds_nobody_and_its_stream_is_not_used_before() -> None:
    setting = Setting()
    request = setting.send()
    assert request is not None
    request.time_out()
    (told,) = setting.heard.told
    assert isinstance(told, OperationTimedOut)
    assert told.last_host == NODE
    assert not setting.holding.heard_of
    assert setting.wire.orphaned_request_ids == {5}
    assert setting.wire.in_flight == 1  # until the answer comes
    assert not setting.wire.orphaned_threshold_reached
    assert not setting.wire.request_ids
    setting.wire.request_ids = [6]
    second = setting.send()
    assert second is not None
    second.time_out()
    assert setting.wire.orphaned_threshold_reached  # the driver replaces the connection


def refuse_in(place: str, error: Exception) -> Setting:
    setting = Setting()
    getattr(setting, place).refuses = error
    return setting


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(lambda: Setting(None), id="no node that holds the partition"),
        pytest.param(lambda: Setting("another node"), id="no pool of connections to it"),
        pytest.param(
            lambda: refuse_in("pool", NoConnectionsAvailable("all streams are in use")),
            id="no free stream",
        ),
        pytest.param(
            lambda: refuse_in("pool", ConnectionException("shut down")), id="no connection"
        ),
        pytest.param(lambda: refuse_in("wire", ConnectionShutdown("closed")), id="it is closed"),
        pytest.param(
            lambda: refuse_in("wire", ConnectionBusy("overloaded")), id="it is overloaded"
        ),
    ],
)
def test_nothing_is_sent_where_the_driver_has_other_means(setting: Callable[[], Setting]) -> None:
    made = setting()
    assert made.send() is None
    assert not made.wire.sent
    assert is_at_rest(made.wire)
    assert not made.heard.told


@pytest.mark.parametrize(
    "changed",
    [
        {"routing_key_indexes": None},
        {"routing_key_indexes": [0, 1]},
        {"column_metadata": [SimpleNamespace(type=UTF8Type), SimpleNamespace(type=Int32Type)]},
    ],
)
def test_a_statement_without_a_blob_as_its_partition_is_left_to_the_driver(
    changed: dict[str, Any],
) -> None:
    setting = Setting()
    other = SimpleNamespace(**{**vars(statement(b"other")), **changed})
    setting.requests.learn(other)
    assert setting.requests.send([(other, (b"partition", b"row"))], setting.heard) is None


def test_the_message_classes_are_the_driver_s() -> None:
    """`answer` tells them apart by these classes: a driver that answers with others is not known."""
    assert issubclass(
        ProtocolHandler.message_types_by_opcode[native_protocol.RESULT], ResultMessage
    )
