"""Every operation of the service as a value, and every result: what passes between the wire and the tables.

An operation is legal by construction: names, types and limits were checked where its bytes were read. Does not know
HTTP or JSON, nor how an operation is carried out; what each needs of a caller stands in `auth/permissions.py`. What is
made for almost every request is a named tuple, which is made quicker than a dataclass; all are told apart by class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tablestone.entity import ContinuationToken, Entity, EntityKey, KeyBounds
from tablestone.query.filter_tree import FilterNode
from tablestone.service_properties import Changes, ServiceProperties

IF_MATCH_ANY: Final = -1
"""`If-Match: *`: the entity must be there, whatever its version."""

IfMatch = int
"""`IF_MATCH_ANY`, or the version that the ETag in If-Match names."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What a stored access policy says; None: it leaves that to the signature (auth 7). Times are in ticks."""

    start: int | None
    expiry: int | None
    permission: str | None


@dataclass(frozen=True, slots=True)
class SignedIdentifier:
    """A stored access policy under the id by which signatures name it; without a policy it only revokes (auth 3.9)."""

    id: str
    policy: AccessPolicy | None


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create a table; the name keeps the case given here."""

    table: str


@dataclass(frozen=True, slots=True)
class GetTable:
    """Is there a table of this name?"""

    table: str


@dataclass(frozen=True, slots=True)
class DeleteTable:
    """Delete a table with all its entities."""

    table: str


@dataclass(frozen=True, slots=True)
class QueryTables:
    """List tables by name. `next_table_name` is where to begin, inclusive."""

    filter: FilterNode | None
    top: int
    next_table_name: str | None


class Projection(NamedTuple):
    """What `$select` asks for: these properties, or all (None), and its text as the answer repeats it (wire 5.6)."""

    names: tuple[str, ...] | None
    as_sent: str


class GetEntity(NamedTuple):
    """Read one entity by its key, if it meets the conditions."""

    table: str
    key: EntityKey
    projection: Projection | None
    if_match: IfMatch | None = None
    if_none_match: IfMatch | None = None


@dataclass(frozen=True, slots=True)
class QueryEntities:
    """Read entities in key order, a page at a time, and none outside the bounds."""

    table: str
    filter: FilterNode | None
    top: int
    projection: Projection | None
    token: ContinuationToken | None
    bounds: KeyBounds | None = None


class InsertEntity(NamedTuple):
    """Write an entity that must not be there yet."""

    table: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class UpdateEntity:
    """Replace an entity that must be there and match."""

    table: str
    entity: Entity
    if_match: IfMatch


@dataclass(frozen=True, slots=True)
class MergeEntity:
    """Set the properties given of an entity that must be there and match; keep its others."""

    table: str
    entity: Entity
    if_match: IfMatch


@dataclass(frozen=True, slots=True)
class InsertOrReplaceEntity:
    """Write an entity, replacing what is there."""

    table: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class InsertOrMergeEntity:
    """Write an entity, or set the properties given of the one that is there."""

    table: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class DeleteEntity:
    """Delete an entity that must be there and match."""

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
    """Writes to entities of one partition, each entity once, applied all or not at all (wire 7)."""

    table: str
    partition_key: str
    writes: Sequence[EntityWrite]


@dataclass(frozen=True, slots=True)
class GetTableAcl:
    """Read the stored access policies of a table."""

    table: str


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
    """How far is the secondary behind?"""


@dataclass(frozen=True, slots=True)
class GetUserDelegationKey:
    """Give the caller a key to sign with in their own name, from `start` (None: now) to `expiry`, in ticks."""

    start: int | None
    expiry: int


ServiceOperation = (
    GetTableAcl
    | SetTableAcl
    | GetServiceProperties
    | SetServiceProperties
    | GetServiceStats
    | GetUserDelegationKey
)
"""What is asked and answered in XML."""

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
    """A table that is there or was just created; `created` tells which."""

    table: str
    created: bool


@dataclass(frozen=True, slots=True)
class TablesPage:
    """Tables in name order, and the first that is left: its name and when it was created (ticks)."""

    tables: Sequence[str]
    next_table: tuple[str, int] | None


class EntityFound(NamedTuple):
    """One entity in the form of `entity_json`."""

    stored: bytes


@dataclass(frozen=True, slots=True)
class EntitiesPage:
    """Entities in key order in the form of `entity_json`, and where the next page begins."""

    stored: Sequence[bytes]
    token: ContinuationToken | None


class EntityInserted(NamedTuple):
    """An entity as it was stored: what gives its text in the form of `entity_json`, and its version."""

    render: Callable[[int], bytes]
    version: int


class EntityWritten(NamedTuple):
    """The version an update, merge or upsert gave the entity."""

    version: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The table or entity is gone."""


WriteResult = EntityInserted | EntityWritten | Deleted


@dataclass(frozen=True, slots=True)
class TransactionCommitted:
    """One result for each operation of an entity group transaction, in order."""

    results: Sequence[WriteResult]


@dataclass(frozen=True, slots=True)
class TableAclFound:
    """The stored access policies of a table."""

    identifiers: tuple[SignedIdentifier, ...]


@dataclass(frozen=True, slots=True)
class ServicePropertiesFound:
    """The account's service properties."""

    properties: ServiceProperties


@dataclass(frozen=True, slots=True)
class ServiceStats:
    """The secondary has everything that was written before this moment (ticks)."""

    last_sync: int


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Policies or service properties are as asked for."""


@dataclass(frozen=True, slots=True)
class UserDelegationKey:
    """A key to sign with: whose it is, when it may be used, and its bytes. All texts are signed as they are here."""

    object_id: str
    tenant_id: str
    start: str
    expiry: str
    service: str
    version: str
    value: bytes = field(repr=False)


ServiceResult = (
    TableAclFound | ServicePropertiesFound | ServiceStats | SettingsChanged | UserDelegationKey
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
    """The key of the entity that a write concerns."""
    return write.key if isinstance(write, DeleteEntity) else write.entity.key
