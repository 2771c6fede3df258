"""Copies a table from one endpoint to another: resumable, with the changes made meanwhile, and verified.

After every few pages the journal gets the token of the next one. Entities that the source changed since the copy began
are found by Timestamp and copied again, in rounds, until a round finds none. Deletions leave no Timestamp; the
comparison of the whole tables reports them.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Final, Self

from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.model.edm import format_date_time
from tablestone.model.keys import EntityKey
from tablestone.tools import odata
from tablestone.tools.client import ContinuationToken, Query, RawEntity, TableEndpoint
from tablestone.tools.comparing import Comparer, TableComparison
from tablestone.tools.errors import (
    ATTEMPTS_MAX,
    Answer,
    InFlight,
    Retry,
    ServiceError,
    TransferFailed,
)
from tablestone.tools.formats.rows import Row
from tablestone.tools.progress import DIFFERING, Progress, Reached, progress_for
from tablestone.tools.queries import PAGES_AHEAD, TableReader
from tablestone.tools.writing import (
    CHOICES,
    EntityConflict,
    OnConflict,
    TableWriter,
    Tally,
    timestamp_of,
)

PAGES_PER_CHECKPOINT: Final = 10
ROUNDS_MAX: Final = 20
"""Give up after so many rounds: the source changes faster than it is copied."""
MARGIN_TICKS: Final = 5 * TICKS_PER_SECOND
"""How far apart the clocks inside the source may be; its Date header has whole seconds."""
DIFFERENCES_SHOWN_MAX: Final = 20


@dataclass(frozen=True)
class Copying:
    """The settings of a copy: entities that exist already, requests in flight, and the comparison at the end."""

    on_conflict: OnConflict
    parallel: int
    since: str | None = None
    """Only what the source changed at or after this time; the text of a DateTime."""
    verify: bool = True
    follows: bool = False
    """The feed of changes will bring what changes meanwhile: no rounds, and no comparison at the end."""
    quiet: bool = False

    def tell(self, line: str) -> None:
        """Say something on standard error."""
        if not self.quiet:
            sys.stderr.write(f"{line}\n")

    @property
    def makes_equal(self) -> bool:
        """Whether the target is to hold what the source does."""
        return self.on_conflict in (OnConflict.FAIL, OnConflict.REPLACE)

    @property
    def on_conflict_since(self) -> OnConflict:
        """The same for what changed since a time: the target has its earlier version."""
        is_later = self.since is not None and self.on_conflict is OnConflict.FAIL
        return OnConflict.REPLACE if is_later else self.on_conflict

    @property
    def reason_not_to_compare(self) -> str | None:
        """Why there is no comparison at the end; None if there is one, also after a copy since a time."""
        if self.follows:
            return "--follow"
        if not self.makes_equal:
            return f"with --on-conflict {self.on_conflict.value} the target keeps what only it has"
        return None if self.verify else "--no-verify"


@dataclass
class CopyReport:
    """The result for one table.

    `copied` and `bytes` count what was written at the target, the rounds included. `rounds` has the number of entities
    that each round of changes wrote. `already` counts the entities that the target had as they are at the source.
    """

    table: str
    created: bool = False
    copied: int = 0
    already: int = 0
    skipped: int = 0
    bytes: int = 0
    resumed_after: int = 0
    rounds: list[int] = field(default_factory=list)
    verified: TableComparison | None = None
    not_compared: str | None = None
    """Why nothing was compared; None if both sides were."""
    began: str = ""
    """When the copy began, for the next `--since`."""

    @property
    def is_equal(self) -> bool:
        return self.verified is None or self.verified.is_equal


class Side:
    """One end of a copy or comparison, which failures name. It is asked once, where the SDK asks again."""

    def __init__(self, role: str, endpoint: TableEndpoint, parallel: int, **options: Any) -> None:
        self.role, self.endpoint, self.url = role, endpoint, endpoint.connection.url
        name = f"The {role} {self.url}" if role else self.url
        self.retry = Retry(InFlight(parallel), name=name, **{"attempts": 1, **options})

    def __call__(
        self, request: Callable[[TableEndpoint], Answer], retry: Retry | None = None
    ) -> Answer:
        try:
            return (retry or self.retry)(lambda: request(self.endpoint))
        except ServiceError as error:
            raise TransferFailed(f"{self.url} answers {error}") from error

    def get(self, table: str, key: EntityKey) -> RawEntity | None:
        """One entity; None if there is none, or no such table."""
        try:
            return self(lambda endpoint: endpoint.get(table, key), self.patient(1))
        except TransferFailed as failed:
            if failed.status == 404:
                return None
            raise

    def at(self, endpoint: TableEndpoint) -> Self:
        """The same side at another endpoint."""
        other = copy(self)
        other.endpoint = endpoint
        return other

    def patient(self, parallel: int) -> Retry:
        """The same for requests that the SDK does not repeat."""
        attempts = max(self.retry.attempts, ATTEMPTS_MAX)
        return replace(self.retry, attempts=attempts, in_flight=InFlight(parallel))

    def reader(self) -> TableReader:
        return TableReader(self.endpoint, self.patient(1 + PAGES_AHEAD))


def compare(
    first: Side, second: Side, table: str, progress: Progress, shown: int
) -> TableComparison:
    """Compare a table of both sides entirely; the result has the first differences."""
    sides = (first, second)
    comparer = Comparer(progress, [side(lambda each: each.expiry(table)) for side in sides])
    found = comparer.differences(*(side.reader().entities(Query(table)) for side in sides))
    comparer.result.differences = list(islice(found, shown))
    for _ in found:
        pass  # the rest is counted
    return comparer.result


class TableCopy:
    """Copies one table. `state` is what an earlier run gave to `save`; empty at the beginning."""

    def __init__(
        self,
        source: Side,
        target: Side,
        table: str,
        copying: Copying,
        *,
        state: Mapping[str, Any],
        save: Callable[[dict[str, Any]], None],
    ) -> None:
        self._source, self._target, self._table = source, target, table
        self._copying, self._save_state = copying, save
        self._progress = progress_for(f"copy {table}", quiet=copying.quiet, errors=DIFFERING)
        self._reader = source.reader()
        self._state = dict(state)
        self._earlier = Tally(**state.get("tally", {}))
        self._followed = Tally()

    def run(self) -> CopyReport:
        """Copy, follow the changes, compare."""
        with closing(self._progress):
            return self._run()

    def _run(self) -> CopyReport:
        report = CopyReport(self._table, resumed_after=self._earlier.rows)
        name = self._table
        if "began" not in self._state:
            self._state["own_before"] = self._target(TableEndpoint.service_time)
        if not self._target(lambda target: target.table_exists(name)):
            report.created = self._target(lambda target: target.create_table(name))
        carry_expiry(self._source, self._target, name)
        self._state.setdefault("began", self._source_time())
        began = int(self._state["began"])
        report.began = format_date_time(began)
        if not self._state.get("copied"):
            self._copy_all(began)
        if self._copying.makes_equal and not self._copying.follows:
            report.rounds = self._follow_changes(began)
        total = self._earlier + self._followed
        report.copied, report.already = total.stored, total.already
        report.skipped, report.bytes = total.skipped, total.bytes - total.already_bytes
        report.not_compared = self._copying.reason_not_to_compare
        if report.not_compared is None:
            report.verified = compare(
                self._source, self._target, name, self._progress, DIFFERENCES_SHOWN_MAX
            )
        return report

    def _source_time(self) -> int:
        """The time by the source's own clock, which wrote the Timestamps."""
        return (self._source(TableEndpoint.service_time) or system_clock()) - MARGIN_TICKS

    def _copy_all(self, began: int) -> None:
        copying = self._copying
        query = Query(self._table, since_filter(copying.since))
        on_conflict = copying.on_conflict_since
        if copying.follows and self._state.get("begun") and not self._state.get("conflict"):
            # The source may have changed what an earlier run wrote.
            on_conflict = OnConflict.REPLACE
        kept = self._state.get("token")
        token = ContinuationToken(*kept) if kept else None
        # An entity that the target has unchanged is no conflict: an earlier run may have written it.
        writer = self._writer(
            on_conflict, resumed=on_conflict is OnConflict.FAIL or bool(self._state.get("begun"))
        )
        self._save(token, copied=False)
        try:
            for number, page in enumerate(self._reader.pages(query, token), start=1):
                for raw in page.entities:
                    # Leave later changes to the rounds, so that a resumed run finds the same entities again.
                    is_later = copying.makes_equal and timestamp_of(raw) >= began
                    if copying.follows or not is_later:
                        writer.add(Row(0, odata.key_of(raw), odata.body_of(raw)))
                if number % PAGES_PER_CHECKPOINT == 0 or page.next_token is None:
                    writer.drain()
                    self._save(page.next_token, copied=page.next_token is None, tally=writer.tally)
                total = self._earlier + writer.tally
                self._progress.update(Reached(total.rows, total.bytes, earlier=self._earlier.rows))
        except EntityConflict:
            self._state["conflict"] = (
                True  # so a run that goes on overwrites nothing of the target's own
            )
            self._save_state(self._state)
            raise
        finally:
            writer.close()
        self._earlier += writer.tally

    def _follow_changes(self, began: int) -> list[int]:
        """Copy what the source changed since the copy began, until a round finds nothing."""
        rounds: list[int] = []
        is_strict = self._copying.on_conflict_since is OnConflict.FAIL
        own_before = self._state.get("own_before") if is_strict else None
        seen: dict[EntityKey, str] = {}
        since = began
        for _ in range(ROUNDS_MAX):
            next_since = self._source_time()
            with closing(
                self._writer(OnConflict.REPLACE, resumed=False, own_before=own_before)
            ) as writer:
                changed = Query(self._table, since_filter(format_date_time(since)))
                for raw in self._reader.entities(changed):
                    key, etag = odata.key_of(raw), str(raw.get(odata.ETAG))
                    if seen.get(key) != etag:
                        seen[key] = etag
                        writer.add(Row(0, key, odata.body_of(raw)))
                writer.drain()
            if writer.tally.rows == 0:
                return rounds
            self._followed += writer.tally
            rounds.append(writer.tally.rows)
            since = next_since
            self._copying.tell(
                f"{self._table}: written at the source meanwhile and copied now: {writer.tally.rows:,}."
            )
        raise TransferFailed(
            f"{self._table}: the source still changes after {ROUNDS_MAX} rounds. Stop its writers; the same command "
            "continues."
        )

    def _save(
        self, token: ContinuationToken | None, *, copied: bool, tally: Tally | None = None
    ) -> None:
        total = self._earlier + (tally or Tally())
        self._state |= {"begun": True, "token": token, "copied": copied, "tally": asdict(total)}
        self._save_state(self._state)

    def _writer(
        self, on_conflict: OnConflict, *, resumed: bool, own_before: int | None = None
    ) -> TableWriter:
        return TableWriter(
            self._target.endpoint,
            self._table,
            on_conflict,
            parallel=self._copying.parallel,
            reject=_refuse,
            resumed=resumed,
            choices="replace" if self._copying.follows else CHOICES,
            own_before=own_before,
            retry_as=self._target.patient(self._copying.parallel),
        )


def carry_expiry(source: Side, target: Side, table: str) -> None:
    """Give the target's table the source's expiry policy, if it is empty and has none; tell where they differ."""
    wanted = source(lambda each: each.expiry(table))
    if wanted is None:
        return
    if target(lambda each: each.expiry(table)) is None:
        target(lambda each: each.offer_expiry(table, wanted))
    found = target(lambda each: each.expiry(table))
    if wanted != found:
        theirs = "shows no policy" if found is None else f"has another policy: {found.in_words}"
        sys.stderr.write(
            f"{table}: entities expire {wanted.in_words} at the source. The target {theirs}.\n"
        )


def since_filter(moment: str | None) -> str | None:
    """The filter for what changed at or after a moment."""
    return None if moment is None else f"Timestamp ge datetime'{moment}'"


def refusal_of(key: EntityKey, reason: str) -> TransferFailed:
    """The target refuses an entity that the source stores. That ends a copy, which must be complete."""
    return TransferFailed(
        f"The target does not take the entity with PartitionKey {key.partition_key!r} and RowKey {key.row_key!r}: "
        f"{reason}"
    )


def _refuse(row: Row, reason: str) -> None:
    raise refusal_of(row.key, reason)
