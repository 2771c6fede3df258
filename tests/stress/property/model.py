"""The service as plain dicts, written from the specification: the effect and the first error of every operation.

A value is (EDM name, content): a DateTime's content is its text with seven digits of fraction, so that texts compare as
the times do; a null is ("", None). The model makes no ETags: it gets the ETag of a write, and checks it against the
rules of wire 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

Value = tuple[str, Any]
Properties = Mapping[str, Value]
Key = tuple[str, str]

PROPERTIES_MAX = 252  # wire 9
POLICIES_MAX = 5  # auth 7
LETTERS = {
    "insert": "a",
    "update": "u",
    "merge": "u",
    "delete": "d",
    "insert_or_replace": "au",
    "insert_or_merge": "au",
}
"""The letters that a table's signature needs for a write, all of them (auth 3)."""
KINDS = ("insert", "update", "merge", "insert_or_replace", "insert_or_merge", "delete")
NEEDS_MATCH = ("update", "merge", "delete")
WEAK_TAG = re.compile(r'W/"(.*)"')


class Refused(Exception):
    """An operation fails with this code; `index` is that of the failing operation of a transaction."""

    def __init__(self, code: str, index: int = 0) -> None:
        super().__init__(code)
        self.code = code
        self.index = index


@dataclass(frozen=True)
class Write:
    """A write of one entity. `if_match` is the header as sent, None for none."""

    kind: str
    key: Key
    properties: Properties = field(default_factory=dict)
    if_match: str | None = None


@dataclass(frozen=True)
class Stored:
    """An entity: its ETag, and its properties in the order in which they come back."""

    etag: str
    properties: Properties

    @property
    def timestamp(self) -> str:
        """The Timestamp, of which the ETag is made (wire 4), with seven digits."""
        return with_seven_digits(tag_content(self.etag).removeprefix("datetime'").rstrip("'"))


@dataclass(frozen=True)
class Expiry:
    """Entities are absent from `after` seconds after their Timestamp, or from the time in a property."""

    after: int | None
    property: str

    def hides(self, stored: Stored, now: int) -> bool:
        """Whether the entity is absent at this time, in seconds since 1970 times 10^7."""
        if self.after is not None:
            return tenth_microseconds(stored.timestamp) + self.after * 10**7 <= now
        kind, content = stored.properties.get(self.property, ("", None))
        if kind == "Edm.DateTime":
            return tenth_microseconds(content) <= now
        if kind in ("Edm.Int32", "Edm.Int64", "Edm.Double") and abs(content) < float("inf"):
            return Fraction(content) * 10**7 <= now
        return False


@dataclass
class Table:
    """A table: its name as created, its entities, and its stored access policies as permissions by id.

    `rows` has the expired entities too, until they are swept; `expiry` is None while nothing expires.
    """

    name: str
    rows: dict[Key, Stored] = field(default_factory=dict)
    policies: dict[str, str] = field(default_factory=dict)
    expiry: Expiry | None = None

    def live(self, now: int) -> dict[Key, Stored]:
        """The entities that are there at this time."""
        expiry = self.expiry
        if expiry is None:
            return self.rows
        return {key: row for key, row in self.rows.items() if not expiry.hides(row, now)}


def with_seven_digits(text: str) -> str:
    """`...T03:25:45.58Z` or `...T03:25:45Z` with a fraction of seven digits."""
    seconds, _, fraction = text.removesuffix("Z").partition(".")
    return f"{seconds}.{fraction:0<7}Z"


def tenth_microseconds(text: str) -> int:
    """A time with seven digits, since 1970."""
    moment = datetime.fromisoformat(text[:19]).replace(tzinfo=UTC)
    return round(moment.timestamp()) * 10**7 + int(text[20:27])


def tag_content(etag: str) -> str:
    """The content of a weak tag, with plain colons: tags are compared by value (wire 4)."""
    match = WEAK_TAG.fullmatch(etag)
    if match is None:
        raise Refused("InvalidInput")
    return match[1].replace("%3A", ":")


def ordinal(text: str) -> bytes:
    """A key that sorts as the service sorts text: by UTF-16 code unit (wire 6.10)."""
    return text.encode("utf-16-be")


def key_order(key: Key) -> tuple[bytes, bytes]:
    return ordinal(key[0]), ordinal(key[1])


def without_nulls(properties: Properties) -> dict[str, Value]:
    """A null is never stored (wire 5.3)."""
    return {name: value for name, value in properties.items() if value[1] is not None}


def in_ordinal_order(properties: Properties) -> dict[str, Value]:
    """The order of the properties after every write except an insert (wire 3.11)."""
    return {name: properties[name] for name in sorted(properties, key=ordinal)}


class Model:
    """One account. `now` is the server's time, in seconds since 1970 times 10^7."""

    def __init__(self, now: Callable[[], int] = lambda: 0) -> None:
        self.tables: dict[str, Table] = {}
        self.now = now

    def copy_of(self, name: str) -> Model:
        """A model with that one table; changing it does not change this one."""
        copy = Model(self.now)
        if name.lower() in self.tables:
            table = self.tables[name.lower()]
            copy.tables[name.lower()] = replace(table, rows=dict(table.rows))
        return copy

    def create_table(self, name: str) -> None:
        """Names that differ only in case are the same; the first case is kept (wire 1.4)."""
        if name.lower() in self.tables:
            raise Refused("TableAlreadyExists")
        self.tables[name.lower()] = Table(name)

    def delete_table(self, name: str) -> None:
        if self.tables.pop(name.lower(), None) is None:
            raise Refused("ResourceNotFound")

    def get_table(self, name: str) -> str:
        if name.lower() not in self.tables:
            raise Refused("ResourceNotFound")
        return self.tables[name.lower()].name

    def list_tables(self) -> list[str]:
        return [self.tables[folded].name for folded in sorted(self.tables)]

    def table(self, name: str) -> Table:
        if name.lower() not in self.tables:
            raise Refused("TableNotFound")
        return self.tables[name.lower()]

    def get(self, name: str, key: Key) -> Stored:
        stored = self.table(name).live(self.now()).get(key)
        if stored is None:
            raise Refused("ResourceNotFound")
        return stored

    def has(self, name: str, key: Key) -> bool:
        return name.lower() in self.tables and key in self.table(name).live(self.now())

    def sweep(self) -> None:
        """Forget what has expired."""
        for table in self.tables.values():
            table.rows = dict(table.live(self.now()))

    def set_policies(self, name: str, policies: Mapping[str, str]) -> None:
        """Replace all of them (auth 7)."""
        if len(policies) > POLICIES_MAX:
            raise Refused("InvalidXmlDocument")
        self.table(name).policies = dict(policies)

    def permit(self, name: str, policy: str, letters: str) -> None:
        """Raise the error of a signature that names a policy, for an operation that needs these letters (auth 3.9)."""
        table = self.tables.get(name.lower())
        if table is None or policy not in table.policies:
            raise Refused("AuthenticationFailed")
        if not set(letters) <= set(table.policies[policy]):
            raise Refused("AuthorizationPermissionMismatch")

    def entities(self, name: str) -> list[tuple[Key, Stored]]:
        """All of a table, in key order."""
        rows = self.table(name).live(self.now())
        return [(key, rows[key]) for key in sorted(rows, key=key_order)]

    def judge(self, name: str, writes: Sequence[Write], *, alone: bool) -> None:
        """Raise the error of a single write (`alone`) or an entity group transaction; change nothing.

        Errors in the request come first, then the table's, then the entities' (wire 3.9, 7.3).
        """
        seen: set[Key] = set()
        for index, write in enumerate(writes):
            _judge_request(write, index, alone=alone)
            if write.key[0] != writes[0].key[0]:
                raise Refused("CommandsInBatchActOnDifferentPartitions", index)
            if write.key in seen:
                raise Refused("InvalidDuplicateRow", index)
            seen.add(write.key)
        rows = self.table(name).live(self.now())
        for index, write in enumerate(writes):
            _judge_stored(write, rows.get(write.key), index)

    def apply(self, name: str, writes: Sequence[Write], etags: Sequence[str | None]) -> None:
        """Apply writes that `judge` accepted and that were answered with these ETags."""
        rows, live = self.table(name).rows, dict(self.table(name).live(self.now()))
        for write, etag in zip(writes, etags, strict=True):
            current, before = live.get(write.key), rows.get(write.key)
            if write.kind == "delete":
                assert etag is None, "a delete has no ETag (wire 3.9)"
                del rows[write.key]
                continue
            assert etag is not None, "a write answers its ETag (wire 3.9)"
            properties = without_nulls(write.properties)
            if write.kind != "insert":
                properties = in_ordinal_order(_merged(write, current))
            stored = Stored(etag, properties)
            if before is not None:
                assert stored.timestamp > before.timestamp, "Timestamp stood still (wire 4)"
            rows[write.key] = stored


def _merged(write: Write, current: Stored | None) -> dict[str, Value]:
    """A merge keeps the properties that it does not name, and a null never removes a property (wire 3.10)."""
    kept = current.properties if current is not None and "merge" in write.kind else {}
    return {**kept, **without_nulls(write.properties)}


def _judge_request(write: Write, index: int, *, alone: bool) -> None:
    if write.if_match is None:
        if (
            write.kind == "delete"
        ):  # the requests of the test have the version 2019-02-02 (wire 3.10)
            raise Refused("InvalidInput" if alone else "MissingRequiredHeader", index)
    elif write.if_match != "*":
        try:
            tag_content(write.if_match)
        except Refused as refused:
            raise Refused(refused.code, index) from refused
    if len(without_nulls(write.properties)) > PROPERTIES_MAX:
        raise Refused("TooManyProperties", index)


def _judge_stored(write: Write, current: Stored | None, index: int) -> None:
    """The outcome matrix of wire 3.9; then the limits of the result of a merge (wire 9)."""
    if write.kind == "insert":
        if current is not None:
            raise Refused("EntityAlreadyExists", index)
    elif write.kind in NEEDS_MATCH:
        if current is None:
            raise Refused("ResourceNotFound", index)
        assert write.if_match is not None
        if write.if_match != "*" and tag_content(write.if_match) != tag_content(current.etag):
            raise Refused("UpdateConditionNotSatisfied", index)
    if len(_merged(write, current)) > PROPERTIES_MAX:
        raise Refused("TooManyProperties", index)
