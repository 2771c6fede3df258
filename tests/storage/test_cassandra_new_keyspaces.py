"""Only a new keyspace can be loaded: a stand-in that knows the statements about one row of `about`."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

from tablestone.engines.cassandra.layout import LOADING, note_new, note_use, require_new
from tablestone.engines.cassandra.loading import TIMESTAMP, _begin
from tablestone.engines.contract import EngineRefused, Key, StorageId

SOURCE = StorageId(b"source")


class Keyspace:
    """A connection to a keyspace with the tables `about` and, during a load, `loading`."""

    keyspace = "k"

    def __init__(self) -> None:
        self.used: int | None = None
        self.load: tuple[Any, ...] | None = None
        self.changes = 0
        self._tables: dict[str, None] = {}
        keyspaces = {self.keyspace: SimpleNamespace(tables=self._tables)}
        self.cluster = SimpleNamespace(
            refresh_schema_metadata=lambda: None, metadata=SimpleNamespace(keyspaces=keyspaces)
        )

    def define(self, text: str) -> None:
        assert text.split()[:2] == ["CREATE", "TABLE"]
        self._tables[LOADING] = None

    def execute(self, text: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        words = text.split()
        if words[0] == "SELECT" and LOADING in words:
            return [] if self.load is None else [self.load]
        if words[0] == "SELECT":
            return [] if self.used is None else [(self.used,)]
        self.changes += 1
        if LOADING in words:
            assert values == (SOURCE, TIMESTAMP)
            self.load = (SOURCE, None, None)
        elif words[0] == "INSERT":
            assert text.endswith("IF NOT EXISTS")
            self.used = 0 if self.used is None else self.used
        elif self.used == 0:
            self.used = 1
        return []


def test_a_keyspace_is_new_until_something_opens_it_to_write() -> None:
    keyspace: Any = Keyspace()
    note_new(keyspace)
    require_new(keyspace)
    note_use(keyspace)
    with pytest.raises(EngineRefused, match="The keyspace k was used before, and its deletions"):
        require_new(keyspace)


def test_a_late_note_of_another_init_makes_no_keyspace_new_again() -> None:
    keyspace: Any = Keyspace()
    note_new(keyspace)
    note_use(keyspace)
    note_new(keyspace)
    with pytest.raises(EngineRefused):
        require_new(keyspace)


def test_a_server_notes_its_use_once() -> None:
    keyspace: Any = Keyspace()
    note_new(keyspace)
    for _ in range(3):
        note_use(keyspace)
    assert keyspace.changes == 2


def test_a_keyspace_without_the_note_may_have_been_used() -> None:
    keyspace: Any = Keyspace()
    note_use(keyspace)
    assert keyspace.changes == 0
    with pytest.raises(EngineRefused):
        require_new(keyspace)


def test_a_load_of_a_used_keyspace_changes_nothing() -> None:
    keyspace: Any = Keyspace()
    with pytest.raises(EngineRefused, match="was used before"):
        _begin(keyspace, SOURCE)
    assert (keyspace.load, keyspace.changes) == (None, 0)
    assert not keyspace.cluster.metadata.keyspaces["k"].tables


def test_a_load_is_continued_where_it_was() -> None:
    keyspace: Any = Keyspace()
    note_new(keyspace)
    assert _begin(keyspace, SOURCE) is None
    assert keyspace.load == (SOURCE, None, None)
    assert _begin(keyspace, SOURCE) is None
    keyspace.load = (SOURCE, b"p", b"r")
    assert _begin(keyspace, SOURCE) == Key(b"p", b"r")
