"""All operations of the service and their results, as frozen values that `wire` and `tables` exchange.

An operation is valid by construction: `wire` checked names, types and limits. Does not know HTTP, JSON or how an
operation is executed; `auth/permissions.py` has the permissions that each operation needs. Classes with an instance for
almost every request are named tuples, which are created faster than dataclasses.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tablestone.model.entity import Entity
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.filter_tree import FilterNode
from tablestone.model.keys import ContinuationToken, EntityKey, KeyBounds
from tablestone.model.service_properties import Changes, ServiceProperties

IF_MATCH_ANY: Final = -1
"""`If-Match: *`: the entity must exist, in any version."""

IfMatch = int
"""The condition of If-Match: `IF_MATCH_ANY`, or the version that the ETag names."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """A stored access policy. Times are in ticks. None: the signature itself has the value (auth 7)."""

    start: int | None
    expiry: int | None
    permission: str | None


@dataclass(frozen=True, slots=True)
class SignedIdentifier:
    """A stored access policy and its id, which signatures name. Without a policy, it revokes them (auth 3.9)."""

    id: str
    policy: AccessPolicy | None


@dataclass(frozen=True, slots=True)
class CreateTable:
    """The table keeps the case of this name."""

    table: str


@dataclass(frozen=True, slots=True)
class GetTable:
    table: str


@dataclass(frozen=True, slots=True)
class DeleteTable:
    table: str


@dataclass(frozen=True, slots=True)
class QueryTables:
    """List tables by name, from `next_table_name` on, inclusive."""

    filter: FilterNode | None
    top: int
    next_table_name: str | None


class Projection(NamedTuple):
    """`$select` (wire 5.6)."""

    names: tuple[str, ...] | None
    """In ordinal order after the system properties; None: all."""
    as_sent: str
    """The text as the answer repeats it."""


class ReadConditions(NamedTuple):
    """An entity that is read by its key must meet these; None is no condition."""

    filter: FilterNode | None
    if_match: IfMatch | None
    if_none_match: IfMatch | None


class GetEntity(NamedTuple):
    table: str
    key: EntityKey
    projection: Projection | None
    conditions: ReadConditions | None = None


class CountForm(enum.Enum):
    """What the answer to a count is that takes too long."""

    WHOLE = "whole"
    """An error."""
    PARTIAL = "partial"
    """The number so far, and the token to go on."""


@dataclass(frozen=True, slots=True)
class QueryEntities:
    """Read a page of entities in key order, from `token` on, and only those inside the bounds."""

    table: str
    filter: FilterNode | None
    top: int
    projection: Projection | None
    token: ContinuationToken | None
    bounds: KeyBounds | None = None
    counts_examined: bool = False
    """Count exactly how many entities are examined (`EntitiesPage.examined`)."""
    counts: CountForm | None = None
    """Count the entities, and read none."""
    reverse: bool = False
    """Read from the last key to the first; `token` is of such a query too."""


class InsertEntity(NamedTuple):
    """The entity must not exist yet."""

    table: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class UpdateEntity:
    """Replace the entity, which must exist and match the condition."""

    table: str
    entity: Entity
    if_match: IfMatch


@dataclass(frozen=True, slots=True)
class MergeEntity:
    """Set these properties of the entity, which must exist and match the condition; keep its other properties."""

    table: str
    entity: Entity
    if_match: IfMatch


@dataclass(frozen=True, slots=True)
class InsertOrReplaceEntity:
    table: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class InsertOrMergeEntity:
    """If the entity exists, set these properties and keep its other properties."""

    table: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class DeleteEntity:
    """The entity must exist and match the condition."""

    table: str
    key: EntityKey
    if_match: IfMatch


EntityWrite = (
    InsertEntity
    | UpdateEntity
    | MergeEntity
    | InsertOrReplaceEntity
    | InsertOrMergeEntity
    | DeleteEntity
)


@dataclass(frozen=True, slots=True)
class EntityGroupTransaction:
    """Writes to entities of one partition, each entity at most once. All are applied, or none (wire 7)."""

    table: str
    partition_key: str
    writes: Sequence[EntityWrite]


@dataclass(frozen=True, slots=True)
class GetTableAcl:
    table: str


@dataclass(frozen=True, slots=True)
class GetTableExpiry:
    """Read the policy of a table, which may have none if `or_none`; or a `count` of what one would hide."""

    table: str
    or_none: bool = False
    count: str | None = None


class ExpiryChange(enum.Enum):
    """What becomes of the present policy."""

    RESUME = enum.auto()
    SUSPEND = enum.auto()
    REMOVE = enum.auto()


@dataclass(frozen=True, slots=True)
class SetTableExpiry:
    """If it may hide entities, the table must be empty, or the token of a count says that this was counted."""

    table: str
    policy: ExpiryPolicy | ExpiryChange
    token: str | None = None


@dataclass(frozen=True, slots=True)
class CountTableExpiry:
    """Begin to count what a policy would hide."""

    table: str
    policy: ExpiryPolicy | ExpiryChange


@dataclass(frozen=True, slots=True)
class SetTableAcl:
    """Replace all stored access policies of the table."""

    table: str
    identifiers: tuple[SignedIdentifier, ...]


@dataclass(frozen=True, slots=True)
class GetServiceProperties:
    """Read the account's service properties."""


@dataclass(frozen=True, slots=True)
class SetServiceProperties:
    """Replace some of the account's service properties."""

    changes: Changes


@dataclass(frozen=True, slots=True)
class GetServiceStats:
    """Ask how far the secondary is behind the primary."""


@dataclass(frozen=True, slots=True)
class GetUserDelegationKey:
    """Issue a key for the caller to sign with, valid from `start` (None: now) to `expiry`, in ticks."""

    start: int | None
    expiry: int


class ChangeCursor(NamedTuple):
    """A position in a feed of changes: after the record of this number."""

    storage: bytes
    epoch: bytes
    number: int
    time: int
    """The time of that record in ticks; 0 if it was not known."""
    scope: bytes
    """The feed: the id of a table, or an account with its incarnation."""


class Since(enum.Enum):
    """The two ends of the kept changes."""

    OLDEST = "oldest"
    NOW = "now"


ChangesSince = ChangeCursor | int | Since
"""Where a feed begins: after a cursor, at a time (ticks), or at one of the ends."""


@dataclass(frozen=True, slots=True)
class ReadTableChanges:
    """Read the next changes of a table's entities within the bounds. If there are none, wait up to `wait_seconds`."""

    table: str
    since: ChangesSince
    wait_seconds: int = 0
    bounds: KeyBounds | None = None
    not_before: int = 0
    """Ticks: the start of the caller's signature, which does not show earlier changes."""


@dataclass(frozen=True, slots=True)
class ReadAccountChanges:
    since: ChangesSince
    wait_seconds: int = 0


@dataclass(frozen=True, slots=True)
class ListIndexes:
    """List the indexes of a table; `or_none`: it may have none, and the caller wants to know all about them."""

    table: str
    or_none: bool = False


@dataclass(frozen=True, slots=True)
class MakeIndex:
    table: str
    property: str
    within_partition: bool


@dataclass(frozen=True, slots=True)
class DropIndex:
    table: str
    property: str


Operation = (
    CreateTable
    | GetTable
    | DeleteTable
    | QueryTables
    | GetEntity
    | QueryEntities
    | EntityWrite
    | EntityGroupTransaction
    | GetTableAcl
    | ListIndexes
    | MakeIndex
    | DropIndex
    | GetTableExpiry
    | SetTableExpiry
    | CountTableExpiry
    | ReadTableChanges
    | ReadAccountChanges
    | SetTableAcl
    | GetServiceProperties
    | SetServiceProperties
    | GetServiceStats
    | GetUserDelegationKey
)


@dataclass(frozen=True, slots=True)
class TableFound:
    table: str
    created: bool
    """Whether this operation created it."""


@dataclass(frozen=True, slots=True)
class TablesPage:
    """Tables in the order of their names."""

    tables: Sequence[str]
    next_table: tuple[str, int] | None
    """The first table of the next page: its name, and when it was created (ticks)."""


class EntityFound(NamedTuple):
    """One entity in the form of `entity_json`."""

    stored: bytes


@dataclass(frozen=True, slots=True)
class EntitiesPage:
    """Entities in key order, in the form of `entity_json`."""

    stored: Sequence[bytes]
    token: ContinuationToken | None
    """None on the last page."""
    plan: str = field(default="", compare=False)
    """The plan of the query (`query.plan.PlanKind`)."""
    rows_read: int = field(default=0, compare=False)
    """The rows that were examined, including those that the engine left out."""
    examined: int = field(default=0, compare=False)
    """Of these, the entities that have not expired; only if the query counts them."""
    indexed: tuple[str, ...] = field(default=(), compare=False)
    """The properties whose indexes found them, if the plan is by index."""
    count: int = 0
    """The number of entities, if the query counts them; then none are `stored`."""

    @property
    def found(self) -> int:
        return self.count or len(self.stored)


EXAMINED_HEADER: Final = "x-tablestone-examined"
"""In a request, it asks how many entities are examined; in the answer, it says so."""


PARTIAL_HEADER: Final = "x-tablestone-partial"
"""In a count, it asks for the number so far, if counting takes too long."""


class EntityInserted(NamedTuple):
    render: Callable[[int], bytes]
    """Gives the stored text for a version, in the form of `entity_json`."""
    version: int


class EntityWritten(NamedTuple):
    """The result of an update, merge or upsert."""

    version: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The table or entity is deleted."""


WriteResult = EntityInserted | EntityWritten | Deleted


@dataclass(frozen=True, slots=True)
class TransactionCommitted:
    results: Sequence[WriteResult]
    """One for each operation, in order."""


@dataclass(frozen=True, slots=True)
class TableAclFound:
    identifiers: tuple[SignedIdentifier, ...]


class IndexFound(NamedTuple):
    property: str
    within_partition: bool
    state: str
    """Queries use the index if this is `ready`."""
    entities: int = 0
    """Entities that were read to make it."""
    waits: bool = False
    """Nobody makes or drops it just now."""
    empty: bool = False
    """It is ready, and no entity has the property."""
    automatic: bool = False
    """A server made it by itself."""


INDEXES_HEADER: Final = "x-tablestone-indexes"
"""Requests for indexes and expiry that are not today's bring this header. In the answer, whether an index can be made:
`ready`; `first`, which changes the format of the data directory for good; or `closed`, because it would."""


@dataclass(frozen=True, slots=True)
class IndexesFound:
    indexes: Sequence[IndexFound]
    can_make: str | None = None
    """The value of the header in the answer; None: the caller does not want to know."""
    keeps_changes: bool = False
    """The engine can keep a record of changes, whether it does or not."""


@dataclass(frozen=True, slots=True)
class TableExpiryFound:
    policy: ExpiryPolicy | None


@dataclass(frozen=True, slots=True)
class ExpiryCountFound:
    members: Mapping[str, Any]


TOKEN_HEADER: Final = "x-tablestone-token"  # noqa: S105 - the name of a header
"""The header with the token of a count."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The server carries it out beside requests."""

    count: str | None = None
    """What `GetExpiryCount` asks for."""


@dataclass(frozen=True, slots=True)
class ServicePropertiesFound:
    properties: ServiceProperties


@dataclass(frozen=True, slots=True)
class ServiceStats:
    last_sync: int
    """Ticks: the secondary has everything that was written before this."""


EntityChange = tuple[bytes, int, bytes | None, bytes | None]
"""An entity that a commit put or deleted: the RowKey, encoded (`model.keys`); the version that was stored or deleted;
the entity in the form of `entity_json`, None if deleted; and in the same form what a merge replaced, if known."""


class CommitFound(NamedTuple):
    """One commit in a feed: changed entities of one partition, or the creation or deletion of a table."""

    kind: str
    """`entities`, `expired`, `table-created` or `table-deleted`."""
    table: str
    """In the case of the table's creation."""
    number: int
    time: int
    partition_key: str = ""
    entities: Sequence[EntityChange] = ()


CURSOR_HEADER: Final = "x-tablestone-cursor"
"""The header with the cursor after everything that a page of changes has examined."""
MORE_HEADER: Final = "x-tablestone-more"
"""`true` if more changes follow the cursor, even if the page has no lines."""


@dataclass(frozen=True, slots=True)
class ChangesFound:
    commits: Sequence[CommitFound]
    """In order."""
    cursor: ChangeCursor
    """Where to go on."""
    has_more: bool
    """Whether there was more after the cursor."""


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The policies or service properties are replaced."""


@dataclass(frozen=True, slots=True)
class UserDelegationKey:
    """A user's key to sign with. Signatures repeat these texts exactly."""

    object_id: str
    tenant_id: str
    start: str
    expiry: str
    service: str
    version: str
    value: bytes = field(repr=False)


Result = (
    TableFound
    | TablesPage
    | EntityFound
    | EntitiesPage
    | WriteResult
    | TransactionCommitted
    | TableAclFound
    | IndexesFound
    | TableExpiryFound
    | ExpiryCountFound
    | Accepted
    | ServicePropertiesFound
    | ServiceStats
    | SettingsChanged
    | UserDelegationKey
    | ChangesFound
)


def entity_key(write: EntityWrite) -> EntityKey:
    return write.key if isinstance(write, DeleteEntity) else write.entity.key
