"""Writes the archive beside the server: each second the new records of changes, and base copies when they are due.

It runs in the worker that leads. Whatever fails is tried again: the server serves on, health and metrics tell, and the
directory keeps what is not archived yet.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tablestone.archive.base_copy import READ_BYTES, BaseCopies
from tablestone.archive.comparing import SelfCheck
from tablestone.archive.going_back import WRITTEN_SECONDS
from tablestone.archive.history import Range
from tablestone.archive.objects import (
    Entry,
    Kind,
    ObjectDamaged,
    ObjectRefused,
    digest_of,
    write_records,
)
from tablestone.archive.store import StoreUnavailable
from tablestone.archive.terms import TermLost, begin_term
from tablestone.archive.upkeep import Upkeep
from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.contract import EngineUnavailable
from tablestone.engines.sqlite.data_directory import CHECKED_NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tablestone.archive.store import Store
    from tablestone.archive.terms import OwnTerm
    from tablestone.configuration import ArchiveSettings
    from tablestone.engines.sqlite.archive_source import ArchiveSource, StoredRecord

OBJECT_BYTES: Final = 8 << 20
"""About how many bytes of records an object has, before it is compressed."""
NOTE_SECONDS: Final = 10.0
"""Seconds under load between two notes of what is archived: each is a commit of its own."""
RETRY_SECONDS_MAX: Final = 10.0
IDLE_SECONDS: Final = WRITTEN_SECONDS / 2
"""Seconds without a write after which the life may be pruned soon."""
BESIDE_RETRY_SECONDS: Final = 30.0
"""Seconds until a base copy or the upkeep is tried again."""
LOG_SECONDS: Final = 60.0
"""Seconds between two lines of the log about the same problem."""
LATE_SECONDS: Final = 60.0
"""Seconds beside the interval after which the archive is late, whatever the reason."""
SLOW: Final = "its store is slow, or does not answer."
WATCH_SECONDS: Final = 10.0
UNEXPECTED: Final = "An unexpected error is in the log."
STOP_SECONDS: Final = 3.0
"""Seconds for the last records when the server stops."""
PASSING: Final = (StoreUnavailable, EngineUnavailable, ObjectDamaged, ObjectRefused)
"""Errors after which the archiver tries again."""

log = logging.getLogger(__name__)


Work = BaseCopies | Upkeep | SelfCheck
"""What an archiver does beside the changes, each when it is due."""


class Archiver:
    """Archives one data directory. `run` never returns by itself."""

    def __init__(
        self,
        store: Store,
        source: ArchiveSource,
        settings: ArchiveSettings,
        ticks: Callable[[], int],
        elapsed: Callable[[], float],
        directory: Path,
    ) -> None:
        self.store = store
        self.source = source
        self.settings = settings
        self.ticks = ticks
        self.elapsed = elapsed
        self.term: OwnTerm | None = None
        self.failing: str | None = None
        """Why nothing can be archived now."""
        self.problems: dict[Work, str] = {}
        """What failed beside the changes, in sentences."""
        self.errors = 0
        self.behind_bytes = 0
        """Bytes of records that are not archived, as of the last attempt."""
        self.base_copies = BaseCopies(source, ticks, elapsed)
        self.upkeep = Upkeep(self.base_copies, settings.retention_seconds, ticks, elapsed)
        self.check = SelfCheck(source, settings, elapsed, directory / CHECKED_NAME)
        self._run = secrets.token_hex(8)
        self._unnoted: int | None = None
        self._last: StoredRecord | None = None
        """The record that was archived last."""
        self._noted_at = self._written_at = -math.inf
        self._caught_up_at = elapsed() - _waiting_seconds(source, ticks())
        self._logged: dict[str, float] = {}
        """When the log had a sentence last."""
        self._has_told = False
        """Whether the log says last that nothing is archived."""
        self._pause: float = settings.interval
        self._beside: dict[Work, asyncio.Task[None]] = {}
        self._retry: dict[Work, float] = {}
        """When what failed beside the changes is tried again."""

    @property
    def lag_seconds(self) -> float:
        """Seconds since everything that was committed was archived."""
        return self.elapsed() - self._caught_up_at

    def _lateness(self) -> list[tuple[float, str]]:
        """What is late, or will be unless it goes on: sentences, each with the seconds until then."""
        url, found = self.settings.url, list[tuple[float, str]]()
        if self.failing is None:
            found.append((self._caught_up_at, f"The archive {url} is behind: {SLOW}"))
        for work, task in self._beside.items():
            if not task.done():
                at = work.went_on_at if isinstance(work, BaseCopies) else work.due
                found.append((at, f"{work.STUCK.format(url)} {SLOW}"))
        until = self.elapsed() - self.settings.interval - LATE_SECONDS
        return [(at - until, sentence) for at, sentence in found]

    @property
    def warnings(self) -> list[tuple[float, str]]:
        """Sentences for the operator, each with the seconds until it holds: this worker may be stuck by then."""
        url, found = self.settings.url, list[str]()
        if self.failing is not None:
            found.append(f"Nothing is archived to {url} now. {self.failing}")
        found += self.problems.values()
        if self.base_copies.needs_old_key:
            found.append(
                f"A restore from {url} needs the old key, until a base copy with the present one has ended."
            )
        elif self.term is not None and not self.base_copies.is_restorable:
            found.append(
                f"Nothing can be restored from {url} yet: its first base copy has not ended."
            )
        if self.check.failed is not None:
            found.append(f"The check of the archive {url} failed: {self.check.failed}")
        if self.check.could_not_run is not None:
            found.append(f"{self.check.CANNOT.format(url)} {self.check.could_not_run}")
        if self.base_copies.gap is not None:
            first, last = self.base_copies.gap
            found.append(
                f"The archive {url} lacks the records {first:,} to {last:,}, until a base copy has ended."
            )
        return [*self._lateness(), *((0.0, sentence) for sentence in found)]

    async def run(self) -> None:
        watching = asyncio.create_task(self._watch())
        try:
            while True:
                pause = await self.turn()
                await asyncio.sleep(pause)
        finally:
            watching.cancel()
            await self._end_beside()
            if self.term is not None:  # the server stops: a restore elsewhere may follow at once
                try:
                    async with asyncio.timeout(STOP_SECONDS):
                        await self._write_new(self.term)
                        await self._note()
                except (*PASSING, TermLost, TimeoutError) as error:
                    log.error(  # noqa: TRY400 - the sentence says it all
                        "The last changes are not in the archive %s. %s", self.settings.url, error
                    )
            await asyncio.to_thread(self.source.close)

    async def turn(self) -> float:
        """Archive what is new, and begin what is due; returns the seconds until the next turn."""
        try:
            if self.term is None:
                self.term = await self._begin()
            await self._write_new(self.term)
            for work in (self.base_copies, self.upkeep, self.check):
                if work is not self.check or self.base_copies.is_restorable:
                    self._start_beside(work, self.term)
        except TermLost as lost:
            log.warning("The archive's term was lost: %s.", lost)
            await self._end_beside()
            self.problems.clear()
            self.term, self._unnoted, self._run = None, None, secrets.token_hex(8)
        except PASSING as error:
            self._failed(str(error))
        except Exception:
            log.exception("The archive met an unexpected error.")
            self._failed(UNEXPECTED)
        else:
            if self._has_told:
                log.warning("The archive %s is written again.", self.settings.url)
            self.failing, self._has_told = None, False
            self._pause = self.settings.interval
        return self._pause

    def _failed(self, why: str) -> None:
        self.errors += 1
        self.failing = why
        self._pause = min(max(2 * self._pause, 1.0), RETRY_SECONDS_MAX)
        self._count_behind()
        self._tell_failing(why)

    def _tell_failing(self, why: str) -> None:
        sentence = f"Nothing is archived to {self.settings.url} now; changes are kept meanwhile."
        if self._tell(sentence, why):
            self._has_told = True

    def _tell(self, sentence: str, why: str) -> bool:
        """Log a problem, if it was not within the last minute."""
        now = self.elapsed()
        is_new = now >= self._logged.get(sentence, -math.inf) + LOG_SECONDS
        if is_new:
            self._logged[sentence] = now
            log.error("%s %s", sentence, why)
        return is_new

    def _count_behind(self) -> None:
        with suppress(EngineUnavailable):
            self.behind_bytes = self.source.bytes_after(
                0 if self.term is None else self.term.archived
            )

    async def _watch(self) -> None:
        """A request may hang for long, and the turn that waits for it says nothing."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self.watch()

    async def watch(self) -> None:
        late = [sentence for seconds, sentence in self._lateness() if seconds < 0]
        if late or self.failing is not None:
            await asyncio.to_thread(self._count_behind)
        for sentence in late:
            self._tell(sentence, f"{self.behind_bytes:,} bytes of changes wait.")
        if self.failing is not None:
            self._tell_failing(self.failing)

    async def _begin(self) -> OwnTerm:
        url = self.settings.url
        term, line = await begin_term(self.store, self.source, url, self._run, self.settings.keys)
        ends = await asyncio.to_thread(self.source.ends)
        await self.base_copies.begin(term, line, is_whole=ends.first <= term.archived + 1)
        if term.why is None:
            log.info("archives to %s, life %s", url, term.life)
            return term
        parent = term.term.parent
        after = parent and f", after record {parent.last:,} of the life {parent.life}"
        log.warning(
            "Archives to %s in a new life, %s%s: %s.", url, term.life, after or "", term.why
        )
        return term

    async def _write_new(self, term: OwnTerm) -> None:
        """Write all records that are not archived yet."""
        began = self.elapsed()
        ends = await asyncio.to_thread(self.source.ends)
        if ends.last == term.archived:
            await self._note()
        if ends.first > term.archived + 1:
            self.base_copies.gap = gap = Range(term.archived + 1, ends.first - 1)
            term.archived = gap.last
            log.error(
                "The records of changes %d to %d were removed before they were archived: moments in this gap cannot "
                "be restored. A base copy follows.",
                *gap,
            )
        # Not those that come meanwhile: under a steady load, this would never end.
        while found := await asyncio.to_thread(self._read, term.archived, ends.last):
            await self._write(term, *found)
        self._caught_up_at, self.behind_bytes = began, 0

    def _read(self, after: int, last: int) -> tuple[StoredRecord, StoredRecord, bytes] | None:
        """The first and the last of the next records, and all of them as the body of an object."""
        pieces: list[bytes] = []
        oldest = newest = None
        left = OBJECT_BYTES
        while left > 0 and (records := self.source.records(after, last, min(READ_BYTES, left))):
            pieces.append(write_records(records))
            oldest, newest = oldest or records[0], records[-1]
            after = newest.number
            left -= len(pieces[-1])
        return None if oldest is None or newest is None else (oldest, newest, b"".join(pieces))

    async def _write(
        self, term: OwnTerm, oldest: StoredRecord, newest: StoredRecord, body: bytes
    ) -> None:
        first, last = oldest.number, newest.number
        entry = Entry(first, last, oldest.time, newest.time, self.ticks(), self.elapsed())
        if self._last is None or self._last.number != first - 1:
            self._last = await asyncio.to_thread(self.source.record, first - 1)
        facts = {"entries": [entry], "after": self._last and digest_of(self._last)}
        if self.elapsed() > self._written_at + IDLE_SECONDS:
            await term.require_own()
        name = term.name(Kind.CHANGES, first, last)
        await term.create(name, facts, body, term.key)
        await term.require()
        self._written_at = self.elapsed()
        term.archived = self._unnoted = last
        self._last = newest
        if self.elapsed() >= self._noted_at + NOTE_SECONDS:
            await self._note()

    async def _note(self) -> None:
        """Let the directory know what is archived: it need not keep that any more."""
        if self._unnoted is None:
            return
        if not await asyncio.to_thread(self.source.note, self._run, self._unnoted):
            raise TermLost("another process archives this directory now")
        self._unnoted, self._noted_at = None, self.elapsed()

    def _start_beside(self, work: Work, term: OwnTerm) -> None:
        """Start a longer work beside the changes, if it is due and not under way."""
        task = self._beside.get(work)
        if task is not None and task.done():
            del self._beside[work]
            self._ended_beside(work, task)
        elif task is None and self.elapsed() >= self._retry.get(work, work.due):
            self._beside[work] = asyncio.create_task(work.run(term))

    def _ended_beside(self, work: Work, task: asyncio.Task[None]) -> None:
        self.problems.pop(work, None)
        self._retry.pop(work, None)
        try:
            task.result()
        except TermLost:
            raise
        except PASSING as error:
            why = str(error)
        except Exception:
            log.exception("The archive met an unexpected error.")
            why = UNEXPECTED
        else:
            return
        self.errors += 1
        sentence = work.CANNOT.format(self.settings.url)
        self.problems[work] = f"{sentence} {why}"
        self._tell(sentence, why)
        if work is not self.check:
            self._retry[work] = self.elapsed() + BESIDE_RETRY_SECONDS

    async def _end_beside(self) -> None:
        tasks = list(self._beside.values())
        self._beside.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _waiting_seconds(source: ArchiveSource, now: int) -> float:
    """How long the oldest record that is not noted as archived has waited, such as for this start; 0 for none."""
    with suppress(EngineUnavailable):
        state = source.state()
        oldest = source.record(state.archived + 1) if state.archive else None
        if oldest is not None:
            return max(now - oldest.time, 0) / TICKS_PER_SECOND
    return 0.0
