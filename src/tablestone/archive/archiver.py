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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tablestone.archive.history import Range, read_bases, read_named
from tablestone.archive.objects import (
    Content,
    Entry,
    Kind,
    Name,
    ObjectDamaged,
    ObjectRefused,
    write_object,
    write_records,
)
from tablestone.archive.store import ObjectExists, ObjectMissing, StoreUnavailable
from tablestone.archive.terms import TermLost, begin_term
from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.contract import EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from tablestone.archive.store import Store
    from tablestone.archive.terms import Begun
    from tablestone.configuration import ArchiveSettings
    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.sqlite.archive_source import ArchiveSource, StoredRecord

OBJECT_BYTES: Final = 8 << 20
"""About how many bytes of records or rows an object has, before it is compressed."""
RETRY_SECONDS_MAX: Final = 10.0
LOG_SECONDS: Final = 60.0
"""Seconds between two lines of the log about a store that fails."""

STOP_SECONDS: Final = 3.0
"""Seconds for the last records when the server stops."""
PASSING: Final = (StoreUnavailable, EngineUnavailable, ObjectDamaged, ObjectRefused)
"""Errors after which the archiver tries again."""

log = logging.getLogger(__name__)


class Work(NamedTuple):
    """What an archiver does beside the changes, from time to time."""

    next_due: Callable[[Archiver], float]
    """When it is due next, by the clock that never steps back."""
    run: Callable[[Archiver], Coroutine[Any, Any, None]]


class Archiver:
    """Archives one data directory. `run` never returns by itself."""

    def __init__(
        self,
        store: Store,
        source: ArchiveSource,
        settings: ArchiveSettings,
        ticks: Callable[[], int],
        elapsed: Callable[[], float],
        scratch: Path,
        works: Sequence[Work] = (),
    ) -> None:
        self.store = store
        self.source = source
        self.settings = settings
        self.elapsed = elapsed
        self.errors = 0
        self.behind_bytes = 0
        """Bytes of records that are not archived, as of the last attempt."""
        self.begun: Begun | None = None
        self.archived = 0
        """The newest record that is archived."""
        self.is_restorable = False
        """Whether a base copy of this life is complete."""
        self.gap: Range | None = None
        """The newest records that were not archived, until a base copy closes the gap."""
        self.failing: str | None = None
        """Why nothing can be archived now."""
        self.newest_base_at = 0.0
        """When the newest base copy ended, by `elapsed`."""
        self.copying: int | None = None
        """The start of the newest base copy of this archiver: nothing of it is left over."""
        self.needs_old_key = False
        """Whether all base copies are encrypted with an older key, or cannot be read."""
        self.looked_after_at = elapsed()
        """When objects were joined and deleted last, by `elapsed`."""
        self.cannot_delete = False
        self.scratch = scratch
        """A directory for the check of the archive."""
        self.check_began_at = elapsed()
        self.check_held_at: float | None = None
        """When the check held last, in seconds since 1970."""
        self.check_failed: str | None = None
        """Why the last check failed."""
        self.ticks = ticks
        self._run = secrets.token_hex(8)
        self._caught_up_at = elapsed() - _waiting_seconds(source, ticks())
        self._logged_at: float | None = None
        self._pause: float = settings.interval
        self._has_progress = asyncio.Event()
        self._works = works
        self._beside: dict[Work, asyncio.Task[None]] = {}

    @property
    def key(self) -> EncryptionKey | None:
        return self.settings.keys[0] if self.settings.keys else None

    @property
    def keys(self) -> Sequence[EncryptionKey]:
        return self.settings.keys

    @property
    def lag_seconds(self) -> float:
        """Seconds since everything that was committed was archived."""
        return self.elapsed() - self._caught_up_at

    @property
    def warnings(self) -> list[str]:
        """Sentences for the operator, though requests are served."""
        url, found = self.settings.url, []
        if self.failing is not None:
            found.append(f"Nothing is archived to {url} now. {self.failing}")
        if not self.is_restorable and not self.needs_old_key:
            found.append(
                f"Nothing can be restored from {url} yet: its first base copy has not ended."
            )
        if self.needs_old_key:
            found.append(
                f"A restore from {url} needs the old key, until a base copy with the present one has ended."
            )
        if self.check_failed is not None:
            found.append(f"The check of the archive {url} failed: {self.check_failed}.")
        if self.gap is not None:
            first, last = self.gap
            found.append(
                f"The archive {url} lacks the records {first:,} to {last:,}, until a base copy has ended."
            )
        return found

    async def run(self) -> None:
        try:
            while True:
                pause = await self.turn()
                await asyncio.sleep(pause)
        finally:
            await self._end_beside()
            if self.begun is not None:  # the server stops: a restore elsewhere may follow at once
                try:
                    async with asyncio.timeout(STOP_SECONDS):
                        await self._write_new()
                except (*PASSING, TermLost, TimeoutError) as error:
                    log.error(  # noqa: TRY400 - the sentence says it all
                        "The last changes are not in the archive %s. %s", self.settings.url, error
                    )
            await asyncio.to_thread(self.source.close)

    async def turn(self) -> float:
        """Archive what is new; returns the seconds until the next turn."""
        try:
            await self._step()
            self._succeeded()
        except TermLost as lost:
            await self._lose(str(lost))
        except PASSING as error:
            self._failed(str(error))
        except Exception:
            log.exception("The archive met an unexpected error.")
            self._failed("An unexpected error is in the log.")
        return self._pause

    async def _step(self) -> None:
        if self.begun is None:
            await self._begin()
        await self._write_new()
        for work in self._works:
            self._start_beside(work)

    async def _write_new(self) -> None:
        """Write all records that are not archived yet."""
        began = self.elapsed()
        ends = await asyncio.to_thread(self.source.ends)
        if ends.first > self.archived + 1:
            self.gap = Range(self.archived + 1, ends.first - 1)
            self.archived = self.gap.last
            log.error(
                "The records of changes %d to %d were removed before they were archived: moments in this gap cannot "
                "be restored. A base copy follows.",
                *self.gap,
            )
        # Not those that come meanwhile: under a steady load, this would never end.
        while records := await asyncio.to_thread(
            self.source.records, self.archived, ends.last, OBJECT_BYTES
        ):
            await self._write(records)
        self._caught_up_at, self.behind_bytes = began, 0

    async def _begin(self) -> None:
        begun = await begin_term(
            self.store, self.source, self.settings.url, self._run, self.settings.keys
        )
        self.begun, self.archived = begun, begun.archived
        self.is_restorable = any(base.reach >= begun.archived for base in begun.bases)
        problems: list[Exception] = []
        readable = await read_bases(self.store, begun.line, self.settings.keys[:1], problems)
        is_refused = any(isinstance(problem, ObjectRefused) for problem in problems)
        self.needs_old_key = is_refused and not readable
        if self.needs_old_key and self.key is None:  # it would put the data beside in clear
            self.begun = None
            raise ObjectRefused(
                f"The life {begun.life} is encrypted: name the key of the archive with --archive-key-file."
            )
        if begun.bases:
            lives = begun.line.lives
            base = lives[begun.bases[-1].name.life].found[begun.bases[-1].name]
            now = max(life.written for life in lives.values())
            self.newest_base_at = self.elapsed() - (now - base.modified)
        if (await asyncio.to_thread(self.source.ends)).first > self.archived + 1:
            # A server without an archive has written: nothing since can be restored without a base copy.
            self.newest_base_at = -math.inf
        if begun.why is None:
            log.info("archives to %s, life %s", self.settings.url, begun.life)
            return
        parent = begun.term.parent
        after = (
            "" if parent is None else f", after record {parent.last:,} of the life {parent.life}"
        )
        log.warning(
            "Archives to %s in a new life, %s%s: %s.",
            self.settings.url,
            begun.life,
            after,
            begun.why,
        )

    async def _write(self, records: Sequence[StoredRecord]) -> None:
        assert self.begun is not None
        first, last = records[0], records[-1]
        entry = Entry(
            first.number, last.number, first.time, last.time, self.ticks(), self.elapsed()
        )
        name = Name(
            self.begun.life, Kind.CHANGES, self.begun.term.number, first.number, last.number
        )
        body = await asyncio.to_thread(write_records, records)
        await self.create(name, {"entries": [entry]}, body, self.key)
        await self.require_term()
        if not await asyncio.to_thread(self.source.note, self._run, last.number):
            raise TermLost("another process archives this directory now")
        self.archived = last.number
        self._has_progress.set()

    async def create(
        self, name: Name, facts: dict[str, Any], body: bytes, key: EncryptionKey | None
    ) -> None:
        """Create an object of this term, unless another run has begun one."""
        await self.require_term()
        facts["run"] = self._run
        data = await asyncio.to_thread(write_object, name, Content(facts, body), key)
        try:
            await self.store.create(str(name), data)
        except ObjectExists:
            # A store may have written it and answered with an error.
            found = await read_named(self.store, name, self.settings.keys)
            if found.facts.get("run") != self._run or found.body != body:
                raise TermLost(f"another process has written {name}") from None

    async def require_term(self) -> None:
        """`TermLost` if another run has begun a later term."""
        assert self.begun is not None
        later = Name(self.begun.life, Kind.TERM, self.begun.term.number + 1)
        try:
            await self.store.read(str(later), 1)
        except ObjectMissing:
            return
        raise TermLost(f"another server goes on in the life {self.begun.life}")

    def note_base(self, start: int) -> None:
        """A base copy that begins after the record `start` has ended."""
        self.newest_base_at = self.elapsed()
        self.is_restorable, self.needs_old_key = True, False
        if self.gap is not None and self.gap.last <= start:
            self.gap = None

    async def reach(self, number: int) -> None:
        """Wait until a record is archived."""
        while self.archived < number:
            self._has_progress.clear()
            await self._has_progress.wait()

    def _start_beside(self, work: Work) -> None:
        """Start a longer work beside the changes, if it is due and not under way."""
        task = self._beside.get(work)
        if task is not None and task.done():
            del self._beside[work]
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        elif task is None and self.elapsed() >= work.next_due(self):
            self._beside[work] = asyncio.create_task(work.run(self))

    async def _end_beside(self) -> None:
        tasks = list(self._beside.values())
        self._beside.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _lose(self, why: str) -> None:
        log.warning("The archive's term was lost: %s.", why)
        await self._end_beside()
        self.begun, self._run = None, secrets.token_hex(8)

    def _succeeded(self) -> None:
        if self.failing is not None:
            log.warning("The archive %s is written again.", self.settings.url)
        self.failing = self._logged_at = None
        self._pause = self.settings.interval

    def _failed(self, why: str) -> None:
        self.errors += 1
        self.failing = why
        self._pause = min(max(2 * self._pause, 1.0), RETRY_SECONDS_MAX)
        with suppress(EngineUnavailable):
            self.behind_bytes = self.source.bytes_after(self.archived)
        now = self.elapsed()
        if self._logged_at is None or now >= self._logged_at + LOG_SECONDS:
            self._logged_at = now
            log.error(
                "Nothing is archived to %s now; changes are kept meanwhile. %s",
                self.settings.url,
                why,
            )


def _waiting_seconds(source: ArchiveSource, now: int) -> float:
    """How long the oldest record that is not noted as archived has waited, such as for this start; 0 for none."""
    with suppress(EngineUnavailable):
        state = source.state()
        oldest = None if state is None else source.record(state.archived + 1)
        if oldest is not None:
            return max(now - oldest.time, 0) / TICKS_PER_SECOND
    return 0.0
