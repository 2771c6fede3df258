"""Entities and tables written as JSON, at every metadata level (wire 5.2).

Starts from the stored form of `entity_json`, which is minimalmetadata already; the other levels are made from its text.
Errors are the same at every level. Does not know headers or methods. Reading is in `json_reader`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from tablestone.model.entity_json import (
    key_of,
    read_raw,
    select_members,
    split_etag,
    with_typed_timestamp,
    without_metadata,
)
from tablestone.model.keys import EntityKey
from tablestone.model.operations import Projection
from tablestone.model.typed_json import quote
from tablestone.wire.address import format_entity_path, format_table_path
from tablestone.wire.negotiate import MetadataLevel

JSON_TYPES: Final = {
    level: f"application/json;odata={level.value};streaming=true;charset=utf-8".encode("ascii")
    for level in MetadataLevel
}
"""The Content-Type of all answers at a level, errors included (wire 2.3)."""


def json_error(code: str, message: str) -> bytes:
    """The body of an error, the same at every level; `message` is its whole text (wire 8.1)."""
    text = f'{{"odata.error":{{"code":"{code}","message":{{"lang":"en-US","value":{quote(message)}}}}}}}'
    return text.encode("ascii")


def _context(base: str, fragment: str) -> bytes:
    """The `odata.metadata` member."""
    return f'"odata.metadata":{quote(f"{base}$metadata#{fragment}")}'.encode("ascii")


_SHORT: Final = 512
"""The length in characters of a fragment, which repeats `$select`, up to which its member is cached."""
# Requests name the same few tables.
_short_context = functools.lru_cache(maxsize=512)(_context)


class JsonWriter:
    """Writes tables and entities of one account below one base URL.

    `base` is the URL of the account with a slash at the end.
    """

    def __init__(self, base: str, account: str, level: MetadataLevel) -> None:
        self._base = base
        self._account = account
        self._level = level
        self.entry_type = self.feed_type = self.error_type = JSON_TYPES[level]

    def error(self, code: str, message: str) -> bytes:
        """An error; `message` is its whole text (wire 8.1)."""
        return json_error(code, message)

    def _context(self, fragment: str) -> bytes:
        context = _short_context if len(fragment) <= _SHORT else _context
        return context(self._base, fragment)

    def table(self, table: str) -> bytes:
        """One table (wire 3.2, 3.3)."""
        members = self._table_members(table).encode("ascii")
        if self._level is MetadataLevel.NONE:
            return b"{" + members + b"}"
        return b"{" + self._context("Tables/@Element") + b"," + members + b"}"

    def tables(self, tables: Sequence[str]) -> bytes:
        """A list of tables (wire 3.1)."""
        values = ",".join([f"{{{self._table_members(table)}}}" for table in tables]).encode("ascii")
        context = b"" if self._level is MetadataLevel.NONE else self._context("Tables") + b","
        return b"{" + context + b'"value":[' + values + b"]}"

    def _table_members(self, table: str) -> str:
        name = f'"TableName":{quote(table)}'
        if self._level is not MetadataLevel.FULL:
            return name
        path = format_table_path(table)
        return (
            f'"odata.type":{quote(self._account + ".Tables")},"odata.id":{quote(self._base + path)},'
            f'"odata.editLink":{quote(path)},{name}'
        )

    def entity(self, table: str, stored: bytes, projection: Projection | None) -> bytes:
        """One entity (wire 5.2)."""
        text = self.listed(table, stored, projection)
        if self._level is MetadataLevel.NONE:
            return text
        return b"{" + self._context(f"{table}/@Element{_selected(projection)}") + b"," + text[1:]

    def lists_as_stored(self, projection: Projection | None) -> bool:
        """Whether a list has the entities as they are stored: then they are joined and not encoded again."""
        return self._level is MetadataLevel.MINIMAL and (
            projection is None or projection.names is None
        )

    def listed(self, table: str, stored: bytes, projection: Projection | None) -> bytes:
        """One entity in the form that it has in a list."""
        full = self._level is MetadataLevel.FULL
        text = stored
        if projection is not None and projection.names is not None:
            text = select_members(stored, projection.names)
        if full:
            return self._with_links(table, key_of(read_raw(stored)), with_typed_timestamp(text))
        return text if self._level is MetadataLevel.MINIMAL else without_metadata(text)

    def entities(self, table: str, listed: Sequence[bytes], projection: Projection | None) -> bytes:
        """A list of entities, each in the form of `listed`."""
        values = b",".join(listed)
        if self._level is MetadataLevel.NONE:
            return b'{"value":[' + values + b"]}"
        context = self._context(table + _selected(projection))
        return b"{" + context + b',"value":[' + values + b"]}"

    def _with_links(self, table: str, key: EntityKey, text: bytes) -> bytes:
        """`odata.type`, `odata.id`, then the ETag, then `odata.editLink`, as recorded (wire 5.2)."""
        path = format_entity_path(table, key)
        etag, rest = split_etag(text)
        links = f'"odata.type":{quote(f"{self._account}.{table}")},"odata.id":{quote(self._base + path)},'
        edit_link = f',"odata.editLink":{quote(path)}'
        comma = b"" if rest == b"}" else b","
        return b"{" + links.encode("ascii") + etag + edit_link.encode("ascii") + comma + rest


def _selected(projection: Projection | None) -> str:
    """The projection in `odata.metadata`: the list as sent, with only `%2C` decoded (wire 5.2)."""
    return "" if projection is None else f"&$select={projection.as_sent}"
