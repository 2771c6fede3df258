"""Requests that wait for changes (docs/protocol/changes.md 2): one look at the record serves all of a process.

The look says which feeds have grown; requests that wait for them are answered anew, all steps included. Whether a
caller may still read a feed is asked once for all its requests, each second and when the catalogue has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tablestone.clock import monotonic_seconds
from tablestone.engines.contract import EngineUnavailable
from tablestone.tables.changes import scopes_of
from tablestone.telemetry.request_record import RequestRecord
from tablestone.wire.changes import asked_from

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from tablestone.engines.contract import Engine
    from tablestone.model.operations import ChangeCursor
    from tablestone.server.admission import Admission
    from tablestone.server.requests.authenticated import ReadBody
    from tablestone.server.requests.body import Arriving
    from tablestone.wire.messages import RawRequest, RawResponse, Wait

    Answer = Callable[[RawRequest, ReadBody, RequestRecord], Awaitable[RawResponse]]

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.05
"""Seconds between two looks for changes that another process may have committed, and between two answers of a wait."""
GAP_SECONDS: Final = 0.01
"""Seconds between two looks while this process commits changes all the time."""
PERMISSION_SECONDS: Final = 1.0
"""Seconds between two looks at account, table and permission of a caller."""


@dataclass(eq=False)
class _Waiting:
    """A request that waits, and the answer that it has so far."""

    request: RawRequest
    wait: Wait
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    reached: int = 0
    """The record has nothing of the feed up to this number."""

    @property
    def group(self) -> Hashable:
        """Equal for the requests of one caller to one feed."""
        return self.wait.caller, self.wait.cursor.scope

    def wake(self, reached: int) -> None:
        if not self.woken.is_set():
            self.reached = reached
            self.woken.set()

    def cursor_after(self, reached: int) -> ChangeCursor:
        """The cursor, moved on to what was looked at: records before that may be trimmed."""
        cursor = self.wait.cursor
        return cursor._replace(number=reached, time=0) if reached > cursor.number else cursor


class Waits:
    """The requests of one process that wait. `answer` is `Pipeline.answer`."""

    def __init__(self, engine: Engine, answer: Answer, admission: Admission) -> None:
        assert engine.changes is not None
        self._log = engine.changes
        self._engine = engine
        self._answer = answer
        self._admission = admission
        self._waiting: defaultdict[Hashable, set[_Waiting]] = defaultdict(set)
        """By groups."""
        self._ask_at: dict[Hashable, float] = {}
        """When the permission of a group is to be asked for."""
        self._examined = 0
        """The number up to which the record was looked at."""
        self._watching: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None

    async def answer(
        self, request: RawRequest, arriving: Arriving, record: RequestRecord, wait: Wait
    ) -> RawResponse:
        """The answer once it has lines or is an error, or when the time of the wait is over."""
        now = monotonic_seconds()
        end, next_at = now + wait.seconds, now
        gone = asyncio.ensure_future(arriving.until_ended())
        try:
            while True:
                if wait.has_more:
                    await asyncio.sleep(0)
                else:
                    wait = await self._until_grown(_Waiting(request, wait), gone, next_at, end)
                response = await self._answer(asked_from(request, wait.cursor), _no_body, record)
                now = monotonic_seconds()
                if (
                    response.wait is None
                    or now >= end
                    or self._admission.is_stopping
                    or gone.done()
                ):
                    return response
                wait, next_at = response.wait, now + LOOK_SECONDS
        finally:
            gone.cancel()

    async def _until_grown(
        self, waiting: _Waiting, gone: asyncio.Future[None], next_at: float, end: float
    ) -> Wait:
        """Wait until the feed may have grown, and at least until `next_at`; or else until `end`."""
        self._join(waiting)
        woken = asyncio.ensure_future(waiting.woken.wait())
        try:
            timeout = max(0.0, end - monotonic_seconds())
            await asyncio.wait((woken, gone), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            pause = min(next_at, end) - monotonic_seconds()
            if pause > 0:  # the news may not be for this caller, so do not ask all the time
                await asyncio.wait((gone,), timeout=pause)
            waiting.wake(self._examined)
        finally:
            woken.cancel()
            self._leave(waiting)
        return waiting.wait._replace(cursor=waiting.cursor_after(waiting.reached))

    def _join(self, waiting: _Waiting) -> None:
        number = waiting.wait.cursor.number
        # A request with an earlier position makes the next look begin there.
        self._examined = min(number, self._examined) if self._waiting else number
        self._waiting[waiting.group].add(waiting)
        self._ask_at.setdefault(waiting.group, monotonic_seconds() + PERMISSION_SECONDS)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    def _leave(self, waiting: _Waiting) -> None:
        members = self._waiting[waiting.group]
        members.discard(waiting)
        if not members:
            del self._waiting[waiting.group], self._ask_at[waiting.group]
        if not self._waiting:
            for task in (self._watching, self._asking):
                if task is not None:
                    task.cancel()
            self._watching = self._asking = None

    async def _watch(self) -> None:
        generation = self._engine.generation
        while True:
            try:
                await self._look()
            except EngineUnavailable:  # each request meets the error too, and answers it
                self._wake_all()
                await asyncio.sleep(PERMISSION_SECONDS)
            except Exception:
                log.exception("The look for changes failed.")
                self._wake_all()
                await asyncio.sleep(PERMISSION_SECONDS)
            if self._admission.is_stopping:
                self._wake_all()
            if self._asking is None or self._asking.done():  # beside the look: it takes a while
                before, generation = generation, self._engine.generation
                asking = self._ask_permissions(at_once=generation != before)
                self._asking = asyncio.create_task(asking)
            await asyncio.sleep(GAP_SECONDS)

    async def _look(self) -> None:
        """Wake the requests whose feeds have grown."""
        after = self._examined
        news = await self._log.news(after, LOOK_SECONDS)
        if after != self._examined or not news:
            return  # the next look begins earlier, or finds the same
        if news[0][0] != after + 1:  # records were trimmed before this look
            self._wake_all()
        grown = {scope: number for number, note in news for scope in scopes_of(note)}
        for members in self._waiting.values():
            for waiting in members:
                cursor = waiting.wait.cursor
                if grown.get(cursor.scope, 0) > cursor.number:
                    waiting.wake(after)
        self._examined = news[-1][0]

    async def _ask_permissions(self, *, at_once: bool) -> None:
        """Answer one request of each group. If it may not wait any longer, wake the others to ask for themselves."""
        now = monotonic_seconds()
        for group in [group for group, at in self._ask_at.items() if at_once or now >= at]:
            members = self._waiting.get(group)
            if not members:
                continue  # they have left while another group was asked for
            self._ask_at[group] = now + PERMISSION_SECONDS
            one = next(iter(members))
            again = asked_from(one.request, one.cursor_after(self._examined))
            wait = (await self._answer(again, _no_body, RequestRecord(now))).wait
            if wait is None or (wait.caller, wait.cursor.scope) != group:
                for waiting in self._waiting.get(group, ()):
                    waiting.wake(self._examined)
            await asyncio.sleep(0)  # let the look and requests run

    def _wake_all(self) -> None:
        for members in self._waiting.values():
            for waiting in members:
                waiting.wake(self._examined)


async def _no_body(_bytes_max: int) -> bytes:
    return b""
