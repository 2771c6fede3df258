"""All operations of the service and all results, as frozen values: `wire` and `tables` exchange them.

An operation is valid by construction: `wire` checked names, types and limits. Does not know HTTP, JSON or how an
operation is executed; the permissions that each operation needs are in `auth/permissions.py`. Classes with an instance
for almost every request are named tuples, which are created faster than dataclasses.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

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
    """The values of a stored access policy, times in ticks; None means that the signature gives the value (auth 7)."""

    start: int | None
    expiry: int | None
    permission: str | None


@dataclass(frozen=True, slots=True)
class SignedIdentifier:
    """A stored access policy and its id, which signatures name. Without a policy it only revokes them (auth 3.9)."""

    id: str
    policy: AccessPolicy | None


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create a table; its name keeps the case that is given here."""

    table: str


@dataclass(frozen=True, slots=True)
class GetTable:
    """Ask whether a table exists."""

    table: str


@dataclass(frozen=True, slots=True)
class DeleteTable:
    """Delete a table with all its entities."""

    table: str


@dataclass(frozen=True, slots=True)
class QueryTables:
    """List tables by name, beginning at `next_table_name`, inclusive."""

    filter: FilterNode | None
    top: int
    next_table_name: str | None


class Projection(NamedTuple):
    """The properties in `$select` in ordinal order, None for all; and its text as the answer repeats it (wire 5.6)."""

    names: tuple[str, ...] | None
    as_sent: str


class ReadConditions(NamedTuple):
    """What an entity must meet to be read by its key; None is no condition."""

    filter: FilterNode | None
    if_match: IfMatch | None
    if_none_match: IfMatch | None


class GetEntity(NamedTuple):
    """Read one entity by its key, if it meets the conditions."""

    table: str
    key: EntityKey
    projection: Projection | None
    conditions: ReadConditions | None = None


@dataclass(frozen=True, slots=True)
class QueryEntities:
    """Read entities in key order, one page at a time, and only those inside the bounds."""

    table: str
    filter: FilterNode | None
    top: int
    projection: Projection | None
    token: ContinuationToken | None
    bounds: KeyBounds | None = None


class InsertEntity(NamedTuple):
    """Write an entity that must not exist yet."""

    table: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class UpdateEntity:
    """Replace an entity that must exist and match the condition."""

    table: str
    entity: Entity
    if_match: IfMatch


@dataclass(frozen=True, slots=True)
class MergeEntity:
    """Set the given properties of an entity that must exist and match the condition; keep its other properties."""

    table: str
    entity: Entity
    if_match: IfMatch


@dataclass(frozen=True, slots=True)
class InsertOrReplaceEntity:
    """Write an entity; replace it if it exists."""

    table: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class InsertOrMergeEntity:
    """Write an entity; if it exists, set only the given properties."""

    table: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class DeleteEntity:
    """Delete an entity that must exist and match the condition."""

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
    """Writes to entities of one partition, each entity at most once. All of them are applied, or none (wire 7)."""

    table: str
    partition_key: str
    writes: Sequence[EntityWrite]


@dataclass(frozen=True, slots=True)
class GetTableAcl:
    """Read the stored access policies of a table."""

    table: str


@dataclass(frozen=True, slots=True)
class GetTableExpiry:
    """Read the policy by which the table's entities expire."""

    table: str


@dataclass(frozen=True, slots=True)
class SetTableExpiry:
    """Give a table that holds no entity the policy by which its entities are to expire."""

    table: str
    policy: ExpiryPolicy


@dataclass(frozen=True, slots=True)
class SetTableAcl:
    """Replace all stored access policies of a table."""

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
    """Issue a key with which the caller signs as a user, valid from `start` (None: now) to `expiry`, in ticks."""

    start: int | None
    expiry: int


class ChangeCursor(NamedTuple):
    """A place in a feed of changes: after the record of this number."""

    storage: bytes
    epoch: bytes
    number: int
    time: int
    """The time of that record in ticks; 0 if it was not known."""
    scope: bytes
    """What the feed is of: the id of a table, or an account with its incarnation."""


class Since(enum.Enum):
    """The two ends of what is kept."""

    OLDEST = "oldest"
    NOW = "now"


ChangesSince = ChangeCursor | int | Since
"""Where a feed begins: after a cursor, at a time (ticks), or at one of the ends."""


@dataclass(frozen=True, slots=True)
class ReadTableChanges:
    """Read the next changes of a table's entities, those within the bounds; wait for some, up to `wait_seconds`."""

    table: str
    since: ChangesSince
    wait_seconds: int = 0
    bounds: KeyBounds | None = None
    not_before: int = 0
    """Ticks: the start of the caller's signature. Earlier changes are not shown to it."""


@dataclass(frozen=True, slots=True)
class ReadAccountChanges:
    """Read the next changes of all tables of the account."""

    since: ChangesSince
    wait_seconds: int = 0


@dataclass(frozen=True, slots=True)
class ListIndexes:
    """Ask for the indexes of a table that has some."""

    table: str


ServiceOperation = (
    GetTableAcl
    | ListIndexes
    | GetTableExpiry
    | SetTableExpiry
    | ReadTableChanges
    | ReadAccountChanges
    | SetTableAcl
    | GetServiceProperties
    | SetServiceProperties
    | GetServiceStats
    | GetUserDelegationKey
)
"""The operations whose requests and answers are XML."""

Operation = (
    CreateTable
    | GetTable
    | DeleteTable
    | QueryTables
    | GetEntity
    | QueryEntities
    | EntityWrite
    | EntityGroupTransaction
    | ServiceOperation
)


@dataclass(frozen=True, slots=True)
class TableFound:
    """A table that exists; `created` if this operation created it."""

    table: str
    created: bool


@dataclass(frozen=True, slots=True)
class TablesPage:
    """Tables in name order, and the first table of the next page: its name and its time of creation (ticks)."""

    tables: Sequence[str]
    next_table: tuple[str, int] | None


class EntityFound(NamedTuple):
    """One entity in the form of `entity_json`."""

    stored: bytes


@dataclass(frozen=True, slots=True)
class EntitiesPage:
    """Entities in key order in the form of `entity_json`, and the continuation token, if there is a next page.

    `plan` names the plan of the query (`query.plan.PlanKind`); `rows_read` is the number of rows that were examined for
    it, also by the engine alone.
    """

    stored: Sequence[bytes]
    token: ContinuationToken | None
    plan: str = field(default="", compare=False)
    rows_read: int = field(default=0, compare=False)


class EntityInserted(NamedTuple):
    """An entity as it was stored: a function that gives its text in the form of `entity_json`, and its version."""

    render: Callable[[int], bytes]
    version: int


class EntityWritten(NamedTuple):
    """The version of the entity after an update, merge or upsert."""

    version: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The table or entity is deleted."""


WriteResult = EntityInserted | EntityWritten | Deleted


@dataclass(frozen=True, slots=True)
class TransactionCommitted:
    """One result for each operation of an entity group transaction, in order."""

    results: Sequence[WriteResult]


@dataclass(frozen=True, slots=True)
class TableAclFound:
    """The stored access policies of a table."""

    identifiers: tuple[SignedIdentifier, ...]


class IndexFound(NamedTuple):
    """An index of a table. Queries use it if its state is `ready`."""

    property: str
    within_partition: bool
    state: str


@dataclass(frozen=True, slots=True)
class IndexesFound:
    """The indexes of a table."""

    indexes: Sequence[IndexFound]


@dataclass(frozen=True, slots=True)
class TableExpiryFound:
    """The policy by which a table's entities expire."""

    policy: ExpiryPolicy


@dataclass(frozen=True, slots=True)
class ServicePropertiesFound:
    """The account's service properties."""

    properties: ServiceProperties


@dataclass(frozen=True, slots=True)
class ServiceStats:
    """The moment (ticks) up to which the secondary has everything that was written."""

    last_sync: int


EntityChange = tuple[bytes, int, bytes | None, bytes | None]
"""An entity that a commit put or deleted: the RowKey, encoded (`model.keys`); the version that was stored, or deleted;
the entity in the form of `entity_json`, None if it was deleted; what a merge replaced, in the same form, if known."""


class CommitFound(NamedTuple):
    """One commit in a feed: changes of entities of one partition, or the creation or deletion of a table."""

    kind: str
    """`entities`, `expired`, `table-created` or `table-deleted`."""
    table: str
    """The name as the table was created."""
    number: int
    time: int
    partition_key: str = ""
    entities: Sequence[EntityChange] = ()


@dataclass(frozen=True, slots=True)
class ChangesFound:
    """Some commits in order, and the cursor from which to go on. `has_more` says whether there was more after it."""

    commits: Sequence[CommitFound]
    cursor: ChangeCursor
    has_more: bool


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The policies or service properties are replaced."""


@dataclass(frozen=True, slots=True)
class UserDelegationKey:
    """A user delegation key: its user, its validity and its bytes. Signatures contain the texts exactly as here."""

    object_id: str
    tenant_id: str
    start: str
    expiry: str
    service: str
    version: str
    value: bytes = field(repr=False)


ServiceResult = (
    TableAclFound
    | IndexesFound
    | TableExpiryFound
    | ServicePropertiesFound
    | ServiceStats
    | SettingsChanged
    | UserDelegationKey
    | ChangesFound
)

Result = (
    TableFound
    | TablesPage
    | EntityFound
    | EntitiesPage
    | WriteResult
    | TransactionCommitted
    | ServiceResult
)


def entity_key(write: EntityWrite) -> EntityKey:
    return write.key if isinstance(write, DeleteEntity) else write.entity.key
