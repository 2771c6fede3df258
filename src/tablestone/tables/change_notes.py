"""The note of a commit in the record of changes: its kind, its account and its table, by ids and not by names.

A name may be used again: a put can be committed after its table was deleted, even after a table of the same name was
made. So readers go by ids, and show nothing that comes after the deletion of its id. Knows no feed (`changes`).
"""

import enum
import functools
from typing import Final, NamedTuple

import orjson

from tablestone.engines.change_record import Note


class CommitKind(enum.Enum):
    """The kind of a commit. The value is stored in records, so it never changes."""

    ENTITIES = "entities"
    EXPIRED = "expired"
    """Entities that the sweeper deleted."""
    TABLE_CREATED = "table-created"
    TABLE_DELETED = "table-deleted"
    SETTINGS = "settings"
    """Accounts, policies, roles and the like: in the record, for a replica, and in no feed."""


OF_ENTITIES: Final = (CommitKind.ENTITIES, CommitKind.EXPIRED)


class About(NamedTuple):
    """What a note says."""

    kind: CommitKind
    account: str = ""
    incarnation: int | None = None
    table: str = ""
    """The name as the table was created."""
    table_id: bytes = b""


@functools.lru_cache(maxsize=4096)
def note_of(about: About) -> Note:
    """The note of a commit to a table, or of the table itself."""
    kind, account, incarnation, table, table_id = about
    text = orjson.dumps((kind.value, account, incarnation, table, table_id.hex()))
    if kind in OF_ENTITIES:
        return Note(table_id, text)
    is_deletion = kind is CommitKind.TABLE_DELETED
    return Note(deletion_subject(table_id) if is_deletion else b"+" + table_id, text)


SETTINGS_NOTE: Final = note_of(About(CommitKind.SETTINGS))


def deletion_subject(table_id: bytes) -> bytes:
    """The subject of the one record that says that a table was deleted."""
    return b"-" + table_id


@functools.lru_cache(maxsize=4096)
def read_about(text: bytes) -> About:
    kind, account, incarnation, table, table_id = orjson.loads(text)
    return About(CommitKind(kind), account, incarnation, table, bytes.fromhex(table_id))
