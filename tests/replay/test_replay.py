"""The server answers as the live service did, exchange by exchange."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .expected import expected_differences
from .statistics import statistics

if TYPE_CHECKING:
    from .cassettes import Recording
    from .expected import ExpectedDifference
    from .replayer import Outcome

pytestmark = pytest.mark.network

# Kept as a list so that collecting the tests needs no download.
RECORDING_NAMES = Path(__file__).with_name("recordings.txt").read_text().split()
EXPECTED = expected_differences()
IDENTICAL_SHARE_MIN = 0.98


@pytest.mark.parametrize("name", RECORDING_NAMES)
def test_the_recorded_answers(name: str, outcomes: dict[str, list[Outcome]]) -> None:
    of_recording = outcomes[name]
    in_reach = [outcome for outcome in of_recording if outcome.out_of_reach is None]
    if not in_reach:
        classes = Counter(str(outcome.out_of_reach) for outcome in of_recording)
        pytest.skip(f"out of reach for now: {dict(classes)}")
    unexpected = [
        str(outcome)
        for outcome in in_reach
        if outcome.differences and EXPECTED.of(outcome.exchange.name) is None
    ]
    assert not unexpected, "\n".join(["", *unexpected])


@pytest.mark.parametrize("entry", EXPECTED.entries, ids=lambda entry: entry.exchange)
def test_an_expected_difference_still_differs_just_so(
    entry: ExpectedDifference, outcomes: dict[str, list[Outcome]]
) -> None:
    recording = entry.exchange.partition("#")[0]
    differences = next(
        outcome.differences
        for outcome in outcomes[recording]
        if outcome.exchange.name == entry.exchange
    )
    assert tuple(difference.where for difference in differences) == entry.where


def test_the_list_of_expected_differences_only_gets_shorter() -> None:
    assert len(EXPECTED.entries) <= EXPECTED.at_most
    assert all(entry.reason and entry.where for entry in EXPECTED.entries)


def test_the_list_of_recordings_is_the_archive_s(recordings: list[Recording]) -> None:
    assert [recording.name for recording in recordings] == RECORDING_NAMES


def test_nearly_every_exchange_in_reach_is_answered_identically(
    outcomes: dict[str, list[Outcome]],
) -> None:
    of_all = [outcome for of_recording in outcomes.values() for outcome in of_recording]
    in_reach = [outcome for outcome in of_all if outcome.out_of_reach is None]
    identical = sum(outcome.is_identical for outcome in in_reach)
    print(statistics(of_all))
    assert identical / len(in_reach) >= IDENTICAL_SHARE_MIN, statistics(of_all)
