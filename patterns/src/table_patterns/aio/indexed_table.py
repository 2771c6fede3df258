"""A table whose entities are found by other properties than their keys: index entities, kept by those who write.

A near index lies in the partition of its entities and changes in their transaction, so it is exact. A far one lies in
partitions of its own, one for each value, and follows: the transaction of an entity also writes an outbox row that
names what to do, and whoever finds the row later does it again, as often as it takes.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import EntityProperty, TableEntity, UpdateMode
from azure.data.tables.aio import TableClient

from table_patterns.aio.answers import (
    FAILED,
    etag_of,
    if_unchanged,
    is_of_table,
    is_refused,
    pause_after,
    quoted,
    require_client,
    stored_entity,
)
from table_patterns.errors import Conflicts, OutcomeUnknown
from table_patterns.keys import CompositeKey, KeyPartError
from table_patterns.results import Built, Checked, Place
from table_patterns.service_time import ServiceTime

ATTEMPTS_MAX: Final = 50
MARKS_KEPT: Final = 8
VALUE_UNITS_MAX: Final = 64
"""Of a value in an index key; of a longer one, its hash is there. A reader compares the entity's own value."""
GIVEN_UP_AFTER: Final = timedelta(minutes=10)
INDEXES_MAX: Final = 15
"""So that an outbox row can name two places of each."""
MARKS: Final = "IndexMarks"
NAMES: Final = "IndexNames"
_RESERVED: Final = "~"
_NEAR: Final = CompositeKey(str, str, str, prefix="~index!")
_FAR_PARTITION: Final = CompositeKey(str, str, prefix="~index!")
_FAR_ROW: Final = CompositeKey(str, str)
_OUTBOX: Final = CompositeKey(str, str, prefix="~outbox!")


class IndexedTable:
    """A table with near and far indexes on properties. Every writer must use it, with the same indexes.

    Row keys and partition keys that begin with `~` are its own. Each entity has two more properties, `IndexMarks` and
    `IndexNames`; they are not in what it returns.
    """

    def __init__(
        self, table: TableClient, near: Sequence[str] = (), far: Sequence[str] = ()
    ) -> None:
        """`near` and `far` are names of properties, at most 15."""
        if isinstance(near, str) or isinstance(far, str):
            raise TypeError('Give tuples of names, such as near=("Name",).')
        names = (*near, *far)
        if not 0 < len(set(names)) == len(names) <= INDEXES_MAX:
            raise ValueError(f"Give 1 to {INDEXES_MAX} properties, each once.")
        self._table = require_client(table)
        self._near = tuple(near)
        self._far = tuple(far)
        self._names = f"{','.join(sorted(near))};{','.join(sorted(far))}"

    async def insert(self, entity: Mapping[str, Any]) -> None:
        """Insert an entity. Raises `ResourceExistsError` if its keys are taken."""

        def make(old: TableEntity | None) -> dict[str, Any]:
            if old is not None:
                raise ResourceExistsError(f"{old['RowKey']} exists already.")
            return dict(entity)

        await self._change(entity["PartitionKey"], entity["RowKey"], make)

    async def put(self, entity: Mapping[str, Any], etag: str | None = None) -> None:
        """Insert or replace an entity; with an ETag, only if that is stored, else it raises `ResourceModifiedError`."""
        await self._change(entity["PartitionKey"], entity["RowKey"], lambda _: dict(entity), etag)

    async def merge(self, entity: Mapping[str, Any], etag: str | None = None) -> None:
        """Set some properties of an entity, as `put` does. Raises `ResourceNotFoundError` if it is not there."""

        def make(old: TableEntity | None) -> dict[str, Any]:
            if old is None:
                raise ResourceNotFoundError(f"{entity['RowKey']} does not exist.")
            # As in the service's own merge, None changes nothing.
            return old | {name: value for name, value in entity.items() if value is not None}

        await self._change(entity["PartitionKey"], entity["RowKey"], make, etag)

    async def delete(self, partition_key: str, row_key: str, etag: str | None = None) -> None:
        """Delete an entity, if it is there; the ETag is as for `put`."""
        await self._change(partition_key, row_key, lambda _: None, etag)

    async def find(
        self, name: str, value: Any, partition_key: str | None = None
    ) -> AsyncIterator[TableEntity]:
        """The entities whose property has this value. A near index needs the partition.

        Each is read and compared, so none is wrong. An index entity that is wrong is deleted, if the caller may. By a
        far index, an entity whose writer was stopped is missing until a sweep.
        """
        value_key = _value_key(name, value)
        if name in self._far:
            query_filter = f"PartitionKey eq '{_FAR_PARTITION.encode(name, value_key)}'"
        elif name not in self._near:
            raise ValueError(f"{name} has no index.")
        elif partition_key is None:
            raise ValueError(f"The index on {name} is near: give the partition key.")
        else:
            rows = _NEAR.filter("RowKey", name, value_key)
            query_filter = f"PartitionKey eq '{quoted(partition_key)}' and {rows}"
        async for hit in self._table.query_entities(query_filter):
            keys = _entity_of(hit["PartitionKey"], hit["RowKey"])
            if keys and partition_key not in (None, keys[0]):
                continue
            entity = await stored_entity(self._table, *keys) if keys else None
            if entity is not None and _key_of(entity, name) == value_key:
                yield _plain(entity)
            else:
                await self._repair(hit)

    async def sweep(self, given_up_after: timedelta = GIVEN_UP_AFTER) -> int:
        """Finish what writers left, which wrote longer ago than that by the service's clock; returns how much it was.

        It looks for outbox rows in the whole table. Any number of processes may do this at once.
        """
        clock = ServiceTime()
        done = 0
        outbox = self._table.query_entities(_OUTBOX.filter("RowKey"), raw_response_hook=clock)
        async for row in outbox:
            if not clock.is_older(row, given_up_after) or _named_by(row) is None:
                continue
            if (claimed := await self._claim(row)) is not None:
                await self._follow(row, claimed)
                done += 1
        return done

    async def _claim(self, row: TableEntity) -> str | None:
        """Write an outbox row, which makes it young: nobody else takes it, unless this process is stopped too.

        Returns its new ETag, or None if another process has taken it or finished it.
        """
        claim = uuid4().hex
        try:
            claimed = await self._table.update_entity(
                {**row, "Claim": claim}, UpdateMode.REPLACE, **if_unchanged(etag_of(row))
            )
        except (ResourceModifiedError, ResourceNotFoundError) as error:
            if is_of_table(error):
                raise
            # The client sends an update again: its first one may have been carried out, and its answer lost.
            now = await stored_entity(self._table, row["PartitionKey"], row["RowKey"])
            return etag_of(now) if now is not None and now.get("Claim") == claim else None
        return str(claimed["etag"])

    async def build(self, progress: Callable[[Built], None] = lambda _: None) -> Built:
        """Write the entities that were there before an index, with their index entities; others may write meanwhile."""
        so_far = Built()
        async for entity in self._entities():
            if entity.get(NAMES) != self._names:
                is_built = await self._write_again(entity["PartitionKey"], entity["RowKey"])
                so_far = Built(so_far.built + is_built, so_far.left + (not is_built))
                progress(so_far)
        return so_far

    async def repair(self) -> Checked:
        """Check, write what is missing and delete what is wrong; returns what was found. Others may write meanwhile."""
        checked = await self.check()
        for place in checked.missing:
            if keys := _entity_of(*place):
                await self._write_again(*keys)
        for place in checked.wrong:
            hit = await stored_entity(self._table, *place)
            keys = _entity_of(*place)
            entity = await stored_entity(self._table, *keys) if keys else None
            if hit is not None and (entity is None or place not in self._places_of(entity)):
                await self._repair(hit)
        return checked

    async def _write_again(self, partition_key: str, row_key: str) -> bool:
        """Write an entity as it is, with all its index entities; False if other writers change it each time."""
        try:
            await self._change(partition_key, row_key, lambda old: old and dict(old), is_whole=True)
        except KeyPartError as error:
            raise KeyPartError(f"The entity {partition_key}, {row_key}: {error}") from error
        except (Conflicts, OutcomeUnknown):
            return False
        return True

    async def check(self) -> Checked:
        """Compare all entities and all index entities. It reads the whole table, and keeps the keys of the indexes.

        What others change meanwhile may be told as missing or wrong.
        """
        expected: set[Place] = set()
        entities = 0
        async for entity in self._entities():
            entities += 1
            expected |= self._places_of(entity)
        found: set[Place] = set()
        index_filter = f"({_NEAR.filter('RowKey')}) or ({_FAR_PARTITION.filter('PartitionKey')})"
        async for row in self._table.query_entities(index_filter):
            found.add((row["PartitionKey"], row["RowKey"]))
        return Checked(entities, sorted(expected - found), sorted(found - expected))

    def _places_of(self, entity: TableEntity) -> set[Place]:
        try:
            return _near_of(entity, *self._near) | _far_of(entity, *self._far)
        except KeyPartError as error:
            keys = f"{entity['PartitionKey']}, {entity['RowKey']}"
            raise KeyPartError(f"The entity {keys}: {error}") from error

    async def _entities(self) -> AsyncIterator[TableEntity]:
        async for entity in self._table.list_entities():
            keys = entity["PartitionKey"], entity["RowKey"]
            if not any(key.startswith(_RESERVED) for key in keys):
                yield entity

    async def _change(
        self,
        partition_key: str,
        row_key: str,
        make: Callable[[TableEntity | None], dict[str, Any] | None],
        etag: str | None = None,
        *,
        is_whole: bool = False,
    ) -> None:
        """Replace the stored entity by what `make` makes of it, with the near indexes and the outbox row.

        `is_whole` writes all its index entities, not only those that change.

        Each attempt has the same mark, and the condition that nobody has written since it read: after a time-out, the
        mark in the stored entity tells that an attempt was carried out.
        """
        for key in (partition_key, row_key):
            if not isinstance(key, str):
                raise TypeError(f"{key!r} is no text, so no key.")
            if key.startswith(_RESERVED):
                raise ValueError(f"Keys that begin with {_RESERVED} are those of the indexes.")
        mark = uuid4().hex[:16]
        outbox_key = _OUTBOX.encode(row_key, mark)
        failed: Exception | None = None
        unanswered = 0
        before: TableEntity | None = None
        outbox: Mapping[str, Any] | None = None
        outbox_etag: str | None = None
        for _ in range(ATTEMPTS_MAX):
            old = await stored_entity(self._table, partition_key, row_key)
            if unanswered and await self._is_done(before, old, partition_key, outbox_key, mark):
                outbox = await stored_entity(self._table, partition_key, outbox_key)
                outbox_etag = etag_of(outbox)
                break
            if etag is not None and etag_of(old) != etag:
                raise ResourceModifiedError(f"{row_key} has changed.") from failed
            new = make(old)
            if old is None and new is None:
                return
            operations = await self._operations(
                old, new, mark, outbox_key, failed, is_whole=is_whole
            )
            before = old
            try:
                # Not sent again by the client: what is refused was not carried out, which `unanswered` relies on.
                answers = await self._table.submit_transaction(operations, retry_total=0)
                outbox, outbox_etag = operations[-1][1], answers[-1]["etag"]
                break
            except FAILED as error:
                if not is_refused(error, 404, 409, 412):
                    unanswered = await pause_after(error, unanswered)
                failed = error
        else:
            raise Conflicts(f"{ATTEMPTS_MAX} attempts to write {row_key} failed.") from failed
        if outbox is not None and outbox["RowKey"] == outbox_key:
            with suppress(*FAILED):  # the entity is written, and a sweep can do the rest
                await self._follow(outbox, outbox_etag)

    async def _is_done(
        self,
        before: TableEntity | None,
        now: TableEntity | None,
        partition_key: str,
        outbox_key: str,
        mark: str,
    ) -> bool:
        """Whether an attempt on `before` was carried out. Raises `OutcomeUnknown` if nothing tells."""
        if mark in _marks_of(now):
            return True
        # Before the ETags: an insert may have been carried out, and its entity deleted by others.
        if await stored_entity(self._table, partition_key, outbox_key):
            return True
        if etag_of(before) == etag_of(now):
            return False
        # Each writer keeps the marks before its own: if the last one of `before` is there, this one was not left out.
        last = _marks_of(before)[-1:]
        if before is None or now is None or set(last) & set(_marks_of(now)):
            return False
        raise OutcomeUnknown(f"{now['RowKey']} was written over or made anew meanwhile.")

    async def _operations(
        self,
        old: TableEntity | None,
        new: dict[str, Any] | None,
        mark: str,
        outbox_key: str,
        failed: Exception | None,
        *,
        is_whole: bool,
    ) -> list[Any]:
        entity = new if new is not None else old
        assert entity is not None
        keys = {"PartitionKey": entity["PartitionKey"], "RowKey": entity["RowKey"]}
        operation: Any
        if new is None:
            operation = ("delete", keys, if_unchanged(etag_of(old)))
        else:
            marks = [*_marks_of(old), mark][-MARKS_KEPT:]
            new = {**new, MARKS: ",".join(marks), NAMES: self._names}
            replace = {"mode": UpdateMode.REPLACE, **if_unchanged(etag_of(old))}
            operation = ("create", new) if old is None else ("update", new, replace)
        near, far = _near_of(old, *_names_of(old, 0)), _far_of(old, *_names_of(old, 1))
        near_now, far_now = _near_of(new, *self._near), _far_of(new, *self._far)
        gone, added = near - near_now, near_now if is_whole else near_now - near
        if failed is not None:
            # It may have failed because somebody else has deleted an index entity.
            gone = {place for place in gone if await stored_entity(self._table, *place)}
        operations = [
            operation,
            *(("delete", _entity_at(place)) for place in sorted(gone)),
            *(("upsert", _entity_at(place)) for place in sorted(added)),
        ]
        places = sorted(far | far_now if is_whole else far ^ far_now)
        if places or new is None:
            row = {**keys, "RowKey": outbox_key, "Places": json.dumps(places)}
            operations.append(("upsert", row, {"mode": UpdateMode.REPLACE}))
        return operations

    async def _follow(self, outbox: Mapping[str, Any], etag: str | None) -> None:
        """Make the far index entities that an outbox row names right for the entity as it is now; delete the row."""
        partition_key = outbox["PartitionKey"]
        named = _named_by(outbox)
        assert named is not None
        row_key, places = named
        for _ in range(ATTEMPTS_MAX):
            if not places:  # it tells only that an entity was deleted
                break
            entity = await stored_entity(self._table, partition_key, row_key)
            current = _far_of(entity, *self._far)
            for place in places:
                if place in current:
                    await self._table.upsert_entity(_entity_at(place), UpdateMode.REPLACE)
                else:
                    await self._table.delete_entity(*place)
            again = await stored_entity(self._table, partition_key, row_key)
            if etag_of(entity) == etag_of(again):
                break
        else:
            return  # the row stays, for a sweep
        with suppress(ResourceModifiedError):  # a sweep has taken it over, and will finish it
            keys = outbox["PartitionKey"], outbox["RowKey"]
            await self._table.delete_entity(*keys, **if_unchanged(etag))

    async def _repair(self, hit: TableEntity) -> None:
        with suppress(*FAILED):  # no right to write, or changed since
            await self._table.delete_entity(hit, **if_unchanged(etag_of(hit)))


def _entity_of(partition_key: str, row_key: str) -> Place | None:
    """The keys of the entity of an index entity; None for a row that somebody else has put among them."""
    with suppress(KeyPartError):
        if not partition_key.startswith(_RESERVED):
            return partition_key, _NEAR.decode(row_key)[2]
        partition, row = _FAR_ROW.decode(row_key)
        return partition, row
    return None


def _named_by(outbox: Mapping[str, Any]) -> tuple[str, list[Place]] | None:
    """The row key and the places of an outbox row; None if it is none of ours."""
    try:
        row_key, _ = _OUTBOX.decode(outbox["RowKey"])
        return row_key, [
            (str(partition), str(row)) for partition, row in json.loads(outbox["Places"])
        ]
    except (KeyError, TypeError, ValueError):
        return None


def _near_of(entity: Mapping[str, Any] | None, *names: str) -> set[Place]:
    return {
        (entity["PartitionKey"], _NEAR.encode(name, key, entity["RowKey"]))
        for entity, name, key in _keys_of(entity, names)
    }


def _far_of(entity: Mapping[str, Any] | None, *names: str) -> set[Place]:
    return {
        (
            _FAR_PARTITION.encode(name, key),
            _FAR_ROW.encode(entity["PartitionKey"], entity["RowKey"]),
        )
        for entity, name, key in _keys_of(entity, names)
    }


def _names_of(entity: Mapping[str, Any] | None, which: int) -> list[str]:
    """The names of the near (0) or far (1) indexes that an entity has."""
    names = str((entity or {}).get(NAMES, ";"))
    return names.split(";")[which].split(",")


def _keys_of(
    entity: Mapping[str, Any] | None, names: tuple[str, ...]
) -> Iterator[tuple[Mapping[str, Any], str, str]]:
    """The entity, the name of each indexed property that it has, and the value's key."""
    if entity is None:
        return
    for name in names:
        if (key := _key_of(entity, name)) is not None:
            yield entity, name, key


def _key_of(entity: Mapping[str, Any], name: str) -> str | None:
    value = entity.get(name)
    return None if value is None else _value_key(name, value)


_TYPES: Final[list[tuple[type, str]]] = [(str, "s"), (int, "i"), (float, "f"), (datetime, "t")]


def _value_key(name: str, value: Any) -> str:
    """A text of a value for the key of an index: equal values of a type have the same one."""
    plain = value.value if isinstance(value, EntityProperty) else value
    if isinstance(plain, bool):
        return f"b{int(plain)}"
    if isinstance(plain, UUID):
        return f"g{plain}"
    if isinstance(plain, bytes):
        return f"x{hashlib.sha256(plain).hexdigest()}"
    for kind, letter in _TYPES:
        if isinstance(plain, kind):
            text = plain if isinstance(plain, str) else CompositeKey(kind).encode(plain)
            if len(text) <= VALUE_UNITS_MAX and text.isascii():
                return letter + text
            return f"h{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
    raise TypeError(f"{name}: {value!r} has no type that an index knows.")


def _marks_of(entity: Mapping[str, Any] | None) -> list[str]:
    return [each for each in (entity or {}).get(MARKS, "").split(",") if each]


def _plain(entity: TableEntity) -> TableEntity:
    for name in (MARKS, NAMES):
        entity.pop(name, None)
    return entity


def _entity_at(place: Place) -> dict[str, str]:
    return {"PartitionKey": place[0], "RowKey": place[1]}
