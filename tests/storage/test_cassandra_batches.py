"""Batches that the engine sizes itself: within a count and a length, even with the longest keys."""

from __future__ import annotations

import asyncio
import io
from random import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from tablestone import limits
from tablestone.engines.cassandra.checks import Examination, _examine_settings
from tablestone.engines.cassandra.connection import (
    BYTES_MAX,
    CALLS_MAX,
    UNLIMITED,
    Connection,
    pieces,
    size_of,
)
from tablestone.engines.contract import Key, StorageId, StoredRow, WriteTooLarge
from tablestone.model.keys import EntityKey, require_key_length
from tablestone.tables.storage_keys import TABLE_ID_LENGTH, entity_partition

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLE = bytes(TABLE_ID_LENGTH)
LONGEST_KEY = "\ufffd" * limits.KEY_LENGTH_MAX
"""Each of its UTF-16 units takes three bytes in an encoded key, and no unit takes more."""
LONGEST = entity_partition(TABLE, LONGEST_KEY)


def test_the_longest_key_is_allowed_and_a_longer_one_is_not() -> None:
    require_key_length(EntityKey(LONGEST_KEY, LONGEST_KEY))
    assert len(LONGEST) == 1 + TABLE_ID_LENGTH + 3 * limits.KEY_LENGTH_MAX


def call(length: int) -> Any:
    """A call with so many bytes in a batch."""
    return "a statement", (bytes(length - 25),)


@pytest.mark.parametrize(
    ("lengths", "counts"),
    [
        ([], []),
        ([100], [1]),
        ([100] * CALLS_MAX, [CALLS_MAX]),
        ([100] * (CALLS_MAX + 1), [CALLS_MAX, 1]),
        ([BYTES_MAX // 2] * 3, [2, 1]),
        ([BYTES_MAX // 2, BYTES_MAX // 2 + 1], [1, 1]),
        ([BYTES_MAX], [1]),
        ([100, BYTES_MAX + 1, 100], [1, 1, 1]),
        ([2 * BYTES_MAX] * 2, [1, 1]),
    ],
)
def test_calls_are_cut_into_pieces(lengths: list[int], counts: list[int]) -> None:
    calls = [call(length) for length in lengths]
    found = list(pieces(calls))
    assert [len(piece) for piece in found] == counts
    assert [each for piece in found for each in piece] == calls


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        (("blob",), (b"",)),
        (("blob", "blob"), (LONGEST, bytes(1 << 20))),
        (("bigint", "blob", "int", "blob"), (1 << 60, LONGEST, 7, None)),
    ],
)
def test_the_size_of_a_call_is_not_below_that_in_a_message(
    columns: Sequence[str], values: Sequence[Any]
) -> None:
    pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")
    from cassandra.protocol import BatchMessage  # noqa: PLC0415 - needs the driver
    from cassandra.query import BatchType  # noqa: PLC0415

    bound = [_value(column, value) for column, value in zip(columns, values, strict=True)]

    def length(count: int) -> int:
        body = io.BytesIO()
        BatchMessage(BatchType.UNLOGGED, [(True, bytes(16), bound)] * count, 4).send_body(body, 5)
        return len(body.getvalue())

    size = size_of((None, values))
    assert length(2) - length(1) <= size <= length(2) - length(1) + 8 * len(columns)


def _value(column: str, value: bytes | int | None) -> bytes | None:
    if isinstance(value, int):
        return value.to_bytes({"int": 4, "bigint": 8}[column], "big")
    return value


class Recorder:
    """A connection to a keyspace without a load, which records the batches."""

    keyspace = "k"
    chance = staticmethod(random)
    write_bytes_max = UNLIMITED
    require_takable = Connection.require_takable

    def __init__(self) -> None:
        self.batches: list[Sequence[Any]] = []
        tables = {self.keyspace: SimpleNamespace(tables={})}
        self.cluster = SimpleNamespace(
            refresh_schema_metadata=lambda: None, metadata=SimpleNamespace(keyspaces=tables)
        )

    def prepare(self, text: str, **_options: object) -> str:
        return text

    def define(self, _text: str) -> None:
        pass

    def execute(self, text: str, _parameters: object = ()) -> list[tuple[int]]:
        return [(0,)] if text.startswith("SELECT number FROM about") else []

    async def write(self, calls: Sequence[Any]) -> None:
        if "widest" not in calls[0][0]:
            self.batches.append(calls)


@pytest.mark.parametrize(
    ("count", "value"), [(300, b""), (300, bytes(2000)), (3, bytes(1 << 20)), (1000, b"")]
)
def test_a_load_of_the_longest_keys_is_sent_in_pieces(count: int, value: bytes) -> None:
    pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")
    from tablestone.engines.cassandra.loading import Load  # noqa: PLC0415 - needs the driver

    recorder = Recorder()
    load = Load(recorder, StorageId(b"source"))  # type: ignore[arg-type]

    async def enlist(partition: bytes, listed: int) -> int:
        assert (partition, listed) == (LONGEST, 0)
        return 7  # as if a leaf had taken over its neighbour

    load._directory.enlist = enlist  # type: ignore[method-assign]
    row_keys = [LONGEST[9:-3] + b"%04d" % number for number in range(count)]
    rows = [StoredRow(LONGEST, key, 7 + index, value) for index, key in enumerate(row_keys)]
    asyncio.run(load.write(rows))
    for batch in recorder.batches:
        assert len(batch) <= CALLS_MAX
        assert len(batch) == 1 or sum(map(size_of, batch)) <= BYTES_MAX
    state, *written = [each for batch in recorder.batches for each in batch]
    assert state[1] == (1, rows[-1].version, 7, LONGEST)
    assert [bound for _, bound in written] == [(*row, 1) for row in rows]


def test_a_load_names_the_row_that_the_nodes_do_not_take() -> None:
    from tablestone.engines.cassandra.loading import Load  # noqa: PLC0415 - needs the driver

    recorder = Recorder()
    recorder.write_bytes_max = 1 << 20
    load = Load(recorder, StorageId(b"source"))  # type: ignore[arg-type]

    async def enlist(partition: bytes, listed: int) -> int:
        assert (partition, listed) == (LONGEST, 0)
        return 7

    load._directory.enlist = enlist  # type: ignore[method-assign]
    rows = [StoredRow(LONGEST, b"%d" % size, 1, bytes(size)) for size in (7, 1 << 20, 9)]
    with pytest.raises(WriteTooLarge, match="the nodes of the cluster take 1,048,576") as caught:
        asyncio.run(load.write(rows))
    assert caught.value.key == Key(LONGEST, b"1048576")
    assert recorder.batches == []


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({}, 15 << 19),
        ({"commitlog_segment_size": "32MiB"}, 15 << 20),
        ({"max_mutation_size": "24MiB", "commitlog_segment_size": "32MiB"}, 45 << 19),
        ({"max_mutation_size": "24MiB", "native_transport_max_message_size": "8MiB"}, 15 << 19),
    ],
)
def test_the_settings_of_a_node_say_what_it_takes(
    settings: dict[str, str | None], most: int
) -> None:
    """15 parts of 16: nodes add their own to a write. The least of all nodes counts."""
    found = Examination()
    _examine_settings("Node n", settings, found)
    assert found.write_bytes_max == most
    _examine_settings("Node o", {"max_mutation_size": "64MiB"}, found)
    assert found.write_bytes_max == most
