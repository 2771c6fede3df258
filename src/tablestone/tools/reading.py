"""Entities of a table, page by page: the next page is read while this one is used. Also their size and properties."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tablestone.model.edm import EdmType
from tablestone.model.entity import entity_size
from tablestone.model.errors import StorageError
from tablestone.model.keys import PARTITION_KEY
from tablestone.query.filter_parser import parse_filter
from tablestone.tools import odata
from tablestone.tools.client import Page, Query, RawEntity, TableEndpoint, Token, Walk, endless
from tablestone.tools.formats.rows import TYPE_NAMES
from tablestone.tools.progress import Progress, Reached
from tablestone.tools.refusals import TransferFailed, TransferRefused
from tablestone.tools.retrying import ATTEMPTS_MAX, InFlight, Retry
from tablestone.tools.service_errors import ServiceError
from tablestone.tools.writing import quoted

PAGES_AHEAD: Final = 1


@dataclass
class Cost:
    """The cost of reading: requests, entities and bytes received, and the number of retries."""

    requests: int = 0
    entities: int = 0
    bytes: int = 0
    retries: int = 0


def checked_filter(text: str | None) -> str | None:
    """The filter, if our parser reads it; the refusal has its sentence, with the position."""
    if text is None or not text.strip():
        return None
    try:
        parse_filter(text)
    except StorageError as error:
        raise TransferRefused(f"The filter cannot be read: {error.text}") from None
    return text


class TableReader:
    """Reads tables of one endpoint and counts what that takes. A request is tried up to `attempts` times.

    After `patience_seconds` no further attempt begins.
    """

    def __init__(
        self,
        endpoint: TableEndpoint,
        *,
        attempts: int = ATTEMPTS_MAX,
        patience_seconds: float | None = None,
    ) -> None:
        self.cost = Cost()
        self._endpoint = endpoint
        self._retry = Retry(
            InFlight(1 + PAGES_AHEAD), attempts=attempts, patience_seconds=patience_seconds
        )

    def page(self, query: Query, token: Token | None) -> Page:
        """One page, tried again while the service is busy."""
        try:
            page = self._retry(lambda: self._endpoint.page(query, token))
        except ServiceError as error:
            raise TransferFailed(f"{query.table}: {error}") from error
        self.cost.requests += 1
        self.cost.entities += len(page.entities)
        self.cost.bytes += page.size
        self.cost.retries = self._retry.retries
        return page

    def pages(self, query: Query, token: Token | None = None) -> Iterator[Page]:
        """All pages from the token on, the next one read ahead."""
        with ThreadPoolExecutor(PAGES_AHEAD, thread_name_prefix="read") as pool:
            walk = Walk()
            coming = pool.submit(self.page, query, token)
            while True:
                try:
                    page = coming.result()
                finally:
                    # A failure holds this frame and its callers'. If they held it too, they would end as garbage, in
                    # any thread: the other side of a comparison perhaps in the thread that its end waits for.
                    del coming
                if page.next_token is None:
                    yield page
                    return
                if walk.is_back_at(page.next_token):
                    raise endless(query.table)
                coming = pool.submit(self.page, query, page.next_token)
                try:
                    yield page
                except GeneratorExit:
                    coming.cancel()
                    raise

    def entities(self, query: Query) -> Iterator[RawEntity]:
        """All entities of a query in the order of keys; at most `query.top`, where it is given."""
        left = query.top
        for page in self.pages(query):
            yield from page.entities if left is None else page.entities[:left]
            if left is not None:
                left -= len(page.entities)
                if left <= 0:
                    return

    def partition_keys(self, table: str) -> Iterator[str]:
        """The distinct PartitionKeys, each found by a seek behind the one before."""
        last: str | None = None
        while True:
            behind = None if last is None else f"PartitionKey gt {quoted(last)}"
            asked = Query(table, behind, (PARTITION_KEY,), top=1)
            # A page may be empty and have a token: the service stops where a partition server's range ends.
            found = next(self.entities(asked), None)
            if found is None:
                return
            last = str(found[PARTITION_KEY])
            yield last


class TableSize(NamedTuple):
    """How much a table holds. `bytes` is by the documented formula, without Timestamps."""

    table: str
    entities: int
    bytes: int


def size_of(reader: TableReader, table: str, progress: Progress) -> TableSize:
    """Read a table and add up; `TransferFailed` if it is deleted during that."""
    entities = size = 0
    for page in reader.pages(Query(table)):
        for raw in page.entities:
            size += entity_size(*odata.read_entity(raw))
        entities += len(page.entities)
        progress.update(Reached(entities, size))
    return TableSize(table, entities, size)


class Mixed(enum.Enum):
    """The column for a property that has values of several types."""

    FAIL = "fail"
    COLUMNS = "columns"


class Columns:
    """The (property, type) pairs seen so far, with how often, and of times the range and the finest digit."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._seen: dict[tuple[str, EdmType], list[int]] = {
            (name, EdmType(kind)): list(numbers)
            for name, kind, numbers in (state or {}).get("columns", [])
        }

    def state(self) -> dict[str, Any]:
        """The columns as a journal stores them."""
        return {"columns": [(name, kind.value, seen) for (name, kind), seen in self._seen.items()]}

    def add(self, raw: Mapping[str, Any]) -> None:
        """Look at an entity as the service sent it."""
        for name in raw:
            if not odata.is_property(name):
                continue
            value = odata.property_of(raw, name)
            if value is None:
                continue
            seen = self._seen.get((name, value.type))
            if seen is None:
                seen = self._seen[name, value.type] = [0, 0, 0, 0]
            if value.type is EdmType.DATE_TIME:
                assert isinstance(value.value, int)
                seen[1] = min(seen[1], value.value) if seen[0] else value.value
                seen[2] = max(seen[2], value.value)
                seen[3] = max(seen[3], int(value.value % 10 != 0))
            seen[0] += 1

    def pairs(self, mixed: Mixed) -> list[tuple[str, EdmType]]:
        """The columns by name; `TransferFailed` for a property of several types, unless each gets a column."""
        pairs = sorted(self._seen, key=lambda pair: (pair[0], pair[1].value))
        by_name: dict[str, list[EdmType]] = {}
        for name, kind in pairs:
            by_name.setdefault(name, []).append(kind)
        for name, kinds in by_name.items():
            if len(kinds) > 1 and mixed is Mixed.FAIL:
                told = " and ".join(
                    f"{self._seen[name, kind][0]:,} of {kind.value}" for kind in kinds
                )
                raise TransferFailed(
                    f"{name} has values of several types: {told}. --mixed columns gives each type a column of its own."
                )
        return pairs

    def titles(self, mixed: Mixed) -> list[tuple[str, str, EdmType, list[int]]]:
        """Title, property, type and numbers of each column, for a format whose columns need different names."""
        pairs = self.pairs(mixed)
        names = [name for name, _ in pairs]
        return [
            (
                f"{name}:{_short(kind)}" if names.count(name) > 1 else name,
                name,
                kind,
                self._seen[name, kind],
            )
            for name, kind in pairs
        ]


def _short(kind: EdmType) -> str:
    return next(name for name, each in TYPE_NAMES.items() if each is kind)
