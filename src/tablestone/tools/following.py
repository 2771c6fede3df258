"""Applies a feed of changes to a target, so that both sides serve all the time.

The changes of one partition are written in order, different partitions at the same time. Every change can be applied
twice: a put replaces, and a second deletion finds nothing. So after a kill the next run continues from the position in
the target and loses nothing. A run checks that the target still has what was written before it continues, and before it
says that it has caught up.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import filterfalse
from typing import Any, Final, NamedTuple

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, monotonic_seconds, system_clock
from tablestone.model.edm import format_date_time, parse_date_time
from tablestone.tools import odata
from tablestone.tools.changes import ChangesPage, pages_of_changes
from tablestone.tools.client import BATCH_BYTES_MAX, Operation, TableEndpoint
from tablestone.tools.copying import Side, carry_expiry, refusal_of
from tablestone.tools.errors import (
    ServiceError,
    TransferFailed,
    TransferRefused,
    Unreachable,
    read_json,
)
from tablestone.tools.positions import (
    TABLE,
    Followed,
    Positions,
    holds_positions,
    partition_of,
    refuse_positions,
    tables_of_earlier,
    tables_of_users,
)
from tablestone.tools.progress import shown_count, shown_seconds
from tablestone.tools.resume_journal import Journal
from tablestone.tools.same_target import Judgement, Verdict
from tablestone.tools.writing import send_all

ATTEMPTS: Final = 200
"""Attempts of a request, in about an hour: a follower runs for days, and a side may be away meanwhile."""
PAGES_JOINED_MAX: Final = 10
"""The most pages to read while the ones before are written."""
DELETION_PAUSE_SECONDS: Final = 1.0
"""Between attempts to create a table whose name is not free yet."""
TELL_SECONDS: Final = 5.0
LOOKS_PER_SECOND: Final = 10
"""Tables to check per second, on average: with many tables, a run says less often that it has caught up."""
AWAY_SECONDS: Final = 60.0
CAUGHT_UP: Final = "caught up"
_COPY_OVER: Final = (
    "--on-conflict replace copies over it; `tablestone diff` shows what only the target has."
)


class Follower:
    """Applies the feed of a table or of an account to the target, from its position on.

    If there are `names`, it leaves out all other tables. `kept` is an endpoint of the target for the position; without
    it, the position is in the journal alone.
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
        kept: TableEndpoint | None = None,
        position_table: str = TABLE,
    ) -> None:
        self._journal, self._tell = journal, tell
        self._position_table = position_table.lower()
        # The feed of one table needs no more permissions than reading the table.
        self._table = names[0] if len(names) == 1 else None
        self._names, self._followed = names, {name.lower() for name in names}
        self._parallel = parallel
        was_there = bool(journal.state)  # an earlier run of this machine noted a position
        self.source, self.target = (
            Side(
                role,
                endpoint,
                parallel,
                attempts=ATTEMPTS,
                was_there=was_there,
                tell=_Away(role, tell, self._last_applied),
            )
            for role, endpoint in (("source", source), ("target", target))
        )
        side = self.target.at(kept) if kept else None
        self.positions = Positions(journal, self.source.url, self.target, side, position_table)
        target.watch = self.positions
        self._judgement = Judgement(self.source, self.target, self._feed, parallel)
        self._told = ("", 0.0)
        self._begun: set[str] = set()
        """Tables that this run has written to: a policy is set after its table is made, before the first entity."""
        self._left_out: dict[str, bool] = {}
        self._applied = ""
        self.changes = 0
        """The number of changes applied."""
        self.copied_again = 0
        """The number of tables to copy again, because the target's were not the ones that were followed."""

    def start(self, *, restarts: bool = False, replaces: bool = False) -> list[Followed]:
        """Find the position, or begin at a new one. Returns the tables to copy before the changes since then.

        `restarts` forgets the position; `replaces` copies over tables of the target that no position explains.
        """
        positions, state = self.positions, self._journal.state
        self.target(lambda target: target.service_time())
        kept = positions.find()
        for row in kept:
            if row["Source"] == self.source.url:
                self.source.retry.was_there, positions.applied = True, row["Applied"]
        refuse_positions(self.source, self._names)
        cursor = next(self._feed("now")).cursor  # after all events so far
        partition = partition_of(cursor, self.target.endpoint.connection.account, self._names)
        is_found = positions.take(partition, self._tell) and not restarts
        if positions.is_in_journal:
            self._tell(
                f"{self.target.url} gives these credentials no table for the position: it is in the journal of this "
                "machine alone."
            )
        is_adopted = not is_found and "cursor" in state
        if is_found:
            tables, cursor = list(positions.tables.values()), positions.cursor
            reason = "is not the table that was followed"
        else:
            positions.applied = ""
            names = self._names or filterfalse(self._leaves_out, tables_of_users(self.source))
            tables = [Followed(name) for name in names]
            reason = _reason(partition, [row["PartitionKey"] for row in kept])
        if is_adopted:
            cursor, reason = state["cursor"], "does not show what the journal says was copied"
            known = tables_of_earlier(self._journal)
            # A table that the source made after the copy comes with the feed.
            later = {"begun": True, "copied": True} if state.get("copied") else {}
            tables = [
                known.get(each.name.lower(), Followed(each.name, dict(later))) for each in tables
            ]
        verdicts = self._judgement.verdicts(tables, cursor, is_adopted=is_adopted)
        judged = list(zip(tables, verdicts, strict=True))
        asked = [followed.name for followed, verdict in judged if verdict is Verdict.ASKED]
        if asked and not replaces:
            raise TransferRefused(
                f"{asked[0]} at {self.target.url} has entities, and {reason}. {_COPY_OVER}"
            )
        again = [followed for followed, verdict in judged if verdict is not Verdict.SAME]
        for followed in again:
            if followed.copy:
                self.copied_again += 1
                self._tell(f"{followed.name}: {reason}, so it is copied again.")
            followed.copy, followed.keys, followed.looked = {}, {}, {}
        if again or not is_found:
            positions.begin(cursor, tables)
        self.source.retry.was_there = self.target.retry.was_there = True
        return [followed for followed in tables if not followed.is_copied]

    def close(self) -> None:
        """Save the position, and let another run follow."""
        self.positions.end()

    def _feed(self, since: str, *, follows: bool = False) -> Iterator[ChangesPage]:
        source = self.source
        return pages_of_changes(
            source.endpoint, self._table, since, follows=follows, retry=source.retry
        )

    def _leaves_out(self, table: str, *, is_made: bool = False) -> bool:
        """Whether a table is not followed. A table of positions that `is_made` just now has no marker yet."""
        name = table.lower()
        if self._followed and name not in self._followed:
            return True
        is_own = name == self._position_table and not self.positions.is_in_journal
        if is_made:
            self._left_out.pop(name, None)
            return is_own or holds_positions(self.source, table)
        if name not in self._left_out:
            is_left_out = holds_positions(self.source, table)
            if is_own and not is_left_out and self.source(lambda each: each.table_exists(table)):
                raise TransferFailed(
                    f"{self.source.url} has a table {table} of its own, and the target has the position there: "
                    "--position-table NAME names another."
                )
            self._left_out[name] = is_left_out or is_own
        return self._left_out[name]

    def run(self, until: int | None) -> None:
        """Apply the changes as they come. With `until` (ticks), end after the last change, or one of that time."""
        positions = self.positions
        sent = positions.cursor, positions.applied
        self._applied = positions.applied
        joined = 0
        with closing(_Writer(self.target, self._parallel, positions)) as writer:
            for page in self._feed(positions.cursor, follows=until is None):
                positions.hold()
                lines = [read_json(line) for line in page.lines]
                self._apply(lines, writer)
                joined += 1
                time = parse_date_time(lines[-1]["time"]) if lines else system_clock()
                if not page.is_last:
                    seconds = max(0.0, (system_clock() - time) / TICKS_PER_SECOND)
                    self._tell_lag(f"{shown_seconds(seconds)} behind")
                may_join = lines and not page.is_last and joined < PAGES_JOINED_MAX
                if may_join and writer.is_busy:
                    continue
                writer.wait()
                positions.cursor, positions.applied = sent
                writer.send()
                sent, joined = (page.cursor, self._applied), 0
                ends = until is not None and (page.is_last or time >= until)
                if page.is_last or ends:
                    writer.wait()
                    positions.cursor, positions.applied = sent
                    self._tell_lag(CAUGHT_UP, at_once=ends)
                if ends:
                    return

    def _apply(self, lines: list[dict[str, Any]], writer: "_Writer") -> None:
        transaction: list[Operation] = []
        for line in lines:
            kind, table = line["kind"], line["table"]
            if self._leaves_out(table, is_made=kind == "table-created"):
                continue
            self.changes += 1
            self._applied = line["time"]
            if kind in ("table-created", "table-deleted"):
                # Write everything before: later changes may be of another table with this name.
                writer.wait()
                writer.send()
                writer.wait()
                if kind == "table-created":
                    writer.create_table(table)
                    self._begun.discard(table)
                    self.positions.add(table)
                else:
                    self.positions.drop(table)
                    writer.delete_table(table)
                continue
            if table not in self._begun:
                self._begun.add(table)
                carry_expiry(self.source, self.target, table)
            if kind == "put":
                entity = line["entity"]
                put = Operation("PUT", odata.key_of(entity), odata.body_of(entity))
                transaction.append(put)
            elif kind == "delete":
                transaction.append(Operation("DELETE", odata.key_of(line), if_match="*"))
            elif kind == "expired":
                writer.add_expired(table, Operation("DELETE", odata.key_of(line), if_match="*"))
                continue
            else:
                raise TransferFailed(f"This version of Tablestone does not know a change {kind!r}.")
            if not line.get("following"):
                writer.add(table, transaction)
                transaction = []

    def _look(self) -> None:
        """Save the position, and check that the target still has what was written: only then it has caught up."""
        self.positions.save()
        tables = list(self.positions.tables.values())
        verdicts = self._judgement.verdicts(tables, self.positions.cursor)
        for followed, verdict in zip(tables, verdicts, strict=True):
            if verdict is not Verdict.SAME:
                raise TransferFailed(
                    f"{followed.name} at {self.target.url} is not the table any more that was followed. "
                    "The same command copies it again if it is empty, and else names the option that chooses."
                )
            if followed.name not in self._begun:  # its policy may be newer than its last entity
                self._begun.add(followed.name)
                carry_expiry(self.source, self.target, followed.name)
        self.positions.note_look()

    def _tell_lag(self, lag: str, *, at_once: bool = False) -> None:
        """Say from time to time how far behind it is, or, after a check of the target, that it has caught up."""
        line = f"follow: {shown_count(self.changes, 'change')}, {lag}"
        last, at = self._told
        pause = max(TELL_SECONDS, len(self.positions.tables) / LOOKS_PER_SECOND)
        if at_once or (line != last and monotonic_seconds() >= at + pause):
            if lag == CAUGHT_UP:
                self._look()
            self._told = (line, monotonic_seconds())
            self._tell(line)

    def _last_applied(self) -> str:
        if self.positions.applied:
            time = parse_date_time(self.positions.applied)
            return f", last applied change of {_shown_time(time)}"
        return ", no change applied yet" if self.positions.cursor else ""


class _Away:
    """Says that a side is away, at once and every minute, and when it is back. A busy side counts after a minute."""

    def __init__(self, role: str, tell: Callable[[str], None], last: Callable[[], str]) -> None:
        self._role, self._tell, self._last = role, tell, last
        self._lock = threading.Lock()
        self._since: tuple[int, float] | None = None
        self._told: float | None = None

    def __call__(self, error: Exception | None) -> None:
        if error is None and self._since is None:
            return
        with self._lock:
            now = monotonic_seconds()
            if error is None:
                if self._told is not None:
                    self._tell(f"{self._role} is back")
                self._since = self._told = None
                return
            began, start = self._since = self._since or (system_clock(), now)
            last = start if self._told is None else self._told
            is_gone = self._told is None and isinstance(error, Unreachable)
            if is_gone or now >= last + AWAY_SECONDS:
                self._told = now
                self._tell(f"{self._role} away since {_shown_time(began)}{self._last()}")


def _reason(partition: str, kept: Sequence[str]) -> str:
    """Why a target with the positions `kept` has none for this copy."""
    source, _, rest = partition.partition(".")
    for each in kept:
        other, _, other_rest = each.partition(".")
        if each == partition:
            return "--restart forgets the position"
        if other == source and other_rest.rpartition(".")[2] == rest.rpartition(".")[2]:
            return "the position there is of another account"
        if other_rest == rest:
            return "the position there is of another source"
    return "the target has no position of this copy"


def _shown_time(ticks: int) -> str:
    """Hours and minutes in UTC, after the date if it is not today."""
    day, _, time = format_date_time(ticks).partition("T")
    today = format_date_time(system_clock()).startswith(day)
    return time[:5] if today else f"{day} {time[:5]}"


class _Group(NamedTuple):
    """Operations of a partition by RowKey: one transaction, or deletions of expired entities, in any order."""

    is_expired: bool
    operations: dict[str, Operation]


class _Writer:
    """Joins the transactions of a partition, and writes several partitions at the same time."""

    def __init__(self, target: Side, parallel: int, positions: Positions) -> None:
        self._endpoint, self._positions = target.endpoint, positions
        self.retry = target.patient(parallel)
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="follow")
        self._single = ThreadPoolExecutor(parallel, thread_name_prefix="expired")
        self._groups: dict[tuple[str, str], list[_Group]] = {}
        """The groups to send, by table and partition, in order."""
        self._sizes: dict[tuple[str, str], int] = {}
        self._futures: list[Future[None]] = []

    @property
    def is_busy(self) -> bool:
        return not all(future.done() for future in self._futures)

    def add(self, table: str, transaction: Sequence[Operation]) -> None:
        """Take a transaction of the source, which is never divided. Of each entity only the last state is written."""
        place = (table, transaction[0].key.partition_key)
        operations = self._group(place, is_expired=False).operations
        size = sum(len(each.body) for each in transaction)
        together = operations.keys() | {each.key.row_key for each in transaction}
        joined = self._sizes.get(place, 0) + size
        if len(together) > limits.CHANGE_SET_OPERATIONS_MAX or joined > BATCH_BYTES_MAX:
            operations, joined = {}, size
            self._groups[place].append(_Group(False, operations))
        operations.update({each.key.row_key: each for each in transaction})
        self._sizes[place] = joined

    def add_expired(self, table: str, deletion: Operation) -> None:
        """Take the deletion of an expired entity, after the changes of its partition so far."""
        group = self._group((table, deletion.key.partition_key), is_expired=True)
        group.operations[deletion.key.row_key] = deletion

    def _group(self, place: tuple[str, str], *, is_expired: bool) -> _Group:
        """The last group of a partition, or a new one if that is of the other kind."""
        groups = self._groups.setdefault(place, [])
        if not groups or groups[-1].is_expired is not is_expired:
            groups.append(_Group(is_expired, {}))
            self._sizes[place] = 0
        return groups[-1]

    def send(self) -> None:
        """Begin to write the groups. Earlier ones must be stored."""
        added, self._groups = self._groups, {}
        self._sizes.clear()
        for (table, _), groups in added.items():
            self._futures.append(self._pool.submit(self._write, table, groups))

    def wait(self) -> None:
        """Wait until everything sent is stored."""
        futures, self._futures = self._futures, []
        for future in futures:
            future.result()

    def close(self) -> None:
        """Finish the requests in flight, send no others, and end the threads."""
        self.retry.stop.set()
        for pool in (self._pool, self._single):
            pool.shutdown(wait=True, cancel_futures=True)

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
        try:
            self.retry(lambda: self._endpoint.delete_table(table))
        except ServiceError as error:
            if error.code != "TableBeingDeleted":
                raise

    def _write(self, table: str, groups: Sequence[_Group]) -> None:
        for is_expired, operations in groups:
            if not is_expired:
                self._transact(table, list(operations.values()))
                continue
            # Most have expired at the target too, and one absent entity fails a transaction.
            singles = [[each] for each in operations.values()]
            deque(self._single.map(partial(self._transact, table), singles), maxlen=0)

    def _transact(self, table: str, pending: list[Operation]) -> None:
        is_single = len(pending) == 1 and pending[0].method == "DELETE"

        def send(operations: list[Operation]) -> bool:
            try:
                if is_single:
                    self.retry(lambda: self._endpoint.write(table, operations[0]))
                else:
                    self.retry(lambda: self._endpoint.transact(table, operations))
            except ServiceError as error:
                if error.status in (401, 403) or error.code == "AccountIsDisabled":
                    raise TransferFailed(f"{table}: {error}") from None
                if error.code not in ("TableNotFound", "TableBeingDeleted"):
                    raise
                followed = self._positions.tables.get(table.lower())
                if followed and not followed.is_deleted_later:
                    raise TransferFailed(
                        f"{table} is not at {self._endpoint.connection.url} any more. The same command copies it again."
                    ) from None
                # A killed run had applied the table's deletion, which is still to come in this run.
                if not self.create_table(table):
                    self.retry.stop.wait(DELETION_PAUSE_SECONDS)
                return False
            return True

        def refused(operation: Operation, error: ServiceError) -> None:
            if operation.method != "DELETE" or error.status != 404:
                raise refusal_of(operation.key, str(error)) from None
            self._positions.note(table, [operation], [None])  # deleted already

        # Entities are larger than the merges that made them. If a transaction is too large, halves are sent.
        send_all(pending, send, refused)
