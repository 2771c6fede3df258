"""The table service: carries out any operation of any account on one engine.

`TableService.execute` is the only way from the server to the tables. Operations are legal by construction, and the
caller has been authorized. Existence and preconditions are decided here. Does not know HTTP.
"""

from collections.abc import Callable, Sequence

from tablestone.clock import Clock
from tablestone.cooperative_scheduling import Seconds, Turns
from tablestone.engines.contract import Engine
from tablestone.model import operations
from tablestone.model.errors import StorageError, unknown_comp
from tablestone.model.service_properties import FRESH
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.cache_invalidation import one_more_conflict
from tablestone.tables.catalog import Catalog, TableRecord, note_about, query_tables, relied_rows
from tablestone.tables.change_notes import CommitKind
from tablestone.tables.changes import ChangeFeeds
from tablestone.tables.expiry import LiveRows
from tablestone.tables.index_building import indexes_of
from tablestone.tables.metadata import Documents, PropertiesOfAccounts
from tablestone.tables.reads import query_entities, require_conditions
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
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._seconds = seconds
        self._turns = Turns(seconds)
        self._throughput = throughput
        self.catalog = Catalog(engine, clock, fresh_id, deletion_seconds=table_deletion_seconds)
        incarnations = self.catalog.incarnations
        self.documents = Documents(engine)
        self.properties = PropertiesOfAccounts(self.documents, incarnations)
        self.feeds = ChangeFeeds(engine, self.catalog, clock)
        self.caches = (self.catalog.rows, incarnations.rows, self.documents.rows)

    async def execute(self, owner: Owner, operation: operations.Operation) -> operations.Result:
        """Carry the operation out, or raise the `StorageError` that is its answer.

        The request was authenticated for the owner. If the owner is deleted meanwhile, the operation never reads or
        changes data of a later account of the name: it fails, or took place before the deletion.
        """
        if self._throughput is not None:
            self._throughput.begin(owner.name, operation)
        if isinstance(operation, operations.GetEntity):
            return await self._get_entity(owner, operation)
        if isinstance(operation, operations.EntityWrite):
            return await self._write(owner, operation)
        if isinstance(operation, operations.QueryEntities):
            return await self._query_entities(owner, operation)
        if isinstance(operation, operations.EntityGroupTransaction):
            return operations.TransactionCommitted(
                await self._commit(owner, operation.table, operation.writes)
            )
        if isinstance(operation, operations.ServiceOperation):
            return await self._execute_on_service(owner, operation)
        return await self._execute_on_tables(owner, operation)

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

    async def _execute_on_tables(
        self,
        owner: Owner,
        operation: operations.QueryTables
        | operations.CreateTable
        | operations.GetTable
        | operations.DeleteTable,
    ) -> operations.Result:
        if isinstance(operation, operations.QueryTables):
            return await query_tables(self.catalog, owner, operation, self._seconds)
        if isinstance(operation, operations.CreateTable):
            await self.catalog.create(owner, operation.table)
            return operations.TableFound(operation.table, created=True)
        if isinstance(operation, operations.DeleteTable):
            await self.catalog.delete(owner, operation.table)
            return operations.Deleted()
        record = await self.catalog.find(owner, operation.table)
        if record is None:
            raise StorageError("ResourceNotFound")
        return operations.TableFound(record.name, created=False)

    async def _execute_on_service(
        self, owner: Owner, operation: operations.ServiceOperation
    ) -> operations.ServiceResult:
        if isinstance(operation, operations.GetTableAcl):
            record = await self.catalog.require(owner, operation.table)
            return operations.TableAclFound(record.identifiers)
        if isinstance(operation, operations.ListIndexes):
            record = await self.catalog.require(owner, operation.table)
            return operations.IndexesFound(
                [
                    operations.IndexFound(index.property, index.within_partition, index.state.value)
                    for index in await indexes_of(self._engine, record)
                ]
            )
        if isinstance(operation, operations.GetTableExpiry):
            found = await self.catalog.find(owner, operation.table)
            if found is None or found.expiry is None:
                raise unknown_comp()
            return operations.TableExpiryFound(found.expiry)
        if isinstance(operation, operations.ReadTableChanges):
            return await self.feeds.of_table(owner, operation)
        if isinstance(operation, operations.ReadAccountChanges):
            return await self.feeds.of_account(owner, operation)
        if isinstance(operation, operations.GetServiceProperties):
            properties = await self.properties.get(owner.name)
            await self.catalog.incarnations.require(owner)
            return operations.ServicePropertiesFound(properties or FRESH)
        if isinstance(operation, operations.GetServiceStats):
            return operations.ServiceStats(self._clock())
        if isinstance(operation, operations.SetServiceProperties):
            await self.properties.change(owner, operation.changes)
        elif isinstance(operation, operations.SetTableExpiry):
            await self._set_expiry(owner, operation)
        else:
            # The server itself answers for a user delegation key, which has nothing to do with tables.
            assert isinstance(operation, operations.SetTableAcl)
            await self.catalog.set_identifiers(owner, operation.table, operation.identifiers)
        return operations.SettingsChanged()

    async def _set_expiry(self, owner: Owner, operation: operations.SetTableExpiry) -> None:
        """Set the policy of an empty table. An entity that is inserted meanwhile counts as inserted before."""
        empty = await self.catalog.require(owner, operation.table)
        if await self._engine.scan(storage_keys.table_range(empty.table_id), rows_max=1):
            raise StorageError("TableNotEmpty")
        policy = operation.policy
        await self.catalog.change_expiry(owner, empty.name, lambda _old: policy, empty.table_id)

    async def _write(self, owner: Owner, write: operations.EntityWrite) -> operations.WriteResult:
        try:
            (result,) = await self._commit(owner, write.table, (write,))
        except StorageError as error:
            error.operation_index = None
            raise
        return result

    async def _commit(
        self, owner: Owner, table: str, writes: Sequence[operations.EntityWrite]
    ) -> list[operations.WriteResult]:
        """Commit the writes with the entries of the table's indexes; again, if the table has changed meanwhile."""
        conflicts = 0
        while True:
            generation = self._engine.generation
            try:
                record = await self.catalog.require(owner, table)
            except StorageError as error:
                error.operation_index = 0
                raise
            note = note_about(CommitKind.ENTITIES, owner, record)
            relies_on = relied_rows(self._engine, owner, record, generation)
            results = await commit_writes(
                self._rows_of(record), note, writes, record.entries_of, relies_on
            )
            if results is not None:
                return results
            conflicts = one_more_conflict(conflicts, f"the tables of {owner.name}")

    async def _get_entity(
        self, owner: Owner, operation: operations.GetEntity
    ) -> operations.EntityFound:
        table = await self.catalog.require(owner, operation.table)
        place = storage_keys.entity_place(table.table_id, operation.key)
        stored = await self._rows_of(table).get(place)
        if stored is None:
            raise StorageError("ResourceNotFound")
        if operation.conditions is not None:
            require_conditions(operation.conditions, stored)
        return operations.EntityFound(stored)

    async def _query_entities(
        self, owner: Owner, operation: operations.QueryEntities
    ) -> operations.EntitiesPage:
        table = await self.catalog.require(owner, operation.table)
        page = await query_entities(
            self._engine, table, operation, self._clock, self._seconds, self._turns
        )
        if self._throughput is not None:
            self._throughput.end(owner.name, operation, page)
        return page
