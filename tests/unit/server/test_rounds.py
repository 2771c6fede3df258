"""The order of waiting requests: addresses take turns, and a turn of the loop starts as many as its time allows."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from tablestone import limits
from tablestone.server.admission import LATE_SECONDS, Rounds


class StillLoop:
    """An event loop that a test turns by hand. Like uvloop's, its clock is the start of the present turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turn_began = 0.0
        self._soon: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.turn_began

    def seconds(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._soon.append((callback, arguments))

    def turn(self) -> bool:
        """Run what is due; False if there was nothing."""
        due, self._soon = self._soon, []
        self.turn_began = self.now
        for callback, arguments in due:
            callback(*arguments)
        return bool(due)


class Waiting:
    """A loop, rounds on it, and the requests that have started, as `ADDRESS NUMBER`."""

    def __init__(self) -> None:
        self.loop: Any = StillLoop()
        self.rounds = Rounds(self.loop.seconds)
        self.began: list[str] = []

    def wait(self, address: str, number: int, takes: float = 0.0, *, is_task: bool = False) -> None:
        def begin() -> bool:
            self.began.append(f"{address}{number}")
            self.loop.now += takes
            return is_task

        self.rounds.wait(address, begin, self.loop)


def test_addresses_have_turns_however_many_requests_each_has() -> None:
    waiting = Waiting()
    for number in range(4):
        waiting.wait("crowd ", number)
    waiting.wait("quiet ", 0)
    waiting.wait("quiet ", 1)
    waiting.loop.turn()
    assert waiting.began == [*("crowd 0", "quiet 0", "crowd 1", "quiet 1", "crowd 2", "crowd 3")]
    assert not waiting.rounds.is_busy


@pytest.mark.parametrize(
    ("takes", "is_task", "expected"),
    [(limits.TURN_SECONDS / 4, False, 5), (10 * limits.TURN_SECONDS, False, 1), (0.0, True, 16)],
    ids=["quick", "one long", "tasks"],
)
def test_a_turn_of_the_loop_begins_what_its_time_allows(
    takes: float,
    is_task: bool,  # noqa: FBT001 - a column of the table
    expected: int,
) -> None:
    waiting = Waiting()
    for number in range(40):
        waiting.wait("a", number, takes, is_task=is_task)
    waiting.loop.turn()
    assert len(waiting.began) == expected
    assert waiting.rounds.is_busy
    while waiting.loop.turn():
        pass
    assert waiting.began == [f"a{number}" for number in range(40)]


def test_a_request_that_comes_later_has_the_next_turn_of_its_address() -> None:
    waiting = Waiting()
    for number in range(100):
        waiting.wait("crowd ", number, limits.TURN_SECONDS)
    waiting.loop.turn()
    waiting.wait("quiet ", 0)
    waiting.loop.turn()
    waiting.loop.turn()
    assert "quiet 0" in waiting.began
    assert len(waiting.began) <= 8


def test_a_request_waits_only_in_a_turn_that_is_old_or_behind_others() -> None:
    waiting = Waiting()
    rounds, loop = waiting.rounds, cast("Any", waiting.loop)
    assert not rounds.is_late(loop)
    loop.now = LATE_SECONDS * 1.1
    assert rounds.is_late(loop)
    loop.turn()
    assert not rounds.is_late(loop)
    waiting.wait("a", 0)
    assert rounds.is_late(loop)
