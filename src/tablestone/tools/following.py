"""Applies a feed of changes to a target, so that both sides serve all the time.

Changes of one partition come in their order; those of different partitions are written at the same time. Everything
can be applied twice: a put replaces, and what is deleted already is deleted. So a run that is killed goes on from the
last cursor that it saved, behind which nothing was lost.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, Final

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, monotonic_seconds, system_clock
from tablestone.model.edm import parse_date_time
from tablestone.tools import odata
from tablestone.tools.changes import pages_of_changes
from tablestone.tools.client import Operation, TableEndpoint
from tablestone.tools.copying import carry_expiry, refusal_of
from tablestone.tools.errors import InFlight, Retry, ServiceError, TransferFailed, read_json
from tablestone.tools.progress import shown_count, shown_seconds
from tablestone.tools.resume_journal import Journal
from tablestone.tools.writing import BATCH_BYTES_MAX

ATTEMPTS: Final = 200
"""Attempts of a request, in about an hour: whoever follows is there for days, and a side may be away meanwhile."""
PAGES_JOINED_MAX: Final = 10
"""Pages that are read, at most, while the ones before are written."""
DELETION_PAUSE_SECONDS: Final = 1.0
"""Between attempts to create a table whose name is not free yet."""
TELL_SECONDS: Final = 5.0


class Follower:
    """Applies the feed of a table or of an account to the target, from the journal's cursor on.

    `names` leaves out the changes of other tables, if there are any names.
    """

    def __init__(
        self,
        source: TableEndpoint,
        target: TableEndpoint,
        names: Sequence[str],
        *,
        parallel: int,
        journal: Journal,
        tell: Callable[[str], None],
    ) -> None:
        self._source, self._target, self._journal = source, target, journal
        # The feed of one table needs no more than what reads the table.
        self._table = names[0] if len(names) == 1 else None
        self._names = {name.lower() for name in names}
        self._parallel, self._tell = parallel, tell
        self._told = ("", 0.0)
        self._begun: set[str] = set()
        """Tables that this run has written to: a policy may come after its table, and before the first entity."""
        self.changes = 0
        """How many changes were applied."""

    def take_cursor(self) -> None:
        """Note the present end of the feed, unless an earlier run did."""
        if "cursor" not in self._journal.state:
            page = next(pages_of_changes(self._source, self._table, "now", follows=False))
            self._save(page.cursor)

    def run(self, until: int | None) -> None:
        """Apply the changes as they come; with `until`, end with the last one, or one of that time (ticks)."""
        pages = pages_of_changes(
            self._source,
            self._table,
            self._journal.state["cursor"],
            follows=until is None,
            attempts=ATTEMPTS,
        )
        sent = ""
        joined = 0
        time = 0
        with closing(_Writer(self._target, self._parallel)) as writer:
            writer.reach()
            for page in pages:
                lines = [read_json(line) for line in page.lines]
                self._apply(lines, writer)
                joined += 1
                time = parse_date_time(lines[-1]["time"]) if lines else system_clock()
                if not page.is_last:
                    self._tell_lag(time, is_last=False)
                may_join = lines and not page.is_last and joined < PAGES_JOINED_MAX
                if may_join and writer.is_busy:
                    continue
                writer.wait()
                self._save(sent)
                writer.send()
                sent, joined = page.cursor, 0
                ends = until is not None and (page.is_last or time >= until)
                if page.is_last or ends:
                    writer.wait()
                    self._save(sent)
                    # Only now: what is told to be caught up is stored.
                    self._tell_lag(time, is_last=True, ends=ends)
                    if ends:
                        return

    def _apply(self, lines: list[dict[str, Any]], writer: "_Writer") -> None:
        transaction: list[Operation] = []
        sides = (self._source, self._target)
        expires: dict[str, bool] = {}
        """By tables, whether the target lets entities expire as the source does: then it removes them by itself."""
        for line in lines:
            kind, table = line["kind"], line["table"]
            if self._names and table.lower() not in self._names:
                continue
            if kind == "expired":
                if table not in expires:
                    policy, other = (writer.retry(partial(side.expiry, table)) for side in sides)
                    is_on = policy is not None and not policy.suspended
                    expires[table] = is_on and policy == other
                if expires[table]:
                    continue
            self.changes += 1
            if kind in ("table-created", "table-deleted"):
                # A table's end and beginning divide what is written: the rest may be of another table of the name.
                writer.wait()
                writer.send()
                writer.wait()
                if kind == "table-created":
                    writer.create_table(table)
                    self._begun.discard(table)
                else:
                    writer.delete_table(table)
                continue
            if table not in self._begun:
                self._begun.add(table)
                writer.retry(partial(carry_expiry, *sides, table))
            if kind == "put":
                entity = line["entity"]
                put = Operation("PUT", odata.key_of(entity), odata.body_of(entity))
                transaction.append(put)
            elif kind in ("delete", "expired"):
                transaction.append(Operation("DELETE", odata.key_of(line), if_match="*"))
            else:
                raise TransferFailed(f"This version of Tablestone does not know a change {kind!r}.")
            if not line.get("following"):
                writer.add(table, transaction)
                transaction = []

    def _tell_lag(self, time: int, *, is_last: bool, ends: bool = False) -> None:
        behind = max(0.0, (system_clock() - time) / TICKS_PER_SECOND)
        lag = "caught up" if is_last else f"{shown_seconds(behind)} behind"
        line = f"follow: {shown_count(self.changes, 'change')}, {lag}"
        last, at = self._told
        if line != last and (ends or monotonic_seconds() >= at + TELL_SECONDS):
            self._told = (line, monotonic_seconds())
            self._tell(line)

    def _save(self, cursor: str) -> None:
        if cursor and cursor != self._journal.state.get("cursor"):
            self._journal.save({**self._journal.state, "cursor": cursor})


class _Writer:
    """Joins transactions of a partition, and writes those of several partitions at the same time."""

    def __init__(self, endpoint: TableEndpoint, parallel: int) -> None:
        self._endpoint = endpoint
        self.retry = Retry(InFlight(parallel), attempts=ATTEMPTS)
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="follow")
        self._groups: dict[tuple[str, str], list[dict[str, Operation]]] = {}
        """What was added, by table and partition: transactions in order, each by RowKeys."""
        self._sizes: dict[tuple[str, str], int] = {}
        self._futures: list[Future[None]] = []

    def reach(self) -> None:
        """Fail at once if the address is wrong; later, the service may be away for long."""
        self.retry(self._endpoint.service_time)

    @property
    def is_busy(self) -> bool:
        return not all(future.done() for future in self._futures)

    def add(self, table: str, transaction: Sequence[Operation]) -> None:
        """Take a transaction of the source. It is never divided; of an entity the last state is written."""
        place = (table, transaction[0].key.partition_key)
        groups = self._groups.setdefault(place, [{}])
        size = sum(len(each.body) for each in transaction)
        together = groups[-1].keys() | {each.key.row_key for each in transaction}
        joined = self._sizes.get(place, 0) + size
        if len(together) > limits.CHANGE_SET_OPERATIONS_MAX or joined > BATCH_BYTES_MAX:
            groups.append({})
            joined = size
        groups[-1] |= {each.key.row_key: each for each in transaction}
        self._sizes[place] = joined

    def send(self) -> None:
        """Begin to write what was added. Nothing else may be under way."""
        added, self._groups = self._groups, {}
        self._sizes.clear()
        for (table, _), groups in added.items():
            self._futures.append(self._pool.submit(self._write, table, groups))

    def wait(self) -> None:
        """Wait until all that was sent is stored."""
        futures, self._futures = self._futures, []
        for future in futures:
            future.result()

    def close(self) -> None:
        """End the threads. Finish requests in flight, and send no others."""
        self.retry.stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def create_table(self, table: str) -> bool:
        """Create a table, once its name is free; False if it exists."""
        while True:
            try:
                return self.retry(lambda: self._endpoint.create_table(table))
            except ServiceError as error:
                if error.code != "TableBeingDeleted" or self.retry.stop.wait(
                    DELETION_PAUSE_SECONDS
                ):
                    raise

    def delete_table(self, table: str) -> None:
        """Delete a table, if it exists."""
        try:
            self.retry(lambda: self._endpoint.delete_table(table))
        except ServiceError as error:
            if error.code != "TableBeingDeleted":
                raise

    def _write(self, table: str, groups: Sequence[dict[str, Operation]]) -> None:
        for group in groups:
            self._transact(table, list(group.values()))

    def _transact(self, table: str, pending: list[Operation]) -> None:
        while pending:
            try:
                self.retry(lambda: self._endpoint.transact(table, pending))
            except ServiceError as error:
                if error.code in ("TableNotFound", "TableBeingDeleted"):
                    # A run that was killed had come to the table's deletion, which is still to come in this one.
                    if not self.create_table(table):
                        self.retry.stop.wait(DELETION_PAUSE_SECONDS)
                elif error.status in (401, 403) or error.code == "AccountIsDisabled":
                    raise TransferFailed(f"{table}: {error}") from None
                elif len(pending) == 1 or (error.index is not None and error.index < len(pending)):
                    failed = pending.pop(error.index if len(pending) > 1 and error.index else 0)
                    if failed.method != "DELETE" or error.status != 404:
                        raise refusal_of(failed.key, str(error)) from None
                else:
                    # Whole entities take more room than the merges that made them, or the service does not say which.
                    half = len(pending) // 2
                    self._transact(table, pending[:half])
                    self._transact(table, pending[half:])
                    return
            else:
                return
