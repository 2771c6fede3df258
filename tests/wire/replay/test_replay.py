"""The server answers as the live service did, exchange by exchange."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .expected import expected_differences
from .statistics import statistics

if TYPE_CHECKING:
    from .cassettes import Recording
    from .replayer import Outcome

pytestmark = pytest.mark.network

# A list, so that collecting the tests needs no download.
RECORDING_NAMES = Path(__file__).with_name("recordings.txt").read_text().split()
EXPECTED = expected_differences()
IDENTICAL_SHARE_MIN = 0.98
EXCHANGES = 1798


@pytest.mark.parametrize("name", RECORDING_NAMES)
def test_the_recorded_answers(name: str, outcomes: dict[str, list[Outcome]]) -> None:
    unexpected = [
        str(outcome)
        for outcome in outcomes[name]
        if outcome.differences and EXPECTED.of(outcome.exchange.name) is None
    ]
    assert not unexpected, "\n".join(["", *unexpected])


def test_the_expected_differences_still_differ_just_so(outcomes: dict[str, list[Outcome]]) -> None:
    by_name = {
        outcome.exchange.name: tuple(difference.where for difference in outcome.differences)
        for of_recording in outcomes.values()
        for outcome in of_recording
    }
    assert {entry.exchange: entry.where for entry in EXPECTED.entries} == {
        entry.exchange: by_name[entry.exchange] for entry in EXPECTED.entries
    }


def test_the_list_of_expected_differences_only_gets_shorter() -> None:
    assert len(EXPECTED.entries) <= EXPECTED.at_most
    assert all(entry.reason and entry.where for entry in EXPECTED.entries)


def test_the_list_of_recordings_is_the_archive_s(recordings: list[Recording]) -> None:
    assert [recording.name for recording in recordings] == RECORDING_NAMES


def test_nearly_every_exchange_is_answered_identically(outcomes: dict[str, list[Outcome]]) -> None:
    of_all = [outcome for of_recording in outcomes.values() for outcome in of_recording]
    identical = sum(outcome.is_identical for outcome in of_all)
    assert len(of_all) == EXCHANGES
    assert identical / len(of_all) >= IDENTICAL_SHARE_MIN, statistics(of_all)
