"""Values over 64 KiB, over 252 properties or over 1 MiB: in several properties, or in several rows of the partition."""

import hashlib
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from azure.data.tables import TableEntity, UpdateMode
from azure.data.tables.aio import TableClient

from table_patterns.aio.answers import FAILED, quoted, require_client, stored_entity, submitted
from table_patterns.aio.partitions import bulk_delete
from table_patterns.errors import Conflicts, OutcomeUnknown, ValueDamaged
from table_patterns.keys import CompositeKey, KeyPartError, Padded
from table_patterns.results import Swept
from table_patterns.service_time import ServiceTime
from table_patterns.values import bytes_of, value_of

PROPERTY_BYTES: Final = 64 * 1024
PROPERTIES: Final = 11
"""Of a row, so that it stays below 1 MiB, also as JSON: aiohttp warns that a longer body may hold up the event loop."""
ROW_BYTES: Final = PROPERTIES * PROPERTY_BYTES
ABANDONED_AFTER: Final = timedelta(hours=1)
READS_MAX: Final = 20
_PART: Final = CompositeKey(str, str, Padded(5), prefix="~part!")
_MANIFEST: Final = CompositeKey(str, str, prefix="~writing!")
_OWN: Final = ("~part!", "~writing!")
_FORBIDDEN: Final = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")
_CHUNKS: Final = [f"Chunk{number:02}" for number in range(PROPERTIES)]


class LargeValues:
    """Large values of a table: `bytes`, `str`, or a mapping of property names to values, of any number.

    A reader gets the whole of one version, never half a value: the parts carry a version, and one transaction makes the
    version valid. Compressed if that makes a value smaller. The rows of parts begin with `~part`, those of writers with
    `~writing`; they have the partition key of the value.
    """

    def __init__(self, table: TableClient) -> None:
        self._table = require_client(table)

    async def put(
        self, partition_key: str, row_key: str, value: bytes | str | Mapping[str, Any]
    ) -> None:
        """Store a value, over what is there. After an error, that or the new value is there.

        Raises `OutcomeUnknown` if that cannot be told, because others have written since; `KeyPartError` for a row key
        that leaves no room for those of parts; `ValueError` for one that begins like theirs, or
        that has characters which the service forbids.
        """
        if not isinstance(row_key, str):
            raise TypeError(f"{row_key!r} is no text, so no key.")
        if row_key.startswith(_OWN):
            raise ValueError(f"Row keys that begin with {' or '.join(_OWN)} are those of parts.")
        if _FORBIDDEN.search(row_key):  # the service would refuse it last, after all parts
            raise ValueError(f"{row_key!r} has characters that the service forbids in keys.")
        kind, plain = bytes_of(value)
        packed = zlib.compress(plain)
        is_packed = len(packed) < len(plain)
        data = packed if is_packed else plain
        version = uuid4().hex
        head = {
            "PartitionKey": partition_key,
            "RowKey": row_key,
            "Version": version,
            "Kind": kind,
            "IsPacked": is_packed,
            "Sha256": hashlib.sha256(data).hexdigest(),
            "Parts": 0,
        }
        before = await stored_entity(self._table, partition_key, row_key)
        if len(data) <= ROW_BYTES:
            await self._table.upsert_entity({**head, **_chunks(data)}, UpdateMode.REPLACE)
        else:
            await self._put_parts(head, data)
        await self._delete_parts_of(before)

    async def _put_parts(self, head: dict[str, Any], data: bytes) -> None:
        partition_key, row_key, version = head["PartitionKey"], head["RowKey"], head["Version"]
        starts = range(0, len(data), ROW_BYTES)
        manifest = {"PartitionKey": partition_key, "RowKey": _MANIFEST.encode(row_key, version)}
        await self._table.upsert_entity(manifest, UpdateMode.REPLACE)
        for number, start in enumerate(starts):
            keys = {"PartitionKey": partition_key, "RowKey": _PART.encode(row_key, version, number)}
            part = {**keys, "Version": version}
            part |= _chunks(data[start : start + ROW_BYTES])
            await self._table.upsert_entity(part, UpdateMode.REPLACE)
        # The manifest is there until the value is valid: who deletes it first, this writer or a sweep, has decided.
        valid = {**head, "Parts": len(starts)}
        operations: list[Any] = [
            ("upsert", valid, {"mode": UpdateMode.REPLACE}),
            ("delete", manifest),
        ]
        if refused := await submitted(self._table, operations, 404):
            now = await stored_entity(self._table, partition_key, row_key)
            if (
                now is None or now.get("Version") != version
            ):  # else by an attempt whose answer was lost
                raise OutcomeUnknown(
                    f"The value of {row_key} took too long to write and was given up, or it has been replaced since."
                ) from refused

    async def get(self, partition_key: str, row_key: str) -> bytes | str | dict[str, Any] | None:
        """The value, or None. Raises `ValueDamaged` if its parts are not those that were stored;
        `Conflicts` if others replaced it each time that it was read.
        """
        version = None
        for _ in range(READS_MAX):
            head = await stored_entity(self._table, partition_key, row_key)
            if head is None:
                return None
            if "Sha256" not in head:
                raise ValueDamaged(f"{row_key} is no large value.")
            data = await self._data(head)
            if hashlib.sha256(data).hexdigest() == head["Sha256"]:
                return value_of(head["Kind"], zlib.decompress(data) if head["IsPacked"] else data)
            if head["Version"] == version:
                raise ValueDamaged(
                    f"The parts of {row_key} are not those of its version {version}."
                )
            version = head["Version"]  # replaced while it was read, so its parts are gone
        raise Conflicts(f"{row_key} was replaced each of the {READS_MAX} times that it was read.")

    async def _data(self, head: TableEntity) -> bytes:
        if not head["Parts"]:
            return _joined(head)
        parts = self._table.query_entities(
            _parts_filter(head["PartitionKey"], head["RowKey"], head["Version"])
        )
        return b"".join([_joined(part) async for part in parts])

    async def delete(self, partition_key: str, row_key: str) -> bool:
        """Delete a value; returns whether it was there."""
        head = await stored_entity(self._table, partition_key, row_key)
        if head is None:
            return False
        await self._table.delete_entity(partition_key, row_key)
        await self._delete_parts_of(head)
        return True

    async def sweep(
        self, partition_key: str | None = None, older_than: timedelta = ABANDONED_AFTER
    ) -> Swept:
        """Find and delete the parts that no value has: of one partition, or of the whole table, which it reads then.

        A writer that has been writing one value for longer than `older_than`, by the service's clock, is given up: it
        gets `OutcomeUnknown`.
        """
        where = (
            f"PartitionKey eq '{quoted(partition_key)}' and " if partition_key is not None else ""
        )
        writers = parts = 0
        clock = ServiceTime()
        writing = self._table.query_entities(
            where + _MANIFEST.filter("RowKey"), raw_response_hook=clock
        )
        async for manifest in writing:
            with suppress(KeyPartError):  # somebody's own row
                _MANIFEST.decode(manifest["RowKey"])
                if clock.is_older(manifest, older_than):
                    await self._table.delete_entity(manifest)
                    writers += 1
        seen: set[tuple[str, str, str]] = set()
        found = self._table.query_entities(
            where + _PART.filter("RowKey"), select=["PartitionKey", "RowKey"]
        )
        async for part in found:
            with suppress(KeyPartError):  # somebody's own row: it is no part
                row_key, version, _ = _PART.decode(part["RowKey"])
                seen.add((part["PartitionKey"], row_key, version))
        for partition, row_key, version in sorted(seen):
            # In this order: without a manifest no writer can make the version valid any more.
            manifest_key = _MANIFEST.encode(row_key, version)
            if await stored_entity(self._table, partition, manifest_key):
                continue
            head = await stored_entity(self._table, partition, row_key)
            if head is None or head.get("Version") != version:
                parts += await self._delete_parts(partition, row_key, version)
        return Swept(writers, parts)

    async def _delete_parts_of(self, head: TableEntity | None) -> None:
        """Delete the parts of a value that is not valid any more."""
        if head is not None and "Sha256" in head and head["Parts"]:
            with suppress(*FAILED):  # the value is written, and a sweep can do the rest
                await self._delete_parts(head["PartitionKey"], head["RowKey"], head["Version"])

    async def _delete_parts(self, partition_key: str, row_key: str, version: str) -> int:
        done = await bulk_delete(self._table, _parts_filter(partition_key, row_key, version))
        return done.deleted


def _parts_filter(partition_key: str, row_key: str, version: str) -> str:
    parts = _PART.filter("RowKey", row_key, version)
    return f"PartitionKey eq '{quoted(partition_key)}' and {parts}"


def _chunks(data: bytes) -> dict[str, bytes]:
    starts = range(0, len(data), PROPERTY_BYTES)
    return {
        name: data[start : start + PROPERTY_BYTES]
        for name, start in zip(_CHUNKS, starts, strict=False)
    }


def _joined(row: TableEntity) -> bytes:
    return b"".join(row[name] for name in _CHUNKS if name in row)
