"""The search for a planted bug: short recorded runs, until one is wrong or a minute is over.

The minute begins with the first operation and includes the check, but not the start of the servers.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from stress.histories.checker import build, judge
from stress.histories.clients import Crowd
from stress.histories.embedded import CLIENTS
from stress.histories.recording import History
from stress.histories.service import Target

SECONDS_MAX: Final = 60.0
"""The time in which each planted bug has to be found."""
ANSWERS: Final = 300
"""The answers of a run: a few seconds, and mostly enough."""
JUDGING_SECONDS_MIN: Final = 1.0

Look: TypeAlias = Callable[[int, float], Sequence[str]]
"""One run, given its number from 1 and the seconds left; returns everything that is wrong."""


@dataclass(frozen=True)
class Search:
    """The result of a search; `wrong` is empty if no run was wrong."""

    wrong: str
    seconds: float
    seconds_max: float
    runs: int

    @property
    def is_found(self) -> bool:
        """Whether something wrong was found, and in time."""
        return bool(self.wrong) and self.seconds <= self.seconds_max

    def __str__(self) -> str:
        runs = f"{self.runs} run{'s'[: self.runs > 1]}"
        if not self.wrong:
            return f"nothing found in {self.seconds:.1f} s and {runs}"
        late = f", later than {self.seconds_max:.0f} s" * (not self.is_found)
        return f"found after {self.seconds:.1f} s and {runs}{late}: {self.wrong}"


def search(
    look: Look, seconds_max: float = SECONDS_MAX, clock: Callable[[], float] = time.monotonic
) -> Search:
    """Run until something is wrong or the time is over. No run begins after that; the last one may end later."""
    began = clock()
    for number in itertools.count(1):
        wrong = look(number, seconds_max - (clock() - began))
        seconds = clock() - began
        if wrong or seconds >= seconds_max:
            return Search(wrong[0] if wrong else "", seconds, seconds_max, number)
    raise AssertionError


def runs_on(targets: Sequence[Target], seed: str) -> Look:
    """Runs of many clients on servers that answer."""
    build()

    def look(number: int, seconds_left: float) -> list[str]:
        began = time.monotonic()
        crowd = Crowd(targets, f"{seed}/{number}", CLIENTS)
        crowd.start()
        crowd.wait_for_answers(ANSWERS, seconds_left)
        return wrong_in(crowd.end(), seconds_left - (time.monotonic() - began))

    return look


def wrong_in(histories: Iterable[History], seconds_left: float) -> list[str]:
    """The verdicts on histories that are certainly not linearizable; one that is not decided in time proves nothing."""
    verdicts = judge(histories, history_seconds_max=max(seconds_left, JUDGING_SECONDS_MIN))
    return [str(each) for each in verdicts if not each.linearizable and not each.undecided]
