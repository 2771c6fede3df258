"""Copies a table from one endpoint to another: resumable, with the changes made meanwhile, and verified.

Every few pages the journal gets the continuation token. Then rounds find, by Timestamp, the entities that the source
changed since the copy began, and copy them again, until a round finds none. Deletions leave no Timestamp: a comparison
of the whole tables reports them. A copy that `following` continues needs neither rounds nor comparison.
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
from tablestone.tools.errors import ServiceError, TransferFailed
from tablestone.tools.formats.rows import Row
from tablestone.tools.own_forms import Unseen, unseen
from tablestone.tools.progress import DIFFERING, Progress, Reached, progress_for
from tablestone.tools.queries import PAGES_AHEAD, TableReader
from tablestone.tools.retrying import ATTEMPTS_MAX, Answer, InFlight, Retry
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
"""Give up after this many rounds: the source changes faster than it is copied."""
MARGIN_TICKS: Final = 5 * TICKS_PER_SECOND
"""How far the clocks of the source's servers may differ; its Date header has whole seconds."""
DIFFERENCES_SHOWN_MAX: Final = 20


@dataclass(frozen=True)
class Copying:
    """The settings of a copy: entities that exist already, requests in flight, and the comparison at the end."""

    on_conflict: OnConflict
    parallel: int
    since: str | None = None
    """Copy only what the source changed at or after this time, the text of a DateTime."""
    verify: bool = True
    follows: bool = False
    """The feed brings the changes made meanwhile, so there are no rounds and no comparison."""
    quiet: bool = False

    def tell(self, line: str) -> None:
        """Say something on standard error."""
        if not self.quiet:
            sys.stderr.write(f"{line}\n")

    @property
    def makes_equal(self) -> bool:
        """Whether the target shall have the same entities as the source."""
        return self.on_conflict in (OnConflict.FAIL, OnConflict.REPLACE)

    @property
    def on_conflict_since(self) -> OnConflict:
        """What to do about existing entities: with `since`, the target has earlier versions, so they are replaced."""
        is_later = self.since is not None and self.on_conflict is OnConflict.FAIL
        return OnConflict.REPLACE if is_later else self.on_conflict

    @property
    def reason_not_to_compare(self) -> str | None:
        """Why nothing is compared at the end; None if the tables are, even with `since`."""
        if self.follows:
            return "--follow"
        if not self.makes_equal:
            return f"with --on-conflict {self.on_conflict.value} the target keeps what only it has"
        return None if self.verify else "--no-verify"


@dataclass
class CopyReport:
    """The result for one table.

    `copied` and `bytes` count what was written to the target, including the rounds; `rounds` has the number of entities
    that each round wrote. `already` counts the entities that were equal at the target before.
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
    unseen: Unseen = field(default_factory=Unseen)
    """What the source has and does not show; of its indexes and policies those that the target has not."""

    @property
    def is_equal(self) -> bool:
        return self.verified is None or self.verified.is_equal


class Side:
    """One end of a copy or comparison. Failures name it. Requests that the SDK retries are sent once."""

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
        """One entity; None if the entity or the table does not exist."""
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
        """The retries of requests that the SDK does not retry."""
        attempts = max(self.retry.attempts, ATTEMPTS_MAX)
        return replace(self.retry, attempts=attempts, in_flight=InFlight(parallel))

    def reader(self) -> TableReader:
        return TableReader(self.endpoint, self.patient(1 + PAGES_AHEAD))


def compare(
    first: Side, second: Side, table: str, progress: Progress, shown: int
) -> TableComparison:
    """Compare the whole table of both sides. The result has the first `shown` differences, and counts the rest."""
    sides = (first, second)
    comparer = Comparer(progress, [side(lambda each: each.expiry(table)) for side in sides])
    found = comparer.differences(*(side.reader().entities(Query(table)) for side in sides))
    comparer.result.differences = list(islice(found, shown))
    for _ in found:
        pass
    comparer.result.unseen = [side(lambda each: unseen(each, table)) for side in sides]
    return comparer.result


class TableCopy:
    """Copies one table. `state` is what an earlier run passed to `save`; empty for a new copy."""

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
        """Copy the table, then the changes made meanwhile, and compare."""
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
            first, second = report.verified.unseen
        else:
            first, second = (
                side(lambda each: unseen(each, name)) for side in (self._source, self._target)
            )
        missing = [each for each in first.indexes if each not in second.indexes]
        report.unseen = Unseen(first.hidden, missing, first.policies_not_in(second))
        return report

    def _source_time(self) -> int:
        """The time by the source's clock, which sets the Timestamps, less the margin."""
        return (self._source(TableEndpoint.service_time) or system_clock()) - MARGIN_TICKS

    def _copy_all(self, began: int) -> None:
        copying = self._copying
        query = Query(self._table, since_filter(copying.since))
        on_conflict = copying.on_conflict_since
        if copying.follows and self._state.get("begun") and not self._state.get("conflict"):
            # The source may have changed entities that an earlier run wrote.
            on_conflict = OnConflict.REPLACE
        kept = self._state.get("token")
        token = ContinuationToken(*kept) if kept else None
        # An equal entity at the target is no conflict: an earlier run may have written it.
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
                self._progress.update(
                    Reached(
                        total.rows, total.bytes, earlier=self._earlier.rows, written=total.stored
                    )
                )
        except EntityConflict:
            # So that the next run overwrites nothing of the target's own.
            self._save_state(self._state | {"conflict": True})
            raise
        finally:
            writer.close()
        self._earlier += writer.tally

    def _follow_changes(self, began: int) -> list[int]:
        """Copy in rounds what the source changed since the copy began. Returns the entities of each round."""
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
    """Give the target's table the source's expiry policy, if it is empty and has none. Report a difference."""
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
    """The failure of a copy whose target refuses an entity of the source: a copy must be complete."""
    return TransferFailed(
        f"The target does not take the entity with PartitionKey {key.partition_key!r} and RowKey {key.row_key!r}: "
        f"{reason}"
    )


def _refuse(row: Row, reason: str) -> None:
    raise refusal_of(row.key, reason)
