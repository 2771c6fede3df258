"""Judges whether the tables of a target are those that were followed, by what both sides and the feed say.

A table is the same if one of its remembered keys is there, as it was or written later. If none is, all of them must be
deleted by the feed after the position, which an earlier run may have applied, or expired. And if no key of the last
look is there as it was, none of them that the source still has may be missing, and one of the source's entities that
the feed does not name must be there, if it has any.
"""

import enum
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tablestone.clock import system_clock
from tablestone.model.edm import format_date_time
from tablestone.model.entity import TIMESTAMP
from tablestone.model.etag import parse_etag
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey
from tablestone.tools import odata
from tablestone.tools.changes import pages_of_changes
from tablestone.tools.client import Query
from tablestone.tools.copying import Side
from tablestone.tools.errors import TransferFailed, read_json
from tablestone.tools.positions import Followed
from tablestone.tools.writing import same_properties

SAMPLE: Final = 1000
"""Keys of the source among which those are that the feed does not name."""
UNNAMED_MAX: Final = 8


class Verdict(enum.Enum):
    """What becomes of a table: it is followed, is copied again, or only a person can say."""

    SAME = "same"
    AGAIN = "again"
    ASKED = "asked"


class Evidence(NamedTuple):
    """What was read of a table. `keys` are remembered ones, of which `explained` may be missing.

    `unnamed` says whether an entity of the source that the feed after the position does not name is at the target; None
    if there is none, or none was looked for.
    """

    is_begun: bool = True
    exists: bool = True
    is_empty: bool = False
    keys: int = 0
    is_there: bool = False
    explained: int = 0
    is_deleted: bool = False
    unnamed: bool | None = None


def judge(found: Evidence) -> Verdict:
    """The verdict on a table."""
    is_known = found.is_there or (found.is_begun and found.exists and found.explained == found.keys)
    if found.is_deleted or (is_known and found.unnamed is not False):
        return Verdict.SAME
    return Verdict.AGAIN if found.is_empty or not found.exists else Verdict.ASKED


@dataclass
class _Doubt:
    """A table of which no key is there, and what the feed after the position says of keys, also of the source."""

    followed: Followed
    sample: set[EntityKey] = field(default_factory=set)
    has_more: bool = False
    deleted: set[EntityKey] = field(default_factory=set)
    is_deleted: bool = False


class Judgement:
    """Looks at both sides. `feed` is the table whose feed is followed; None for that of the account."""

    def __init__(self, source: Side, target: Side, feed: str | None, parallel: int) -> None:
        self._source, self._target, self._feed, self._parallel = source, target, feed, parallel

    def verdicts(
        self, tables: Sequence[Followed], cursor: str, *, is_adopted: bool = False
    ) -> list[Verdict]:
        """The verdict on each table at this position. One that is adopted has no keys, and must be found equal."""
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="look") as pool:
            found = list(pool.map(self._at_target, tables))
        doubts: dict[str, _Doubt] = {}
        for followed, evidence in zip(tables, found, strict=True):
            is_open = evidence.keys > 0 or is_adopted or not evidence.exists
            if evidence.is_begun and evidence.unnamed is None and is_open:
                doubts[followed.name.lower()] = _Doubt(followed)
        if doubts:
            self._read_feed(doubts, cursor)
        for index, followed in enumerate(tables):
            if doubt := doubts.get(followed.name.lower()):
                found[index] = self._explained(doubt, found[index], is_adopted=is_adopted)
                followed.is_deleted_later = doubt.is_deleted
        return [judge(evidence) for evidence in found]

    def _at_target(self, followed: Followed) -> Evidence:
        name, keys = followed.name, followed.keys
        found = Evidence(bool(followed.copy.get("begun")), keys=len(keys))
        try:
            for key, etag in keys.items():
                raw = self._target(lambda target: target.get(name, key))  # noqa: B023 - called at once
                if raw is not None and parse_etag(raw[odata.ETAG]) >= parse_etag(etag):
                    # One that is as it was at the last look shows that nothing is gone. Others may be newer.
                    proves = followed.looked.get(key) == raw[odata.ETAG]
                    found = found._replace(is_there=True, unnamed=True if proves else None)
                    if proves:
                        return found
            for key, etag in followed.looked.items() - keys.items():
                raw = self._target(lambda target: target.get(name, key))  # noqa: B023 - called at once
                if raw is not None and raw[odata.ETAG] == etag:
                    return found._replace(is_there=True, unnamed=True)
            if found.is_there:
                return found
            first = self._target.reader().entities(Query(name, top=1))
            return found._replace(is_empty=next(first, None) is None)
        except TransferFailed as failed:
            if _code_of(failed) in ("TableNotFound", "TableBeingDeleted"):
                return found._replace(exists=False)
            raise

    def _read_feed(self, doubts: dict[str, _Doubt], cursor: str) -> None:
        for name, doubt in doubts.items():
            query = Query(name, select=(PARTITION_KEY, ROW_KEY), top=SAMPLE)
            try:
                page = self._source.reader().page(query, None)
            except TransferFailed as failed:
                if _code_of(failed) != "TableNotFound":
                    raise
            else:
                doubt.sample = {odata.key_of(raw) for raw in page.entities}
                doubt.has_more = page.next_token is not None
        pages = pages_of_changes(
            self._source.endpoint, self._feed, cursor, follows=False, retry=self._source.retry
        )
        for line in (read_json(line) for page in pages for line in page.lines):
            if (found := doubts.get(line["table"].lower())) is None:
                continue
            if line["kind"] == "table-deleted":
                found.is_deleted = True
            elif line["kind"] != "table-created":
                key = odata.key_of(line.get("entity", line))
                found.sample.discard(key)
                if "entity" not in line:
                    found.deleted.add(key)

    def _explained(self, doubt: _Doubt, found: Evidence, *, is_adopted: bool) -> Evidence:
        if doubt.is_deleted or not found.exists:
            return found._replace(is_deleted=doubt.is_deleted)
        name, now = doubt.followed.name, system_clock()
        policy = self._target(lambda target: target.expiry(name))
        explained = 0
        for key, etag in doubt.followed.keys.items():
            raw = None if key in doubt.deleted else self._source.get(name, key)
            # What was not deleted, and is not at the source either, has expired.
            if raw and policy:
                raw = {**raw, TIMESTAMP: format_date_time(parse_etag(etag))}
                raw = None if policy.has_ended(raw, now) else raw
            explained += raw is None
        found = found._replace(explained=explained)
        if not policy and any(
            key not in doubt.deleted
            and self._target.get(name, key) is None
            and self._source.get(name, key) is not None
            for key in doubt.followed.looked
        ):
            return found._replace(unnamed=False)
        may_expire = policy is not None and not policy.suspended
        if may_expire and not is_adopted:
            return found
        unnamed = False if is_adopted and doubt.has_more and not doubt.sample else None
        for key in sorted(doubt.sample)[:UNNAMED_MAX]:
            if raw := self._source.get(name, key):
                there = self._target.get(name, key)
                if there and (not is_adopted or same_properties(raw, there)):
                    return found._replace(unnamed=True)
                unnamed = False
        return found._replace(unnamed=unnamed)


def _code_of(failed: TransferFailed) -> str:
    return getattr(failed.__cause__, "code", "")
