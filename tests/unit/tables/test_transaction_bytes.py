"""What a transaction may store: decided by the last attempt, where an engine decides before the commit."""

import asyncio
from collections.abc import Mapping

import pytest

from tablestone.engines.change_record import Note
from tablestone.engines.contract import Conflict, Put, WriteSet, decide_updates
from tablestone.limits import OF_2_MIB
from tablestone.model.entity import Entity
from tablestone.model.entity_json import entity_renderer
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey, encode_key
from tablestone.model.operations import InsertOrMergeEntity
from tablestone.tables import storage_keys
from tablestone.tables.writes import commit_writes

MEBIBYTE = 1 << 20
ROWS = ("a", "b", "c")


class Asked(Exception):
    """The write set, instead of a commit."""


class Asking:
    """An engine that only shows what it is asked to commit."""

    def commit(self, write_set: WriteSet) -> None:
        raise Asked(write_set)


def stored(mebibytes: Mapping[str, float]) -> dict[bytes, tuple[int, bytes]]:
    """Entities with these MiB, as they are stored: six bytes a character."""
    found = {}
    for row, size in mebibytes.items():
        text = "\\u20ac" * int(size * MEBIBYTE / 6)
        found[encode_key(row)] = (7, entity_renderer(EntityKey("p", row), [f'"V":"{text}"'])(7))
    return found


@pytest.mark.parametrize(
    ("attempts", "is_refused"),
    [
        ([{"a": 5.3, "b": 5.3, "c": 5.3}], False),
        ([{"a": 5.3, "b": 5.3, "c": 5.5}], True),
        ([{"a": 5.3, "b": 5.3, "c": 5.5}, {"a": 1, "b": 5.3, "c": 5.5}], False),
        ([{"a": 1, "b": 5.3, "c": 5.5}, {"a": 5.9, "b": 5.3, "c": 1}], False),
    ],
    ids=["up to 16 MiB", "more", "smaller when tried again", "larger first, smaller last"],
)
def test_only_the_last_attempt_counts(
    attempts: list[dict[str, float]], *, is_refused: bool
) -> None:
    note = Note(bytes(storage_keys.TABLE_ID_LENGTH), b"")
    writes = [InsertOrMergeEntity("T", Entity(EntityKey("p", row), {"O": '"O":1'})) for row in ROWS]
    with pytest.raises(Asked) as asked:
        asyncio.run(commit_writes(Asking(), note, writes, OF_2_MIB))  # type: ignore[arg-type]
    write_set: WriteSet = asked.value.args[0]
    *_, decided = [decide_updates(write_set, stored(mebibytes)) for mebibytes in attempts]
    assert isinstance(decided, Conflict) == is_refused
    if isinstance(decided, Conflict):
        assert isinstance(decided.refused, StorageError)
        assert (decided.index, decided.refused.code) == (2, "RequestBodyTooLarge")
    else:
        assert all(isinstance(change.mutation, Put) for change in decided.changes)
