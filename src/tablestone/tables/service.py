"""The table service: carries out any operation of any account on one engine.

`TableService.execute` is the only way from the server to the tables. Operations are legal by construction, and the
caller has been authorized. Existence and preconditions are decided here. Does not know HTTP.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, get_args

from tablestone.clock import Clock
from tablestone.cooperative_scheduling import Seconds, Turns
from tablestone.engines.contract import Engine
from tablestone.limits import OF_SERVICE, EntityLimits
from tablestone.model import operations
from tablestone.model.errors import StorageError, unknown_comp
from tablestone.model.operations import Result
from tablestone.model.service_properties import FRESH
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.cache_invalidation import one_more_conflict
from tablestone.tables.catalog import Catalog, TableRecord, note_about, query_tables, relied_rows
from tablestone.tables.change_notes import CommitKind
from tablestone.tables.changes import ChangeFeeds
from tablestone.tables.expiry import LiveRows
from tablestone.tables.expiry_counts import ExpiryCounts, changed_policy, quieted
from tablestone.tables.index_building import (
    IndexRefused,
    IndexWork,
    indexes_of,
    is_empty,
    is_unclaimed,
)
from tablestone.tables.metadata import Documents, PropertiesOfAccounts
from tablestone.tables.reads import count_entities, query_entities, require_conditions
from tablestone.tables.throughput_targets import Throughput
from tablestone.tables.writes import commit_writes


class TableService:
    """All accounts on one engine. `clock` is wall time, `seconds` never steps back, `throughput` has the targets."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        seconds: Seconds,
        fresh_id: Callable[[], bytes],
        *,
        table_deletion_seconds: int = 0,
        throughput: Throughput | None = None,
        may_change_format: bool = False,
        entity_limits: EntityLimits = OF_SERVICE,
    ) -> None:
        """`may_change_format`: a request may make the first index, which changes the format of storage for good."""
        self._engine = engine
        self._may_change_format = may_change_format
        self.entity_limits = entity_limits
        self.keeps_indexes = engine.capabilities.keeps_entries
        self._clock = clock
        self._seconds = seconds
        self._turns = Turns(seconds)
        self._throughput = throughput
        self.catalog = Catalog(engine, clock, fresh_id, deletion_seconds=table_deletion_seconds)
        incarnations = self.catalog.incarnations
        self.documents = Documents(engine)
        self.properties = PropertiesOfAccounts(self.documents, incarnations)
        self.feeds = ChangeFeeds(engine, self.catalog, clock)
        self.counts = ExpiryCounts(engine, self.documents, self.catalog)
        self.caches = (self.catalog.rows, incarnations.rows, self.documents.rows)
        self._ways: dict[type, Callable[[Owner, Any], Coroutine[Any, Any, Result]]] = {
            operations.GetEntity: self._get_entity,
            operations.QueryEntities: self._query_entities,
            **dict.fromkeys(get_args(operations.EntityWrite), self._write),
            operations.EntityGroupTransaction: self._write_group,
            operations.QueryTables: self._query_tables,
            operations.GetTable: self._get_table,
            operations.CreateTable: self._create_table,
            operations.DeleteTable: self._delete_table,
            operations.GetTableAcl: self._get_acl,
            operations.SetTableAcl: self._set_acl,
            operations.ListIndexes: self._list_indexes,
            operations.MakeIndex: self._make_index,
            operations.DropIndex: self._drop_index,
            operations.GetTableExpiry: self._get_expiry,
            operations.SetTableExpiry: self._set_expiry,
            operations.CountTableExpiry: self._count_expiry,
            operations.ReadTableChanges: self.feeds.of_table,
            operations.ReadAccountChanges: self.feeds.of_account,
            operations.GetServiceProperties: self._get_properties,
            operations.SetServiceProperties: self._set_properties,
            operations.GetServiceStats: self._get_stats,
        }
        """How each operation is carried out. The server itself issues user delegation keys."""

    def execute(self, owner: Owner, operation: operations.Operation) -> Coroutine[Any, Any, Result]:
        """Carry the operation out, or raise the `StorageError` that is its answer.

        The request was authenticated for the owner. If the owner is deleted meanwhile, the operation never reads or
        changes data of a later account of the name: it fails, or took place before the deletion.
        """
        if self._throughput is not None:
            self._throughput.begin(owner.name, operation)
        return self._ways[type(operation)](owner, operation)

    def _rows_of(self, table: TableRecord) -> Engine | LiveRows:
        """The rows of a table's entities, without those that have expired."""
        policy = table.acting_expiry
        return self._engine if policy is None else LiveRows(self._engine, policy, self._clock)

    async def signed_identifiers(
        self, owner: Owner, table: str
    ) -> tuple[operations.SignedIdentifier, ...]:
        """The current stored access policies of a table; none if the table does not exist (auth 3.9)."""
        record = await self.catalog.find(owner, table)
        return () if record is None else record.identifiers

    async def has_indexes(self, owner: Owner, table: str) -> bool:
        """Whether `ListIndexes` has something to list."""
        record = await self.catalog.find(owner, table)
        return record is not None and bool(await indexes_of(self._engine, record))

    async def _query_tables(self, owner: Owner, asked: operations.QueryTables) -> Result:
        return await query_tables(self.catalog, owner, asked, self._seconds)

    async def _get_table(self, owner: Owner, asked: operations.GetTable) -> Result:
        record = await self.catalog.find(owner, asked.table)
        if record is None:
            raise StorageError("ResourceNotFound")
        return operations.TableFound(record.name, created=False)

    async def _create_table(self, owner: Owner, asked: operations.CreateTable) -> Result:
        await self.catalog.create(owner, asked.table)
        return operations.TableFound(asked.table, created=True)

    async def _delete_table(self, owner: Owner, asked: operations.DeleteTable) -> Result:
        await self.catalog.delete(owner, asked.table)
        return operations.Deleted()

    async def _get_acl(self, owner: Owner, asked: operations.GetTableAcl) -> Result:
        record = await self.catalog.require(owner, asked.table)
        return operations.TableAclFound(record.identifiers)

    async def _set_acl(self, owner: Owner, asked: operations.SetTableAcl) -> Result:
        await self.catalog.set_identifiers(owner, asked.table, asked.identifiers)
        return operations.SettingsChanged()

    async def _list_indexes(self, owner: Owner, asked: operations.ListIndexes) -> Result:
        record = await self.catalog.require(owner, asked.table)
        now = self._clock()
        found = [
            operations.IndexFound(
                *(index.property, index.within_partition, index.state.value, index.entities),
                waits=is_unclaimed(index, now),
                empty=await is_empty(self._engine, record, index),
                automatic=index.automatic is not None,
            )
            for index in await indexes_of(self._engine, record)
        ]
        return operations.IndexesFound(
            found,
            self._can_make_index() if asked.or_none else None,
            self._engine.capabilities.keeps_changes,
        )

    def _can_make_index(self) -> str:
        if getattr(self._engine, "is_indexed", True):
            return "ready"
        return "first" if self._may_change_format else "closed"

    async def _make_index(self, owner: Owner, asked: operations.MakeIndex) -> Result:
        if self._can_make_index() == "closed":
            await self.catalog.require(owner, asked.table)
            raise StorageError("FormatNotAllowed")
        with _refusing():
            work = IndexWork(self.catalog, owner, asked.table, asked.property)
            await work.ask(within_partition=asked.within_partition)
        return operations.Accepted()

    async def _drop_index(self, owner: Owner, asked: operations.DropIndex) -> Result:
        with _refusing():
            await IndexWork(self.catalog, owner, asked.table, asked.property).ask_to_drop()
        return operations.Accepted()

    async def _get_properties(self, owner: Owner, _: operations.GetServiceProperties) -> Result:
        properties = await self.properties.get(owner.name)
        await self.catalog.incarnations.require(owner)
        return operations.ServicePropertiesFound(properties or FRESH)

    async def _set_properties(self, owner: Owner, asked: operations.SetServiceProperties) -> Result:
        await self.properties.change(owner, asked.changes)
        return operations.SettingsChanged()

    async def _get_stats(self, _owner: Owner, _: operations.GetServiceStats) -> Result:
        return operations.ServiceStats(self._clock())

    async def _get_expiry(self, owner: Owner, asked: operations.GetTableExpiry) -> Result:
        if asked.count is not None:
            found = await self.counts.found(owner, asked.table, asked.count)
            return operations.ExpiryCountFound(found)
        record = await self.catalog.find(owner, asked.table)
        if not asked.or_none and (record is None or record.expiry is None):
            raise unknown_comp()
        if record is None:
            raise StorageError("TableNotFound")
        return operations.TableExpiryFound(record.expiry)

    async def _set_expiry(self, owner: Owner, asked: operations.SetTableExpiry) -> Result:
        """Change the policy of a table. Without a count, an entity that is inserted meanwhile counts as before."""
        record = await self.catalog.require(owner, asked.table)
        policy = changed_policy(record, asked.policy)
        version: int | None = None
        # These hide nothing: they need no count, and another change meanwhile does not stop them.
        quiets = asked.policy in (operations.ExpiryChange.SUSPEND, operations.ExpiryChange.REMOVE)
        if asked.token is not None and not quiets:
            await self.counts.require_token(owner, record, policy, asked.token)
            version = record.version
        elif not quiets and await self._engine.scan(
            storage_keys.table_range(record.table_id), rows_max=1
        ):
            raise StorageError("TableNotEmpty")
        if not self._engine.capabilities.checks_relied_rows and (quiets or version is not None):
            count = await self.counts.change_later(owner, record, policy, version)
            return operations.Accepted(count)
        edit = partial(quieted, policy=policy) if quiets else lambda _old: policy
        await self.catalog.change_expiry(owner, record.name, edit, record.table_id, version)
        return operations.SettingsChanged()

    async def _count_expiry(self, owner: Owner, asked: operations.CountTableExpiry) -> Result:
        return operations.Accepted(await self.counts.begin(owner, asked.table, asked.policy))

    async def _write(self, owner: Owner, write: operations.EntityWrite) -> Result:
        return (await self._commit(owner, write.table, (write,)))[0]

    async def _write_group(self, owner: Owner, asked: operations.EntityGroupTransaction) -> Result:
        return operations.TransactionCommitted(await self._commit(owner, asked.table, asked.writes))

    async def _commit(
        self, owner: Owner, table: str, writes: Sequence[operations.EntityWrite]
    ) -> list[operations.WriteResult]:
        """Commit the writes with the entries of the table's indexes; again, if the table has changed meanwhile."""
        conflicts = 0
        while True:
            generation = self._engine.generation
            record = await self.catalog.require(owner, table)
            note = note_about(CommitKind.ENTITIES, owner, record)
            relies_on = relied_rows(self._engine, owner, record, generation)
            results = await commit_writes(
                *(self._rows_of(record), note, writes),
                *(self.entity_limits, record.entries_of, relies_on),
            )
            if results is not None:
                return results
            conflicts = one_more_conflict(conflicts, f"the tables of {owner.name}")

    async def _get_entity(self, owner: Owner, asked: operations.GetEntity) -> Result:
        table = await self.catalog.require(owner, asked.table)
        place = storage_keys.entity_place(table.table_id, asked.key)
        stored = await self._rows_of(table).get(place)
        if stored is None:
            raise StorageError("ResourceNotFound")
        if asked.conditions is not None:
            require_conditions(asked.conditions, stored)
        return operations.EntityFound(stored)

    async def _query_entities(self, owner: Owner, asked: operations.QueryEntities) -> Result:
        table = await self.catalog.require(owner, asked.table)
        read = query_entities if asked.counts is None else count_entities
        page = await read(self._engine, table, asked, self._clock, self._seconds, self._turns)
        if self._throughput is not None:
            self._throughput.end(owner.name, asked, page)
        return page


@contextmanager
def _refusing() -> Iterator[None]:
    """Answer the refusal of an index with its error and sentence."""
    try:
        yield
    except IndexRefused as refused:
        raise StorageError(refused.code, str(refused)) from None
