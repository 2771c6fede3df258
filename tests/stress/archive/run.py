"""Random programs over a data directory that is archived: commits, restarts, hours and days, and going back.

Nothing waits: the archiver works when the program says so, and clocks move by themselves. After some steps a record is
restored, by its number or by a moment, and must be the model's state at that commit.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from tablestone.archive import base_copy
from tablestone.archive.going_back import MomentRefused, read_histories, ticks_of_unix
from tablestone.archive.objects import ObjectDamaged
from tablestone.archive.store import StoreUnavailable
from unit.archive.archived_server import SECOND, ArchivedServer, restored
from unit.archive.stores import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path
    from random import Random

DAY: Final = 86_400
PART_BYTES: Final = 100
"""So base copies have parts, and are interrupted between them."""
KEPT: Final = 4 * DAY
STATES_MAX: Final = 4_000
"""States that are remembered. Of older ones a tenth stays."""


class Run:
    """`random` makes all choices."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.random = random
        self.directory = directory
        self.store = MemoryStore()
        self.store.before = self._may_fail
        self.server = ArchivedServer(directory / "data-0", self.store, retention=KEPT)
        self.fails_at = 0
        """The request to the store, counted from now on, that fails; 0 for none."""
        self.steps: dict[str, int] = {}
        self.restored = 0
        self._directories = 1
        self._actions: dict[Callable[[], Awaitable[str | None]], int] = {
            self.commit: 60,
            self.turn: 25,
            self.fail: 3,
            self.wait_an_hour: 2,
            self.wait_a_day: 1,
            self.restart: 2,
            self.go_back: 1,
            self.take_over: 1,
            self.restore_number: 2,
            self.restore_moment: 2,
        }

    async def problems(self, steps: int) -> AsyncIterator[str]:
        """Take so many steps; yields what is wrong, as texts."""
        small = patch.object(base_copy, "PART_BYTES", PART_BYTES)
        small.start()
        try:
            actions = self.random.choices([*self._actions], [*self._actions.values()], k=steps)
            for number, action in enumerate(actions):
                self._pass_by(self.random.choice([0, 0, 0.1, 1, 30]))
                self.steps[action.__name__] = self.steps.get(action.__name__, 0) + 1
                if (problem := await action()) is not None:
                    yield f"step {number}, {action.__name__}: {problem}"
                if len(self.server.states) > STATES_MAX:
                    self._forget()
            self.fails_at = 0
            await self.server.catch_up()
            if self.server.rows() != self.server.model:
                yield "the directory is not as the model"
            if (problem := await self._compare(self.server.last, to=self.server.last)) is not None:
                yield problem
        finally:
            small.stop()
            await self.server.close()

    def __str__(self) -> str:
        taken = ", ".join(f"{count:,} {name}" for name, count in sorted(self.steps.items()))
        return f"{taken}; restored {self.restored:,} times, {self._directories} directories"

    def _may_fail(self, _what: str, _name: str) -> None:
        self.fails_at -= 1
        if self.fails_at == 0:
            raise StoreUnavailable("503: Slow Down.")

    def _pass_by(self, seconds: float) -> None:
        self.server.clock.move(seconds)
        self.store.now += seconds

    def _forget(self) -> None:
        old = sorted(self.server.states)[: STATES_MAX // 2]
        for number in old:
            if self.random.random() > 0.1:
                del self.server.states[number]

    async def commit(self) -> None:
        rows: dict[bytes, bytes | None] = {}
        for _row in range(self.random.choice([1, 1, 1, 2, 5])):
            row = b"%d" % self.random.randrange(9)
            is_put = self.random.random() < 0.6
            rows[row] = self.random.randbytes(self.random.choice([0, 8, 99])) if is_put else None
        await self.server.commit(b"p%d" % self.random.randrange(3), rows)

    async def turn(self) -> None:
        await self.server.turn()

    async def fail(self) -> None:
        self.fails_at = self.random.randint(1, 6)

    async def wait_an_hour(self) -> None:
        self._pass_by(3_700)
        await self.server.turn()

    async def wait_a_day(self) -> None:
        self._pass_by(DAY + 100)
        await self.server.turn()

    async def restart(self) -> None:
        """As after a kill."""
        self.server = await self.server.again()

    async def go_back(self) -> str | None:
        """Continue with a directory that was restored at some record. It begins a child life."""
        self.fails_at = 0
        await self.server.catch_up()
        number = self.random.choice(sorted(self.server.states)[-30:])
        into = self.directory / f"data-{self._directories}"
        try:
            await restored(self.store, self.server.life, to=number, into=into)
        except MomentRefused:
            return None
        self._directories += 1
        before = self.server
        await before.close()
        shutil.rmtree(before.data)
        self.server = ArchivedServer(into, self.store, before.clock, retention=KEPT)
        if self.server.model != before.states[number]:
            return f"record {number} is not restored"
        older = {each: state for each, state in before.states.items() if each <= number}
        self.server.states = older | self.server.states
        self.server.times = before.times | self.server.times
        await self.server.catch_up()
        return None

    async def take_over(self) -> str | None:
        """Continue with a copy of the disk, which lacks what the server has written since, archived or not."""
        before, last = self.server, self.server.last
        model, states = before.model.copy(), dict(before.states)
        into = self.directory / f"data-{self._directories}"
        self._directories += 1
        shutil.copytree(before.data, into)
        for _action in range(self.random.randrange(6)):
            await self.random.choice([self.commit, self.commit, self.turn, self.fail])()
        await before.close()
        shutil.rmtree(before.data)
        self.server = ArchivedServer(into, self.store, before.clock, retention=KEPT)
        if self.server.model != model:
            return "the copy is not as the directory was"
        self.server.states = {n: each for n, each in states.items() if n <= last}
        self.server.times = {n: time for n, time in before.times.items() if n <= last}
        self.server.note_state()
        return None

    async def restore_number(self) -> str | None:
        number = self.random.choice(sorted(self.server.states))
        return await self._compare(number, to=number)

    async def restore_moment(self) -> str | None:
        number = self.random.choice(sorted(self.server.states)[-300:])
        moment = self.server.times[number] + self.random.choice([-1, 0, 1, SECOND])
        if moment > ticks_of_unix(self.store.now):
            return None
        known = [each for each in self.server.states if self.server.times[each] <= moment]
        if not known or max(known) + 1 not in {*self.server.states, self.server.last + 1}:
            return None
        return await self._compare(max(known), moment=moment)

    async def _compare(
        self, number: int, *, to: int | None = None, moment: int | None = None
    ) -> str | None:
        if self.server.archiver.term is None:
            return None
        self.fails_at = 0
        archived = self.server.term.archived
        try:
            found, rows = await restored(self.store, self.server.life, to=to, moment=moment)
        except MomentRefused as refused:
            is_new = number > archived or not self.server.archiver.base_copies.is_restorable
            is_old = self.server.times[number] < self.server.clock() - KEPT * SECOND
            ranges = (await read_histories(self.store, []))[self.server.life].ranges
            return None if is_new or is_old or number <= ranges[0].first else str(refused)
        except ObjectDamaged as damaged:
            return str(damaged)
        self.restored += 1
        # The archive may have more than the archiver knows: a request after the write failed.
        wanted = max(min(number, archived), min(number, found))
        between = range(min(found, wanted) + 1, max(found, wanted) + 1)
        if (
            moment is not None
        ):  # where times of commits are equal, those of objects count, to the second
            times = [self.server.times[each] for each in between]
            between = range(sum(abs(time - moment) > SECOND for time in times))
        if between:
            return f"record {found} was restored in place of {number}, archived are {archived}"
        if found in self.server.states and rows != self.server.states[found]:
            return f"the rows at record {found} are not those of the model"
        return None
