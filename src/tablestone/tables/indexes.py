"""The indexes of a table: what is stored of them with the table, and the entries of its entities.

An entity that has the property has one entry. From the commit that stores the index on, entries are written in the
commit of their entity. An index has an entry too, for its state, which is written in the commit of that state. Storage
that came without entries has none, so no query uses its indexes. docs/decisions/0020-indexes.md has the reasons.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from tablestone.engines.contract import Entry, Snapshot
from tablestone.model.entity_json import read_raw, typed_property
from tablestone.model.keys import encode_key
from tablestone.query.index_plan import index_key_of

MEMBER: Final = "indexes"
"""The member of a table's row that has its indexes."""
LAST_MEMBER: Final = "lastIndex"
"""The member with the newest number. Numbers are not used again: late work on a dropped index touches no other one."""
FORBIDDEN: Final = "noAutomaticIndex"
"""The member with the properties on which the server makes no index by itself, each with the ticks until when; 0: for
ever."""
NUMBER_BYTES: Final = 4


class IndexState(enum.Enum):
    """How far an index is. Entries are kept in each state; queries use an index that is ready."""

    BUILDING = "building"
    READY = "ready"
    BROKEN = "broken"
    """Entries may be missing: storage lost them, or came without them."""
    DROPPING = "dropping"
    """Its entries are being removed; no new ones are written."""


class Automatic(NamedTuple):
    """What a server knows of an index that it made by itself, stored hourly. Time without a server does not count."""

    scanned: int
    """Entities that a query examined without the index."""
    idle: int = 0
    """Hours since its last use."""
    hours: int = 0
    """Hours of the present day of running, and what happened in them: entries written, examined entities saved."""
    wrote: int = 0
    saved: int = 0


@dataclass(frozen=True, slots=True)
class Index:
    """An index on one property. `number` is part of its entries; no other index of the table ever has it."""

    property: str
    number: int
    within_partition: bool
    """Each partition has an order of its own: the index serves queries of one partition."""
    state: IndexState
    claim: tuple[str, int] | None = None
    """The process that builds or drops it, and until when (ticks) no other one does."""
    reached: tuple[str, str] | None = None
    """The key that a build has reached: the entities before it have their entries."""
    entities: int = 0
    """Entities that were read for it."""
    automatic: Automatic | None = None
    """The server made it by itself; None: a user did, or has adopted it."""

    def to_json(self) -> dict[str, Any]:
        """What is stored; `read_indexes` reads it."""
        found = {
            "property": self.property,
            "number": self.number,
            "partition": self.within_partition,
            "state": self.state.value,
            "claim": self.claim,
            "reached": self.reached and list(self.reached),
            "entities": self.entities,
            "automatic": self.automatic and list(self.automatic),
        }
        return {name: value for name, value in found.items() if value}


def read_indexes(members: Mapping[str, Any]) -> tuple[Index, ...]:
    """The indexes by the members of a table's row."""
    return tuple(
        Index(
            raw["property"],
            raw["number"],
            raw.get("partition", False),
            IndexState(raw["state"]),
            tuple(raw["claim"]) if "claim" in raw else None,
            tuple(raw["reached"]) if "reached" in raw else None,
            raw.get("entities", 0),
            Automatic(*raw["automatic"]) if "automatic" in raw else None,
        )
        for raw in members.get(MEMBER, ())
    )


# An entry of an index begins with the id of its table and its number. Then follows the state of the index, or the
# index key of an entity; within a partition, the partition comes before the index key.
_STATE: Final = b"\0"
INDEX_KEY: Final = b"\1"


def index_head(table_id: bytes, number: int) -> bytes:
    """The prefix of all entries of an index."""
    return table_id + number.to_bytes(NUMBER_BYTES, "big")


def index_keys_head(table_id: bytes, index: Index, partition_key: bytes) -> bytes:
    """The prefix of the entries of entities, before their index keys. `partition_key` is encoded."""
    head = index_head(table_id, index.number) + INDEX_KEY
    return _within(head, partition_key) if index.within_partition else head


def _within(head: bytes, partition_key: bytes) -> bytes:
    return head + len(partition_key).to_bytes(2, "big") + partition_key


def all_entries(prefix: bytes) -> tuple[Entry, Entry]:
    """The first entry that may begin with the prefix, and the first one after all of those."""
    return Entry(prefix, b"", b""), Entry(prefix + b"\xff" * 8, b"", b"")


def state_entry(table_id: bytes, number: int, state: IndexState) -> bytes:
    """The entry that the row of a table has for an index in this state."""
    return index_head(table_id, number) + _STATE + state.value.encode("ascii")


async def has_state_entry(snapshot: Snapshot, table_id: bytes, index: Index) -> bool:
    """Whether the index has the entry of its state: a catalog may have come without its entries."""
    entry = all_entries(state_entry(table_id, index.number, index.state))
    return bool(await snapshot.entries(*entry, entries_max=1))


def states_of(stored: bytes) -> list[bytes]:
    """The entries of a row of a catalog: the states of a table's indexes (`WriteSet.entries_of`)."""
    raw = orjson.loads(stored or b"{}")  # a mark of a change under a lease is empty
    if MEMBER not in raw:
        return []
    table_id = bytes.fromhex(raw["id"])
    return [state_entry(table_id, index.number, index.state) for index in read_indexes(raw)]


EntriesOf = Callable[[bytes], Sequence[bytes]]


def entries_function(table_id: bytes, indexes: Sequence[Index]) -> EntriesOf | None:
    """The function that gives the entries of a stored entity; None if there are no indexes to write."""
    heads = [
        (index.property, index.within_partition, index_head(table_id, index.number) + INDEX_KEY)
        for index in indexes
        if index.state is not IndexState.DROPPING
    ]
    if not indexes:
        return None

    def entries_of(stored: bytes) -> list[bytes]:
        raw = read_raw(stored)
        entries: list[bytes] = []
        for name, within_partition, head in heads:
            value = typed_property(raw, name)
            if value is None:
                continue
            if within_partition:
                head = _within(head, encode_key(raw["PartitionKey"]))  # noqa: PLW2901
            entries.append(head + index_key_of(value))
        return entries

    return entries_of
