"""Writes rows into a table: groups them by partition into transactions and keeps several in flight.

Each row is stored once, or rejected with a reason. If one row makes a transaction fail, the others are sent again
without it. If the answer to a write is lost, the stored entity is compared with the row, so that no row is counted
twice or changed.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import KW_ONLY, asdict, dataclass
from functools import partial
from typing import Final, TypeVar

import orjson

from tablestone import limits
from tablestone.model.edm import EdmType, EdmValue, parse_date_time
from tablestone.model.entity import TIMESTAMP
from tablestone.model.filter_tree import print_literal
from tablestone.model.keys import EntityKey, encode_key
from tablestone.tools import odata
from tablestone.tools.client import BATCH_BYTES_MAX, Operation, Query, RawEntity, TableEndpoint
from tablestone.tools.errors import ServiceError, TransferFailed
from tablestone.tools.formats.rows import Row
from tablestone.tools.retrying import InFlight, Retry

LOOK_PAGES_MAX: Final = 3
"""Pages to read when looking for existing entities; the rest are read one by one."""


class OnConflict(enum.Enum):
    """What to do with a row whose entity exists already."""

    FAIL = "fail"
    SKIP = "skip"
    REPLACE = "replace"
    MERGE = "merge"


_METHODS: Final = {
    OnConflict.FAIL: "POST",
    OnConflict.SKIP: "POST",
    OnConflict.REPLACE: "PUT",
    OnConflict.MERGE: "MERGE",
}


@dataclass
class Tally:
    """The outcomes of rows. `already` counts rows found stored after the answer to a write was lost.

    `bytes` are those of the bodies of `stored` and `already`; `already_bytes` is the part of `already`.
    """

    stored: int = 0
    already: int = 0
    skipped: int = 0
    rejected: int = 0
    bytes: int = 0
    already_bytes: int = 0

    @property
    def rows(self) -> int:
        return self.stored + self.already + self.skipped + self.rejected

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: value + getattr(other, name) for name, value in asdict(self).items()})


Item = TypeVar("Item")
Reject = Callable[[Row, str], None]
CHOICES: Final = "skip, replace or merge"


class EntityConflict(TransferFailed):
    """The target already has another entity with the key of a row (`OnConflict.FAIL`)."""


@dataclass(eq=False)
class TableWriter:
    """Writes rows into one table. After `drain`, every added row is stored, skipped or rejected.

    `resumed`: an earlier run may have sent the rows, so an equal stored entity is no conflict. `tell` is called when
    rows may have been stored, on the thread that calls `add` and `drain`. A refusal names `choices`, the values of
    `--on-conflict` that help.
    """

    endpoint: TableEndpoint
    table: str
    on_conflict: OnConflict
    _: KW_ONLY
    parallel: int
    reject: Reject
    resumed: bool = False
    tell: Callable[[], None] = lambda: None
    has_header: bool = False
    choices: str = CHOICES
    own_before: int | None = None
    """Entities from before this time (ticks) are the table's own: a conflict even where entities are replaced."""
    retry_as: Retry | None = None
    """Sets the attempts, and the name of the service in messages."""

    def __post_init__(self) -> None:
        self.tally = Tally()
        self.retry = self.retry_as or Retry(InFlight(self.parallel))
        self._pool = ThreadPoolExecutor(self.parallel, thread_name_prefix="write")
        self._places = threading.BoundedSemaphore(2 * self.parallel)
        self._lock = threading.Lock()
        self._groups: dict[str, list[Row]] = {}
        self._sizes: dict[str, int] = {}
        self._keys: set[EntityKey] = set()
        self._repeated: set[EntityKey] = set()
        self._futures: set[Future[None]] = set()

    def add(self, row: Row) -> None:
        """Take a row. If a row with its key is in flight, wait for it, so that the later row wins."""
        if row.key in self._keys:
            self.drain()
            self._repeated.add(row.key)
        self._keys.add(row.key)
        partition = row.key.partition_key
        group = self._groups.setdefault(partition, [])
        size = self._sizes.get(partition, 0)
        if group and size + len(row.body) > BATCH_BYTES_MAX:
            self._submit(partition)
            group, size = self._groups.setdefault(partition, []), 0
        group.append(row)
        self._sizes[partition] = size + len(row.body)
        if len(group) >= limits.CHANGE_SET_OPERATIONS_MAX:
            self._submit(partition)

    def drain(self) -> None:
        """Send all rows, and wait until each is answered."""
        for partition in list(self._groups):
            self._submit(partition)
        futures, self._futures = self._futures, set()
        for future in futures:
            future.result()
            self.tell()
        self._keys.clear()

    def close(self) -> None:
        """Finish the requests in flight, send no others, and end the threads."""
        self.retry.stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def count_rejected(self) -> None:
        """Count a row that its reader rejected."""
        self._count(rejected=1)
        self.tell()

    def _submit(self, partition: str) -> None:
        rows = self._groups.pop(partition)
        self._sizes.pop(partition, None)
        self._places.acquire()
        self.tell()
        future = self._pool.submit(self._store, rows)
        future.add_done_callback(lambda _: self._places.release())
        done, self._futures = wait({*self._futures, future}, timeout=0)
        for each in done:
            each.result()  # raises its failure now, not at the next drain

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                setattr(self.tally, name, getattr(self.tally, name) + number)

    def _store(self, rows: Sequence[Row]) -> None:
        """Store, skip or reject every row of a group."""
        pending = list(rows)
        if self.own_before is not None:
            pending = self._without_existing(pending, compare=True)
        method = _METHODS[self.on_conflict]
        uncertain = self.resumed

        def send(rows: list[Row]) -> bool:
            nonlocal uncertain
            operations = [Operation(method, row.key, row.body) for row in rows]
            try:
                self.retry(lambda: self.endpoint.transact(self.table, operations))
            except ServiceError as error:
                uncertain = uncertain or error.is_uncertain
                if error.code == "EntityAlreadyExists":
                    rows[:] = self._without_existing(rows, compare=uncertain)
                    return False
                if error.status in (401, 403, 404) or error.code in _OF_TABLES:
                    raise TransferFailed(f"{self.table}: {error}") from None
                raise
            self._count(stored=len(rows), bytes=sum(len(row.body) for row in rows))
            return True

        def reject(row: Row, error: ServiceError) -> None:
            self._count(rejected=1)
            with self._lock:
                self.reject(row, str(error))

        send_all(pending, send, reject)

    def _without_existing(self, rows: list[Row], *, compare: bool) -> list[Row]:
        """The rows whose keys are free. Handles the others by `OnConflict`."""
        found = self._existing(rows)
        left = []
        for row in rows:
            there = found.get(row.key.row_key)
            is_later = self.own_before is not None and timestamp_of(there) >= self.own_before
            if there is None or is_later:
                left.append(row)
            elif compare and same_properties(there, orjson.loads(row.body)):
                self._count(already=1, bytes=len(row.body), already_bytes=len(row.body))
            elif self.on_conflict is OnConflict.SKIP:
                self._count(skipped=1)
            else:
                # A copy has no rows with numbers.
                header = " (the header is row 1)" if self.has_header else ""
                start = f"Row {row.number}{header}: an" if row.number else "An"
                earlier = ", from an earlier row" if row.key in self._repeated else ""
                raise EntityConflict(
                    f"{start} entity with PartitionKey {row.key.partition_key!r} and RowKey {row.key.row_key!r} "
                    f"is in {self.table} already{earlier}. --on-conflict {self.choices} "
                    f"says what becomes of such {'rows' if row.number else 'entities'}."
                )
        return left

    def _existing(self, rows: Sequence[Row]) -> dict[str, RawEntity]:
        """The stored entities with the keys of these rows of one partition, by RowKey."""
        partition = rows[0].key.partition_key
        wanted = {row.key.row_key for row in rows}
        ordered = sorted(wanted, key=encode_key)
        asked = Query(
            self.table,
            f"PartitionKey eq {quoted(partition)} and RowKey ge {quoted(ordered[0])} "
            f"and RowKey le {quoted(ordered[-1])}",
        )
        found: dict[str, RawEntity] = {}
        token = None
        for _ in range(LOOK_PAGES_MAX):
            page = self.retry(partial(self.endpoint.page, asked, token))
            found |= {raw["RowKey"]: raw for raw in page.entities if raw["RowKey"] in wanted}
            token = page.next_token
            if token is None:
                return found
        for row_key in wanted - found.keys():
            key = EntityKey(partition, row_key)
            there = self.retry(partial(self.endpoint.get, self.table, key))
            if there is not None:
                found[row_key] = there
        return found


def send_all(
    pending: list[Item],
    send: Callable[[list[Item]], bool],
    refused: Callable[[Item, ServiceError], None],
) -> None:
    """Send all as one transaction. Hand each item that the service refuses to `refused`, and send the others again.

    `send` returns whether the list is done; if not, it may have shortened the list. If the service does not say which
    item it refuses, send halves.
    """
    while pending:
        try:
            if send(pending):
                return
        except ServiceError as error:
            if len(pending) == 1 or (error.index is not None and error.index < len(pending)):
                refused(pending.pop(error.index if len(pending) > 1 and error.index else 0), error)
            else:
                half = len(pending) // 2
                send_all(pending[:half], send, refused)
                send_all(pending[half:], send, refused)
                return


_OF_TABLES: Final = frozenset(("TableNotFound", "TableBeingDeleted", "AccountIsDisabled"))


def quoted(text: str) -> str:
    """A string literal of a filter."""
    return print_literal(EdmValue(EdmType.STRING, text))


def timestamp_of(raw: RawEntity | None) -> int:
    """When the service last changed an entity, in ticks; 0 without an entity or a Timestamp."""
    text = raw and raw.get(TIMESTAMP)
    return parse_date_time(text) if text else 0


def same_properties(first: RawEntity, second: RawEntity) -> bool:
    """Whether two entities have equal properties, even if their JSON differs."""
    if odata.content_of(first) == odata.content_of(second):
        return True
    try:
        one, other = (odata.canonical(odata.read_entity(raw)) for raw in (first, second))
    except ValueError:
        return False
    return one == other
