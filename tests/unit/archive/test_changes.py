"""What a turn writes: all records of meanwhile, in objects of some bytes, read in short pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tablestone.archive import archiver
from tablestone.archive.objects import Kind, parse_name, read_object, read_records
from unit.archive.archived_server import ArchivedServer, restored
from unit.archive.stores import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio
ROW_BYTES = 1_000


@pytest.mark.parametrize(
    ("object_bytes", "read_bytes", "objects"),
    [
        (1 << 20, 1 << 20, 1),
        (1 << 20, 5 * ROW_BYTES, 1),  # several pieces
        (1 << 20, 1, 1),  # each record is a piece
        (10 * ROW_BYTES, 3 * ROW_BYTES, 4),  # the last piece of an object is shorter
        (1, 1, 40),
    ],
)
async def test_objects_hold_all_records_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    object_bytes: int,
    read_bytes: int,
    objects: int,
) -> None:
    monkeypatch.setattr(archiver, "OBJECT_BYTES", object_bytes)
    monkeypatch.setattr(archiver, "READ_BYTES", read_bytes)
    store = MemoryStore()
    server = ArchivedServer(tmp_path / "data", store)
    await server.catch_up()
    before = set(store.objects)
    first = server.last + 1
    for number in range(40):
        await server.commit(b"p", {b"r%d" % (number % 7): b"%d" % number + b"v" * ROW_BYTES})
    read, real = [], server.source.records

    def records(after: int, last: int | None, bytes_max: int) -> object:
        found = real(after, last, bytes_max)
        read.append(len(found))
        return found

    monkeypatch.setattr(server.source, "records", records)
    await server.turn()
    written = sorted(set(store.objects) - before)
    names = [name for each in written if (name := parse_name(each)) and name.kind is Kind.CHANGES]
    found = [
        record
        for name in names
        for record in read_records(read_object(name, store.objects[str(name)][0]).body)
    ]
    assert len(names) == objects
    assert found == real(first - 1, None, 1 << 30)
    assert (names[0].first, names[-1].last) == (first, server.last)
    # A piece ends with the record that reaches its bytes.
    assert max(read) <= read_bytes // ROW_BYTES + 1
    assert await restored(store, server.life) == (server.last, server.rows())
    await server.close()
