"""The bytes that are sent to a node directly, beside those that the driver makes of the same requests."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from cassandra.cqltypes import BytesType, Int32Type, LongType
from cassandra.protocol import BatchMessage, ExecuteMessage, ProtocolHandler
from cassandra.query import BatchType
from cassandra.segment import SegmentCodec

from cassandra import ConsistencyLevel, ProtocolVersion
from tablestone.engines.cassandra import native_protocol
from tablestone.engines.cassandra.native_protocol import PreparedBytes, plain_rows
from tablestone.engines.cassandra.segments import (
    PAYLOAD_MAX,
    Damaged,
    Received,
    segments,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: dict[str, tuple[Any, Any, Any]] = {
    "blob": (BytesType, native_protocol.blob, bytes),
    "int": (Int32Type, native_protocol.integer, native_protocol.of_integer),
    "bigint": (LongType, native_protocol.long_integer, native_protocol.of_integer),
}
"""The types of columns whose values are written and read here: the driver's, and ours for both ways."""

VALUES = {
    "blob": st.binary(max_size=40),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
}
BOUND = st.lists(
    st.sampled_from(sorted(KINDS)).flatmap(
        lambda kind: st.tuples(st.just(kind), st.none() | VALUES[kind])
    ),
    min_size=1,
    max_size=6,
)
QUERY_ID, METADATA_ID = bytes(range(16)), bytes(range(16, 32))
FLAGS = 9 + (2 + 16) + (2 + 16) + 2 + 3
"""Where EXECUTE has its flags: after the header, the two ids, and the consistency; the last of four bytes."""


def prepared(bound: Sequence[tuple[str, Any]], consistency: int, *, knows: bool) -> PreparedBytes:
    return PreparedBytes(
        QUERY_ID,
        METADATA_ID,
        [KINDS[kind][1] for kind, _ in bound],
        consistency,
        ConsistencyLevel.SERIAL,
        knows_metadata=knows,
    )


def serialized(bound: Sequence[tuple[str, Any]]) -> list[bytes | None]:
    return [
        None if value is None else KINDS[kind][0].serialize(value, ProtocolVersion.V5)
        for kind, value in bound
    ]


def envelope_of_driver(message: Any, stream: int) -> bytes:
    made: bytes = ProtocolHandler.encode_message(
        message, stream, ProtocolVersion.V5, None, allow_beta_protocol_version=False
    )
    return made


@given(
    bound=BOUND,
    consistency=st.sampled_from([ConsistencyLevel.SERIAL, ConsistencyLevel.QUORUM]),
    stream=st.integers(0, 2**15 - 1),
    knows=st.booleans(),
)
def test_a_statement_is_the_driver_s_own_without_a_time_of_writing(
    bound: list[tuple[str, Any]], consistency: int, stream: int, *, knows: bool
) -> None:
    theirs = ExecuteMessage(
        QUERY_ID,
        serialized(bound),
        consistency,
        ConsistencyLevel.SERIAL,
        result_metadata_id=METADATA_ID,
    )
    body = prepared(bound, consistency, knows=knows).execute([value for _, value in bound])
    ours = native_protocol.envelope(stream, native_protocol.EXECUTE, body)
    expected = bytearray(envelope_of_driver(theirs, stream))
    if knows:  # the driver never asks for an answer without metadata
        expected[FLAGS] |= 0x02
    assert ours == expected


@given(st.lists(BOUND, min_size=1, max_size=5), st.integers(0, 2**15 - 1))
def test_a_batch_is_the_driver_s_own_without_a_time_of_writing(
    calls: list[list[tuple[str, Any]]], stream: int
) -> None:
    theirs = BatchMessage(
        BatchType.UNLOGGED,
        [(True, QUERY_ID, serialized(bound)) for bound in calls],
        ConsistencyLevel.QUORUM,
        ConsistencyLevel.SERIAL,
    )
    statements = [
        (
            prepared(bound, ConsistencyLevel.QUORUM, knows=False),
            [value for _, value in bound],
        )
        for bound in calls
    ]
    body = statements[0][0].batch(statements)
    ours = native_protocol.envelope(stream, native_protocol.BATCH, body)
    assert ours == envelope_of_driver(theirs, stream)


def answer_of_rows(rows: Sequence[Sequence[bytes | None]], columns: int, flags: int) -> bytes:
    """Section 4.2.5.2 of the specification: kind, flags, the number of columns, that of rows, values."""
    parts = [2, flags, columns, len(rows)]
    header = b"".join(part.to_bytes(4, "big") for part in parts)
    values = [value for row in rows for value in row]
    return header + b"".join(
        b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value
        for value in values
    )


@given(st.data(), st.sampled_from([4, 5]))
def test_a_few_rows_are_what_the_driver_reads(data: st.DataObject, flags: int) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    values = st.tuples(*(st.none() | VALUES[kind] for kind in kinds))
    rows = data.draw(st.lists(values, max_size=native_protocol.PLAIN_ROWS_MAX))
    written = [serialized(list(zip(kinds, row, strict=True))) for row in rows]
    body = answer_of_rows(written, len(kinds), flags)
    metadata = [("keyspace", "rows", f"c{n}", KINDS[kind][0]) for n, kind in enumerate(kinds)]
    theirs = ProtocolHandler.decode_message(
        ProtocolVersion.V5, {}, 1, 0, native_protocol.RESULT, body, None, metadata
    )
    assert plain_rows(body, [KINDS[kind][2] for kind in kinds]) == theirs.parsed_rows == rows


@pytest.mark.parametrize(
    ("why", "body"),
    [
        ("metadata", answer_of_rows([[b"x"]], 1, 0)),
        ("more pages", answer_of_rows([[b"x"]], 1, 6)),
        ("metadata that has changed", answer_of_rows([[b"x"]], 1, 8)),
        ("other columns", answer_of_rows([[b"x", b"y"]], 2, 4)),
        ("many rows", answer_of_rows([[b"x"]] * (native_protocol.PLAIN_ROWS_MAX + 1), 1, 4)),
        ("no rows at all", (1).to_bytes(4, "big")),
    ],
)
def test_other_answers_are_left_to_the_driver(why: str, body: bytes) -> None:
    assert plain_rows(body, [bytes]) is None, why


@pytest.mark.parametrize("length", [9, 10, 1000, PAYLOAD_MAX, PAYLOAD_MAX + 1, 3 * PAYLOAD_MAX + 5])
def test_segments_are_the_driver_s_own(length: int) -> None:
    body = bytes(number * 7 & 0xFF for number in range(length - 9))
    envelope = native_protocol.envelope(7, native_protocol.BATCH, body)
    theirs = io.BytesIO()
    SegmentCodec().encode(theirs, envelope)
    assert segments(envelope) == theirs.getvalue()


ANSWERS = st.lists(
    st.tuples(st.integers(0, 2**15 - 1), st.binary(max_size=60) | st.just(bytes(2 * PAYLOAD_MAX))),
    min_size=1,
    max_size=4,
)


@given(
    answers=ANSWERS,
    cuts=st.lists(st.integers(1, 3 * PAYLOAD_MAX), max_size=12),
    together=st.booleans(),
)
def test_answers_are_read_however_they_are_cut(
    answers: list[tuple[int, bytes]], cuts: list[int], *, together: bool
) -> None:
    envelopes = [native_protocol.envelope(stream, 8, body) for stream, body in answers]
    if together and sum(map(len, envelopes)) <= PAYLOAD_MAX:
        sent = segments(b"".join(envelopes))
    else:
        sent = b"".join(map(segments, envelopes))
    received, found, place = Received(), [], 0
    for cut in [*cuts, len(sent)]:
        chunk, place = sent[place : place + cut], place + cut
        # In the middle of it all the driver's thread takes the socket back, and gives it away again.
        received = Received(received.unread, received.part)
        found += [(each.stream, each.opcode, body) for each, body in received.take(chunk)]
    assert found == [(stream, 8, body) for stream, body in answers]
    assert (received.unread, received.part) == (b"", b"")


@given(st.integers(0, 8 * 79 - 1))
def test_no_flipped_bit_is_read(bit: int) -> None:
    """A wrong length may also wait for more bytes: nothing of them is read before the sums are right."""
    whole = native_protocol.envelope(3, 8, bytes(60))
    sent = bytearray(segments(whole))
    assert len(sent) == 79
    sent[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Damaged):
        list(Received().take(bytes(sent)))
