"""Judges whether the tables of a target are still those that were followed, from both sides and the feed.

A table is the same if the target has one of the remembered keys, unchanged or written later. If it has none, each must
have expired, or be deleted by the feed after the position: an earlier run may have applied that. If also no key of the
last check is unchanged, none of those keys that the source still has may be missing, and the target must have one of
the source's entities that the feed does not name, if there are any.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from tablestone.clock import system_clock
from tablestone.model.edm import format_date_time
from tablestone.model.entity import TIMESTAMP
from tablestone.model.etag import parse_etag
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey
from tablestone.tools import odata
from tablestone.tools.changes import ChangesPage
from tablestone.tools.client import Query
from tablestone.tools.copying import MARGIN_TICKS, Side
from tablestone.tools.errors import TransferFailed, read_json
from tablestone.tools.positions import Followed
from tablestone.tools.writing import same_properties

SAMPLE: Final = 1000
"""Keys to read from the source, to find some that the feed does not name; doubled while it names all of them."""
SAMPLE_MAX: Final = 64_000
UNNAMED_MAX: Final = 8
"""The most of those to look for at the target."""


class Verdict(enum.Enum):
    """What to do with a table: go on following it, copy it again, or ask a person."""

    SAME = "same"
    AGAIN = "again"
    ASKED = "asked"


@dataclass
class Evidence:
    """What was found out about a table. `keys` were remembered, and `explained` of them may be missing.

    `unnamed`: whether the target has an entity of the source that the feed after the position does not name; None if
    there is no such entity, or none was looked for.
    """

    is_begun: bool = True
    exists: bool = True
    is_empty: bool = False
    keys: int = 0
    is_there: bool = False
    explained: int = 0
    is_deleted: bool = False
    unnamed: bool | None = None
    sample: set[EntityKey] = field(default_factory=set)
    """Keys of the source that the feed does not name."""
    deleted: set[EntityKey] = field(default_factory=set)
    """Keys that the feed deletes."""
    has_more: bool = False
    """Whether the source has more keys than were read for the sample."""


def judge(found: Evidence) -> Verdict:
    is_known = found.is_there or (found.is_begun and found.exists and found.explained == found.keys)
    if found.is_deleted or (is_known and found.unnamed is not False):
        return Verdict.SAME
    return Verdict.AGAIN if found.is_empty or not found.exists else Verdict.ASKED


Feed = Callable[[str], Iterable[ChangesPage]]


class Judgement:
    """Collects the evidence from both sides and the feed. `feed` returns its pages after a cursor."""

    def __init__(self, source: Side, target: Side, feed: Feed, parallel: int) -> None:
        self._source, self._target, self._feed, self._parallel = source, target, feed, parallel

    def verdicts(
        self, tables: Sequence[Followed], cursor: str, *, is_adopted: bool = False
    ) -> list[Verdict]:
        """The verdict on each table at this position. `is_adopted` tables have no keys: entities must be equal."""
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="look") as pool:
            evidence = list(pool.map(self._at_target, tables))
        doubts = {
            followed.name.lower(): (followed, found)
            for followed, found in zip(tables, evidence, strict=True)
            if found.is_begun
            and found.unnamed is None
            and (found.keys or followed.is_copied or is_adopted or not found.exists)
        }
        size, left = SAMPLE, {name: found for name, (_, found) in doubts.items()}
        while left and size <= SAMPLE_MAX:
            self._read_feed(left, cursor, size)
            left = {name: each for name, each in left.items() if each.has_more and not each.sample}
            size *= 2
        for followed, found in doubts.values():
            followed.is_deleted_later = found.is_deleted
            if found.exists and not found.is_deleted:
                self._explain(followed, found, is_adopted=is_adopted)
        return [judge(found) for found in evidence]

    def _at_target(self, followed: Followed) -> Evidence:
        name, looked = followed.name, followed.looked
        found = Evidence(bool(followed.copy.get("begun")), keys=len(followed.keys))
        for key, etag in {**looked, **followed.keys}.items():
            raw = self._target.get(name, key)
            if raw is not None and looked.get(key) == raw[odata.ETAG]:
                # Unchanged since the last check, so it is the same table.
                found.is_there = found.unnamed = True
                return found
            if raw is not None and key in followed.keys:
                found.is_there |= parse_etag(raw[odata.ETAG]) >= parse_etag(etag)
        if not found.is_there:
            try:
                first = self._target.reader().entities(Query(name, top=1))
                found.is_empty = next(first, None) is None
            except TransferFailed as failed:
                if failed.code not in ("TableNotFound", "TableBeingDeleted"):
                    raise
                found.exists = False
        return found

    def _read_feed(self, doubts: Mapping[str, Evidence], cursor: str, size: int) -> None:
        for name, found in doubts.items():
            entities = self._source.reader().entities(Query(name, select=(PARTITION_KEY, ROW_KEY)))
            try:
                found.sample = {odata.key_of(raw) for raw in islice(entities, size)}
                found.has_more = next(entities, None) is not None
            except TransferFailed as failed:
                if failed.code != "TableNotFound":
                    raise
        for line in (read_json(line) for page in self._feed(cursor) for line in page.lines):
            if (table := doubts.get(line["table"].lower())) is None:
                continue
            if line["kind"] == "table-deleted":
                table.is_deleted = True
            elif line["kind"] != "table-created":
                key = odata.key_of(line.get("entity", line))
                table.sample.discard(key)
                if "entity" not in line:
                    table.deleted.add(key)

    def _explain(self, followed: Followed, found: Evidence, *, is_adopted: bool) -> None:
        """Look at the source for the remembered keys, and at both sides for entities that the feed does not name."""
        name = followed.name
        now = (self._target(lambda target: target.service_time()) or system_clock()) + MARGIN_TICKS
        policy = self._target(lambda target: target.expiry(name))

        def is_kept(key: EntityKey, etag: str) -> bool:
            # A key that the feed does not delete and the source does not have has expired.
            raw = None if key in found.deleted else self._source.get(name, key)
            if raw and policy:
                stamped = {**raw, TIMESTAMP: format_date_time(parse_etag(etag))}
                return not policy.has_ended(stamped, now)
            return raw is not None

        found.explained = sum(not is_kept(*each) for each in followed.keys.items())
        if any(
            self._target.get(name, key) is None and is_kept(key, etag)
            for key, etag in followed.looked.items()
        ):
            found.unnamed = False
            return
        if is_adopted and found.has_more and not found.sample:
            found.unnamed = False
        # Remembered keys may have been written after everything else was lost. A copy begins with the lowest keys.
        sample = sorted(found.sample - followed.keys.keys() - followed.looked.keys())
        sample = sample or sorted(found.sample)
        step = max(1, len(sample) // UNNAMED_MAX) if followed.is_copied else 1
        for key in sample[::step][:UNNAMED_MAX]:
            raw = self._source.get(name, key)
            if raw and not (policy and policy.has_ended(raw, now)):
                there = self._target.get(name, key)
                found.unnamed = there is not None and (
                    not is_adopted or same_properties(raw, there)
                )
                if found.unnamed:
                    return
