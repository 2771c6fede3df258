"""When records of changes are too old while the clock jumps: nothing is lost by a wrong clock that is set right."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from storage.test_change_record import kept, log_of, records, write
from storage.write_sets import committed, put
from tablestone.clock import TICKS_PER_SECOND
from tablestone.configuration import Configuration
from tablestone.engines.change_record import FIRST, Retention
from tablestone.engines.record_age import RecordAge
from tablestone.engines.registry import open_engine
from tablestone.server.application import Application, Parts
from tablestone.server.worker_slot import WorkerSlot
from tablestone.testing import TableStorage

if TYPE_CHECKING:
    from pathlib import Path

    from tablestone.engines.contract import Engine
    from tablestone.testing.storage_service import StorageService

HOUR: Final = 3600
EVER: Final = 638_000_000_000_000_000


class Machine:
    """A machine with a wall clock and one that never steps back, and what looks at both each second."""

    def __init__(self) -> None:
        self.wall = EVER
        self.elapsed = 1_000.0
        self.age = RecordAge(lambda: self.wall)

    def start(self) -> None:
        self.age.begin(lambda: self.elapsed)

    def jump(self, seconds: float) -> None:
        self.wall += int(seconds * TICKS_PER_SECOND)

    def wait(self, seconds: int, kept_seconds: int = HOUR) -> list[float]:
        """How long before the wall's true time the oldest kept record may be, after each second; 0: for ever."""
        return [self.after(1, kept_seconds) for _ in range(seconds)]

    def after(self, seconds: float, kept_seconds: int = HOUR) -> float:
        self.elapsed += seconds
        self.jump(seconds)
        oldest = self.age.oldest_time(kept_seconds * TICKS_PER_SECOND)
        true_time = EVER + int((self.elapsed - 1_000) * TICKS_PER_SECOND)
        return (true_time - oldest) / TICKS_PER_SECOND if oldest else 0


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.start()
    assert machine.wait(HOUR)[-2:] == [0, HOUR]
    return machine


@pytest.mark.parametrize(("kept_seconds", "first"), [(300, 300), (HOUR, HOUR), (7 * 86_400, HOUR)])
def test_nothing_goes_by_age_for_the_shorter_of_an_hour_and_the_age_after_a_start(
    kept_seconds: int, first: int
) -> None:
    machine = Machine()
    machine.start()
    found = machine.wait(2 * HOUR, kept_seconds)
    assert found == [0] * (first - 1) + [kept_seconds] * (2 * HOUR - first + 1)


def test_a_jump_forward_that_is_set_right_removes_nothing(machine: Machine) -> None:
    machine.jump(2 * HOUR)
    during = machine.wait(75)
    machine.jump(-2 * HOUR)
    assert set(during + machine.wait(2 * HOUR)) == {HOUR}


def test_a_clock_that_stays_where_it_jumped_is_believed_after_an_hour(machine: Machine) -> None:
    machine.jump(2 * HOUR)
    found = machine.wait(2 * HOUR)
    believed = found.index(-HOUR)
    assert HOUR <= believed <= HOUR + 2
    assert found == [HOUR] * believed + [-HOUR] * (2 * HOUR - believed)


def test_a_second_jump_is_believed_an_hour_after_itself(machine: Machine) -> None:
    machine.jump(HOUR)
    first = machine.wait(HOUR // 2)
    machine.jump(HOUR)
    found = first + machine.wait(2 * HOUR)
    assert [found.index(each) for each in (0, -HOUR)] == [HOUR + 1, HOUR * 3 // 2 + 1]


def test_a_clock_that_steps_back_counts_at_once(machine: Machine) -> None:
    """It removes less. Set right again, it is believed after an hour, like every jump forward."""
    machine.jump(-10 * HOUR)
    assert set(machine.wait(100)) == {11 * HOUR}
    machine.jump(10 * HOUR)
    found = machine.wait(HOUR + 10)
    assert (found[HOUR - 10], found[-1]) == (11 * HOUR, HOUR)


def test_a_jump_while_nothing_looks_is_no_older_than_the_next_look(machine: Machine) -> None:
    """As of a process that was stopped for hours."""
    machine.jump(2 * HOUR)
    assert machine.after(10 * HOUR) == HOUR
    assert machine.wait(HOUR - 1)[-1] == HOUR
    assert machine.wait(3)[-1] == -HOUR


def test_a_jump_before_the_first_look_after_the_start() -> None:
    machine = Machine()
    machine.start()
    machine.jump(2 * HOUR)
    assert machine.after(2 * HOUR) == HOUR


def test_sleep_is_no_jump(machine: Machine) -> None:
    assert machine.after(10 * HOUR) == HOUR


def test_a_clock_that_was_wrong_before_the_start_has_the_hour_to_be_set_right() -> None:
    machine = Machine()
    machine.jump(2 * HOUR)
    machine.start()
    before = machine.wait(HOUR // 2)
    machine.jump(-2 * HOUR)
    assert set(before) == {0}
    assert set(machine.wait(HOUR)) == {0, HOUR}


def test_jitter_and_drift_take_little_memory(machine: Machine) -> None:
    for number in range(20_000):
        machine.jump((number * 7919 % 101 - 50) * 1e-6)
        machine.after(1)
    assert len(machine.age._leads) <= HOUR


@pytest.fixture(params=["memory:", "sqlite"])
def machine_and_engine(request: pytest.FixtureRequest, data: Path) -> tuple[Machine, Engine]:
    machine = Machine()
    url = request.param if request.param == "memory:" else f"sqlite:{data}"
    return machine, open_engine(url, lambda: machine.wall)


@pytest.mark.asyncio
async def test_a_shorter_age_is_judged_by_the_time_by_which_records_age(data: Path) -> None:
    """A clock that has jumped forward makes no record older."""
    machine = Machine()
    engine = open_engine(f"sqlite:{data}", lambda: machine.wall)
    log = log_of(engine)
    machine.age = log.age
    await log.keep(Retention(2 * HOUR * TICKS_PER_SECOND, 100_000))
    machine.start()
    machine.after(HOUR + 60)
    await committed(engine, write(b"r", put(b"1")))
    machine.jump(3 * HOUR)
    machine.after(1)
    hour = Retention(HOUR * TICKS_PER_SECOND, 100_000)
    await log.keep(hour)
    assert kept(engine).retention == hour
    for _ in range(HOUR // 2):
        machine.after(1)
    machine.start()  # as a new process: it trusts the clock as it is, and trims nothing yet
    await log.keep(Retention(60 * TICKS_PER_SECOND, 100_000))
    assert kept(engine).retention == hour
    assert len(await records(engine)) == 1
    await engine.close()


@pytest.mark.asyncio
async def test_an_engine_keeps_its_records_through_a_jump(
    machine_and_engine: tuple[Machine, Engine],
) -> None:
    """The measured case: kept for an hour, two hours forward for 75 seconds, with writes meanwhile."""
    machine, engine = machine_and_engine
    log = log_of(engine)
    machine.age = log.age
    await log.keep(Retention(HOUR * TICKS_PER_SECOND, 100_000))
    machine.start()
    machine.after(HOUR + 60)
    await committed(engine, write(b"before", put(b"1")))
    machine.jump(2 * HOUR)
    for number in range(75):
        machine.after(1)
        await committed(engine, write(b"%d" % (number % 2), put(b"1")))
        assert kept(engine).last + 1 - kept(engine).first == min(number + 2, 76)
        await log.read(FIRST, subject=None, rows_max=1, bytes_max=1)
    machine.jump(-2 * HOUR)
    machine.after(HOUR - 200)
    assert len(await records(engine)) == 76
    await committed(engine, write(b"large", put(b"x" * 98_000)))
    assert 0 < kept(engine).bytes <= 100_000, "the size counts as always"
    assert len(await records(engine)) < 76
    machine.after(HOUR * 4)
    kept(engine)
    assert await records(engine) == []
    await engine.close()


@pytest.mark.asyncio
async def test_a_server_counts_by_a_clock_that_never_steps_back() -> None:
    wall, elapsed = EVER, 0.0
    keep = Retention(HOUR * TICKS_PER_SECOND, None)
    configuration = Configuration("", 0, None, "memory:", (), "error", keep_changes=keep)
    parts = Parts(lambda: wall, aging=lambda: elapsed)
    application = Application(configuration, WorkerSlot(), parts)
    await application.startup()
    engine = application._engine
    assert engine is not None
    await committed(engine, write(b"a", put(b"1")))
    elapsed += 2 * HOUR
    assert kept(engine).last == kept(engine).first == 1
    wall += 3 * HOUR * TICKS_PER_SECOND
    elapsed += HOUR // 2
    assert kept(engine).last == kept(engine).first == 1
    elapsed += HOUR
    assert kept(engine).first == 2
    await application.shutdown()


def test_the_clock_of_the_test_kit_counts_at_once() -> None:
    storage = TableStorage(keep_changes=True)
    keep = Retention(HOUR * TICKS_PER_SECOND, None)
    storage._configuration = replace(storage._configuration, keep_changes=keep)

    async def number(service: StorageService) -> int:
        changes = log_of(service.state.primary).kept()
        assert changes is not None
        return changes.last + 1 - changes.first

    with storage:
        storage.seed({"Orders": [{"PartitionKey": "p", "RowKey": "r"}]})
        assert storage.begin(number).result(10) == 2
        storage.clock.set(storage.clock.now() + timedelta(hours=2))
        assert storage.begin(number).result(10) == 0
