"""The state of a storage: seeds fill it, dumps show it, snapshots restore it.

All this works on engine and tables without requests, so nothing is recorded and no fault acts. It runs on the loop of
the storage. A seed is turned into the service's JSON, so that the service's own reader checks the entities.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count, groupby
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from tablestone.accounts.stored_accounts import AccountRefused, StoredAccounts, generate_key
from tablestone.auth.account import is_account_name
from tablestone.configuration import DEVELOPMENT_ACCOUNT_NAME, Configuration
from tablestone.engines.contract import ANY, DELETE, Change, Entry, Key, WriteSet
from tablestone.engines.memory import MemoryEngine, MemoryRows
from tablestone.engines.registry import open_engine
from tablestone.model.edm import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, EdmType
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import (
    PARTITION_KEY,
    ROW_KEY,
    EntityKey,
    require_key_length,
    require_new_table_name,
)
from tablestone.model.operations import (
    ChangesFound,
    ChangesSince,
    InsertOrReplaceEntity,
    ReadAccountChanges,
)
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import note_about, read_record, scan_in_steps
from tablestone.tables.change_notes import CommitKind
from tablestone.tables.index_building import IndexRefused, IndexWork
from tablestone.tables.indexes import EntriesOf, states_of
from tablestone.tables.metadata import PropertiesOfAccounts
from tablestone.tables.service import TableService
from tablestone.tables.sweeping import Sweeper
from tablestone.testing.clock import StorageClock
from tablestone.testing.realism import FollowedEngine, Secondary
from tablestone.tools.errors import TransferFailed, TransferRefused
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.reading_file import read_rows
from tablestone.tools.formats.rows import Reading, Rejected
from tablestone.wire.json_payload import decode_entity

SNAPSHOT_VERSION: Final = 1
_MARK: Final = "tablestone snapshot"
_ROWS: Final = "rows"
ANNOTATION: Final = "@odata.type"
_SYSTEM_MEMBERS: Final = ("odata.etag", "Timestamp", "Timestamp" + ANNOTATION)

Dump = dict[str, list[dict[str, Any]]]
"""Entities by table, in the order of their keys, in the service's JSON."""


class StateRefused(Exception):
    """An impossible operation on the state of a storage. The text is one sentence."""


class StorageRefused(Exception):
    """An impossible operation on a storage. The text is one sentence for the author of the test."""


class Snapshot(NamedTuple):
    """Everything in a storage at one moment: accounts, tables, policies, entities with their ETags.

    As bytes it is a line of JSON for each row, after a line with the version of the format and the number of rows: they
    show whether a file has another version or is cut off.
    """

    contents: MemoryRows

    def save(self, path: str | Path) -> None:
        """Write it to a file. The file contains the keys of the accounts that `create_account` made."""
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Snapshot:
        """Read it from a file. Raises `StateRefused` if the file has another version or is not a whole snapshot."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except StateRefused as refused:
            raise StateRefused(f"{path}: {refused}") from None
        except OSError as error:
            raise StateRefused(f"{path}: {error.strerror}.") from None

    def to_bytes(self) -> bytes:
        lines = [orjson.dumps({_MARK: SNAPSHOT_VERSION, _ROWS: len(self.contents.keys)})]
        for key in self.contents.keys:
            version, value = self.contents.stored[key]
            row = [_text(key.partition), _text(key.row), version, _text(value)]
            lines.append(orjson.dumps(row))
        return b"\n".join([*lines, b""])

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """Read what `to_bytes` wrote. Raises `StateRefused` for anything else."""
        first, *lines = data.removesuffix(b"\n").split(b"\n")
        head = _parsed(first)
        if not isinstance(head, dict) or _MARK not in head:
            raise StateRefused("This is not a snapshot of the test kit.")
        if head[_MARK] != SNAPSHOT_VERSION:
            raise StateRefused(
                f"This snapshot has version {head[_MARK]}, and this Tablestone reads version {SNAPSHOT_VERSION}."
            )
        if head.get(_ROWS) != len(lines):
            raise StateRefused(
                f"This snapshot is cut off: it has {len(lines)} of {head.get(_ROWS)} rows."
            )
        rows: dict[Key, tuple[int, bytes]] = {}
        for number, line in enumerate(lines, start=2):
            try:
                partition, row, version, value = _parsed(line)
                rows[Key(_bytes(partition), _bytes(row))] = (int(version), _bytes(value))
            except (TypeError, ValueError, binascii.Error):
                raise StateRefused(f"Line {number} of this snapshot is not a row.") from None
        return cls(MemoryRows(sorted(rows), rows, _entries_of(rows)))


def _entries_of(rows: Mapping[Key, tuple[int, bytes]]) -> list[Entry]:
    """The entries of all indexes, made from the rows: a file has none."""
    of_entities: dict[bytes, EntriesOf] = {}
    entries: list[Entry] = []
    for key in sorted(rows):  # the catalogs come before the entities
        value = rows[key][1]
        entries_of: EntriesOf | None = None
        if key.partition.startswith(storage_keys.ENTITIES):
            entries_of = of_entities.get(storage_keys.table_id_of(key.partition))
        elif key.partition.startswith(storage_keys.CATALOG) and storage_keys.is_table_row(key.row):
            table = read_record(value)
            if table.entries_of is not None:
                of_entities[table.table_id] = table.entries_of
                entries_of = states_of
        if entries_of is not None:
            entries += [Entry(entry, *key) for entry in entries_of(value)]
    return sorted(entries)


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_KEY: Final = (PARTITION_KEY, ROW_KEY)
FILES: Final = (".jsonl", ".ndjson", ".json", ".csv")
"""Suffixes of seed files."""

Entities = Iterable[Mapping[str, Any]]
Seed = Mapping[str, Entities] | str | Path
"""Entities by table, a file that is named after its table, or a directory of such files."""


class SeedRefused(ValueError):
    """A seed that is wrong, so nothing of it is stored. The text is one sentence that names the wrong line."""


class SeedRow(NamedTuple):
    """One entity: its table, its JSON, and its place in the seed for messages."""

    table: str
    body: bytes
    place: str


def read_seed(seed: Seed, table: str | None) -> tuple[list[SeedRow], list[str]]:
    """The entities of a seed, and all its tables; a `table` replaces the name of a file. Raises `SeedRefused`."""
    if isinstance(seed, Mapping):
        return list(_rows_of_tables(seed)), list(seed)
    if not isinstance(seed, str | Path):
        raise SeedRefused('A seed is a dict such as {"Orders": [...]}, a file or a directory.')
    path = Path(seed)
    if path.is_dir():
        if table is not None:
            raise SeedRefused(f"{path} is a directory: the names of its files are the tables.")
        files = sorted(each for each in path.iterdir() if each.suffix in FILES)
        if not files:
            raise SeedRefused(f"{path} has no file that ends in {', '.join(FILES)}.")
    elif not path.exists():
        raise SeedRefused(f"{path} does not exist.")
    elif path.suffix not in FILES or not path.is_file():
        raise SeedRefused(f"{path} does not end in {', '.join(FILES)}.")
    else:
        files = [path]
    rows = [row for file in files for row in _rows_of_file(file, table or file.stem)]
    return rows, [table or file.stem for file in files]


def _rows_of_tables(seed: Mapping[str, Entities]) -> Iterator[SeedRow]:
    for name, entities in seed.items():
        if isinstance(entities, Mapping) or not isinstance(entities, Iterable):
            raise SeedRefused(f"{name!r} must have a list of entities, each a dict.")
        for number, entity in enumerate(entities, start=1):
            place = f"entity {number} of {name}"
            yield SeedRow(name, _body(entity, place), place)


def _rows_of_file(path: Path, table: str) -> Iterator[SeedRow]:
    try:
        for row in read_rows(str(path), Reading(), None, ReadPosition()):
            place = f"{path}, {'row' if path.suffix == '.csv' else 'line'} {row.number}"
            if isinstance(row, Rejected):
                raise SeedRefused(f"{place}: {row.reason.removesuffix('.')}.")
            yield SeedRow(table, row.body, place)
    except (TransferFailed, TransferRefused) as refused:
        raise SeedRefused(str(refused)) from None


def _body(entity: Mapping[str, Any], place: str) -> bytes:
    if not isinstance(entity, Mapping):
        raise SeedRefused(f"{place} is not a dict.")
    members: dict[str, Any] = {}
    for name, value in entity.items():
        if not _is_text(name):
            raise SeedRefused(f"{place}: the name of a property must be a str, not {name!r}.")
        text, kind = _typed(value, f"{place}: {name}")
        if name in _KEY and not (
            isinstance(text, str | NoneType) and kind in (None, EdmType.STRING)
        ):
            raise SeedRefused(f"{place}: {name} must be a str, not {str(value)[:80]}.")
        members[name] = text
        if kind is not None and name + ANNOTATION not in entity:
            members[name + ANNOTATION] = kind.value
    for name in _KEY:
        if members.get(name) is None:
            raise SeedRefused(f"{place} has no {name}.")
    return orjson.dumps(members)


def _typed(value: Any, place: str) -> tuple[Any, EdmType | None]:
    """A value in the service's JSON, and its type if the JSON value alone does not show it."""
    if isinstance(value, tuple) and len(value) == 2:
        text, _ = _typed(value[0], place)
        try:
            kind = EdmType(getattr(value[1], "value", value[1]))
        except ValueError:
            raise SeedRefused(f"{place}: {value[1]!r} is not a type such as Edm.Int64.") from None
        if kind is EdmType.INT32 and isinstance(value[0], int):
            _require_within(value[0], kind, INT32_MIN, INT32_MAX, place)
        return (str(text) if kind is EdmType.INT64 else text), kind
    if isinstance(value, str) and not _is_text(value):
        raise SeedRefused(
            f"{place}: {value[:80]!r} has half of a surrogate pair, which UTF-8 cannot encode."
        )
    if value is None or isinstance(value, bool | str):
        return value, None
    if isinstance(value, int):
        _require_within(value, EdmType.INT64, INT64_MIN, INT64_MAX, place)
        return (value, None) if INT32_MIN <= value <= INT32_MAX else (str(value), EdmType.INT64)
    if isinstance(value, float):
        return _NOT_FINITE.get(str(value), value), EdmType.DOUBLE
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii"), EdmType.BINARY
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise SeedRefused(f"{place}: {value} has no time zone.")
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), EdmType.DATE_TIME
    if isinstance(value, UUID):
        return str(value), EdmType.GUID
    raise SeedRefused(f"{place}: a property cannot have the type {type(value).__name__}.")


def _require_within(value: int, kind: EdmType, first: int, last: int, place: str) -> None:
    if not first <= value <= last:
        bits = value.bit_length()
        shown = str(value) if bits <= 128 else f"a number of {bits} bits"
        raise SeedRefused(f"{place}: an {kind.value} is from {first} to {last}, not {shown}.")


def _is_text(value: Any) -> bool:
    """Whether the value is a text that UTF-8 can encode."""
    return isinstance(value, str) and value.encode(errors="ignore").decode() == value


class State:
    """The state of a storage. It opens the engine; its `tables` carry out operations without recording them."""

    def __init__(
        self, configuration: Configuration, clock: StorageClock, secondary: Secondary
    ) -> None:
        self.primary = open_engine(configuration.engine, clock.ticks)
        self._secondary = secondary
        self.engine = FollowedEngine(self.primary, secondary, at_once=True)
        """What it commits is not recorded, and reaches the secondary at once."""
        self._retention = configuration.keep_changes
        self.tables = TableService(
            *(self.engine, clock.ticks, clock.elapsed_seconds, storage_keys.fresh_table_id),
            entity_limits=configuration.entity_limits,
        )
        self._sweeper = Sweeper(self.engine, clock.ticks, storage_keys.fresh_table_id)
        self._accounts = StoredAccounts(self.engine, clock.ticks)
        self._permanent = [account.name for account in configuration.accounts]
        self._configured = self._permanent.copy()
        if configuration.has_development_account:
            self._configured.append(DEVELOPMENT_ACCOUNT_NAME)
        self._numbers = count(1)

    async def snapshot(self) -> Snapshot:
        return Snapshot(self._memory().contents())

    async def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot, with the same ETags. Requests under way may see either state."""
        if not isinstance(snapshot, Snapshot):
            raise StateRefused(
                f"restore() takes a Snapshot, not {str(snapshot)[:80]!r}: Snapshot.load(path) reads one from a file."
            )
        memory = self._memory()
        await memory.changes.keep(None)  # no record of changes spans a restore
        memory.replace(snapshot.contents)
        await memory.changes.keep(self._retention)
        self._secondary.replace(snapshot.contents)

    def _memory(self) -> MemoryEngine:
        if not isinstance(self.primary, MemoryEngine):
            raise StateRefused("A snapshot needs the memory engine; reset() and seed() do not.")
        return self.primary

    async def account_names(self) -> list[str]:
        """The configured accounts, and those that were created since."""
        return [*self._configured, *(account.name for account in await self._accounts.all())]

    async def create_account(self, name: str | None) -> tuple[str, str]:
        """Create an account without tables. Returns its name (a new one if none is given) and its key."""
        if name is None:
            # A snapshot of another storage may have brought accounts with such names.
            name = f"account{next(self._numbers):06d}"
            while await self._accounts.exists(name):
                name = f"account{next(self._numbers):06d}"
        elif not is_account_name(name):
            raise StorageRefused(
                f"{name[:40]!r} is not an account name: it has 3 to 24 lower-case letters and digits."
            )
        if name in self._configured:
            raise StorageRefused(f"There is an account {name} already.")
        key = generate_key()
        try:
            await self._accounts.create(name, (key,))
        except AccountRefused as refused:
            raise StorageRefused(str(refused)) from None
        return name, key

    async def delete_account(self, name: str) -> None:
        """Delete an account that was created here, and its tables."""
        if not await self._accounts.exists(name):
            raise StorageRefused(f"There is no account {name[:40]!r} that was created here.")
        await self._accounts.delete(name, with_tables=True)

    async def reset(self, account: str | None, table: str | None) -> None:
        if account is None:
            for name in await self.account_names():
                await self._empty_account(name)
            return
        await self._require_account(account)
        if table is None:
            await self._empty_account(account)
        else:
            await self._empty_table(account, table)

    async def changes(self, account: str, since: ChangesSince) -> ChangesFound:
        """The next changes of an account. Raises `StorageError` if a restore has begun a new record since."""
        if not self.tables.feeds.are_kept:
            raise StorageRefused("This storage keeps no changes: make it with keep_changes=True.")
        found = await self.tables.execute(await self._owner(account), ReadAccountChanges(since))
        assert isinstance(found, ChangesFound)
        return found

    async def set_expiry(self, account: str, table: str, policy: ExpiryPolicy | None) -> None:
        owner = await self._owner(account)
        if await self.tables.catalog.find(owner, table) is None:
            raise StorageRefused(f"There is no table {table} in account {account}.")
        await self.tables.catalog.change_expiry(owner, table, lambda _old: policy)

    async def _owner(self, account: str) -> Named:
        """The account in its present incarnation, as its requests name it."""
        await self._require_account(account)
        if account in self._permanent:
            return Named(account)
        return Named(account, await self.tables.catalog.incarnations.current(account))

    async def _require_account(self, name: str) -> None:
        if name not in self._configured and not await self._accounts.exists(name):
            raise StorageRefused(f"There is no account {name[:40]!r} in this storage.")

    async def _empty_account(self, account: str) -> None:
        """Delete all tables of the account and its service properties, but not the account."""
        catalog = self.tables.catalog
        await catalog.delete_all(await self._owner(account))
        while await self._sweeper.sweep(account):
            pass
        properties: PropertiesOfAccounts = self.tables.properties
        await properties.reset(account, await catalog.incarnations.current(account))

    async def delete_table(self, account: str, table: str) -> None:
        owner = await self._owner(account)
        with suppress(StorageError):
            await self.tables.catalog.delete(owner, table)

    async def _empty_table(self, account: str, table: str) -> None:
        """Delete all entities of a table, but not its policies."""
        owner = await self._owner(account)
        with _refusing(account, table):
            record = await self.tables.catalog.require(owner, table)
        note = note_about(CommitKind.ENTITIES, owner, record)
        async for rows in scan_in_steps(self.engine, storage_keys.table_range(record.table_id)):
            for partition, group in groupby(rows, key=lambda row: row.partition):
                changes = [Change(row.row, ANY, DELETE) for row in group]
                await self.engine.commit(
                    WriteSet(partition, changes, note=note, entries_of=record.entries_of)
                )

    async def create_index(self, account: str, table: str, name: str, *, partition: bool) -> None:
        owner = await self._owner(account)
        with _refusing(account, table):
            index = IndexWork(self.tables.catalog, owner, table, name)
            await index.create(within_partition=partition)

    async def drop_index(self, account: str, table: str, name: str) -> None:
        owner = await self._owner(account)
        with _refusing(account, table):
            await IndexWork(self.tables.catalog, owner, table, name).drop()

    async def seed(self, account: str, rows: Iterable[SeedRow], tables: Sequence[str]) -> int:
        """Check all entities; then create the missing tables and store the entities. Returns their number."""
        owner = await self._owner(account)
        writes = []
        places: dict[tuple[str, EntityKey], str] = {}
        for table in tables:
            try:
                require_new_table_name(table)
            except StorageError as error:
                raise SeedRefused(f"{table[:80]!r}: {error.code}: {error.text}") from None
        for row in rows:
            try:
                entity = decode_entity(row.body, None, self.tables.entity_limits)
                require_key_length(entity.key)
            except StorageError as error:
                raise SeedRefused(f"{row.place}: {error.code}: {error.text}") from None
            first = places.setdefault((row.table.lower(), entity.key), row.place)
            if first is not row.place:
                partition_key, row_key = entity.key
                raise SeedRefused(
                    f"{row.place}: {first} has this key too, PartitionKey {partition_key!r} and RowKey {row_key!r}."
                )
            writes.append(InsertOrReplaceEntity(row.table, entity))
        for table in tables:
            if await self.tables.catalog.find(owner, table) is None:
                await self.tables.catalog.create(owner, table)
        for write in writes:
            await self.tables.execute(owner, write)
        return len(writes)

    async def dump(self, account: str) -> Dump:
        """The entities of all tables of the account, without ETags and Timestamps."""
        await self._require_account(account)
        found: Dump = {}
        async for rows in scan_in_steps(self.engine, storage_keys.table_rows_from(account, "")):
            for record in (read_record(row.value) for row in rows):
                found[record.name] = await self._entities(record.table_id)
        return found

    async def _entities(self, table_id: bytes) -> list[dict[str, Any]]:
        entities: list[dict[str, Any]] = []
        async for rows in scan_in_steps(self.engine, storage_keys.table_range(table_id)):
            for row in rows:
                entity = orjson.loads(row.value)
                for member in _SYSTEM_MEMBERS:
                    entity.pop(member, None)
                entities.append(entity)
        return entities


@contextmanager
def _refusing(account: str, table: str) -> Iterator[None]:
    try:
        yield
    except IndexRefused as refused:
        raise StateRefused(str(refused)) from None
    except StorageError:
        raise StateRefused(f"The account {account} has no table {table}.") from None
