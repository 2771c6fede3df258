"""Whether a server is live and ready: its workers by the age of their reports, its storage by a probe.

The probe runs in a thread with an engine of its own, so that neither a busy worker nor a disk that hangs delays an
answer.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from threading import Thread
from typing import Final, TypeVar

from tablestone.clock import monotonic_seconds
from tablestone.engines.change_record import Retention, not_taken
from tablestone.engines.contract import Engine, EngineRefused, EngineUnavailable
from tablestone.engines.figures import WarningEngine
from tablestone.tables.expiry_sweeping import CLOCK_JUMPED
from tablestone.tables.metadata import probe_storage
from tablestone.telemetry.worker_reports import WorkerReports

Answer = TypeVar("Answer")

PROBE_SECONDS_MAX: Final = 5.0
"""Seconds after which storage counts as not answering."""
PROBE_PAUSE_SECONDS: Final = 1.0
"""Seconds for which the result of a probe is used again: a probe writes."""
READY_SECONDS_MAX: Final = 10.0
"""The age of a worker's report up to which the worker counts as ready. It reports once a second unless it is stuck."""
LIVE_SECONDS_MAX: Final = 60.0
"""The age of the newest report up to which the server counts as live. A restart may help one that is not."""
MAKES_ROOM: Final = (
    "The disk is nearly full: the oldest records of changes are removed before their time."
)


class StorageProbe:
    """Probes the storage that `open_engine` opens, in a thread of its own."""

    def __init__(
        self, open_engine: Callable[[], Engine], keep_changes: Retention | None = None
    ) -> None:
        self._open_engine = open_engine
        self._keep_changes = keep_changes
        self._engine: Engine | None = None
        self._watching: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="tablestone-probe", daemon=True)
        self._thread.start()
        self._under_way: asyncio.Future[str | None] | None = None
        self._ended_at = -math.inf
        self._reason: str | None = None
        self._warnings: list[str] = []

    @property
    def warnings(self) -> list[str]:
        """Sentences for the operator, though storage may be ready. The engine's are of now: a probe may wait."""
        engine: object = self._engine
        return [*(engine.warnings() if isinstance(engine, WarningEngine) else []), *self._warnings]

    async def reason(self) -> str | None:
        """Why storage is not ready, in a sentence; None if it is."""
        if monotonic_seconds() - self._ended_at < PROBE_PAUSE_SECONDS:
            return self._reason
        if self._under_way is None:
            probing = asyncio.run_coroutine_threadsafe(self._probe(), self._loop)
            self._under_way = asyncio.wrap_future(probing)
            self._under_way.add_done_callback(self._note)
        try:
            # A probe that does not return stays under way: another one would wait too.
            return await asyncio.wait_for(asyncio.shield(self._under_way), PROBE_SECONDS_MAX)
        except TimeoutError:
            return f"Storage has not answered within {PROBE_SECONDS_MAX:g} s."

    async def ask(self, question: Callable[[Engine], Awaitable[Answer]]) -> Answer:
        """Ask storage a question in the thread, which does nothing else until it waits. May raise `EngineRefused`."""

        async def ask() -> Answer:
            return await question(self._opened())

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ask(), self._loop))

    async def close(self) -> None:
        """Release storage, if it answers soon."""
        if self._engine is not None:
            closing = asyncio.run_coroutine_threadsafe(self._close(self._engine), self._loop)
            await asyncio.wait({asyncio.wrap_future(closing)}, timeout=PROBE_SECONDS_MAX)

    def _note(self, probed: asyncio.Future[str | None]) -> None:
        self._under_way = None
        if not probed.cancelled() and probed.exception() is None:
            self._ended_at, self._reason = monotonic_seconds(), probed.result()

    # In the thread.

    async def _probe(self) -> str | None:
        try:
            engine = self._opened()
        except EngineRefused as refused:
            return str(refused)
        reason = await probe_storage(engine)
        self._warnings = [] if reason else self._look_at_changes(engine)
        return reason

    def _look_at_changes(self, engine: Engine) -> list[str]:
        with suppress(EngineUnavailable):
            kept = None if engine.changes is None else engine.changes.kept()
            refused = not_taken(kept, self._keep_changes)
            warnings = [] if refused is None else [refused]
            return warnings + [MAKES_ROOM] * (kept is not None and kept.makes_room)
        return []

    def _opened(self) -> Engine:
        if self._engine is None:
            self._engine = self._open_engine()
            self._watching = asyncio.create_task(self._engine.watch(leads=False))
        return self._engine

    async def _close(self, engine: Engine) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await engine.close()


class Readiness:
    """Judges a server. Without a `probe`, its storage is in the memory of its worker."""

    def __init__(self, reports: WorkerReports, probe: StorageProbe | None) -> None:
        self._reports = reports
        self._probe = probe

    def workers_ready(self) -> int:
        """The number of workers that have reported in the last `READY_SECONDS_MAX`."""
        return sum(age <= READY_SECONDS_MAX for age in self._ages())

    def why_not_live(self) -> str | None:
        """A sentence if no worker has reported for long; else None."""
        return self._silence(LIVE_SECONDS_MAX)

    async def why_not_ready(self) -> list[str]:
        """A sentence for each reason why requests are not answered now; empty if the server is ready."""
        found = (self._silence(READY_SECONDS_MAX), await self.why_storage_is_not_ready())
        return [reason for reason in found if reason is not None]

    async def why_storage_is_not_ready(self) -> str | None:
        """A sentence if storage does not answer or takes no writes; else None."""
        return None if self._probe is None else await self._probe.reason()

    @property
    def warnings(self) -> list[str]:
        """What the last probe, the engine and the workers found, in sentences."""
        warnings = [] if self._probe is None else self._probe.warnings
        newest = map(self._reports.newest, range(self._reports.workers))
        present = [report for report in newest if report is not None]
        now = monotonic_seconds()  # none of them is of later
        values = [(now - report.at, report.content["now"]) for report in present]
        for age, each in values:
            warnings = warnings + [text for wait, text in each.get("warnings", ()) if age >= wait]
        return warnings + [CLOCK_JUMPED] * any(each.get("expiry_suspended") for _, each in values)

    @property
    def archive_held(self) -> str | None:
        """When the check of the archive held last."""
        for report in map(self._reports.newest, range(self._reports.workers)):
            if report is not None and (
                at := report.content["now"].get("archive", {}).get("check_held_at")
            ):
                return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
        return None

    def _silence(self, seconds_max: float) -> str | None:
        ages = self._ages()
        if not ages:
            return "No worker is ready yet."
        if min(ages) <= seconds_max:
            return None
        return f"No worker process has answered for {min(ages):.0f} s."

    def _ages(self) -> list[float]:
        now = monotonic_seconds()
        newest = map(self._reports.newest, range(self._reports.workers))
        return [now - report.at for report in newest if report is not None]
