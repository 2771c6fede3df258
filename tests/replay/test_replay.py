"""The server answers as the live service did, exchange by exchange."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .expected import expected_differences
from .reach import OUT_OF_REACH, class_out_of_reach
from .statistics import statistics

if TYPE_CHECKING:
    from .cassettes import Recording
    from .reach import OutOfReach
    from .replayer import Outcome

pytestmark = pytest.mark.network

# Kept as a list so that collecting the tests needs no download.
RECORDING_NAMES = Path(__file__).with_name("recordings.txt").read_text().split()
EXPECTED = expected_differences()
IDENTICAL_SHARE_MIN = 0.98
# Of the 1,798 recorded; grows as classes come in reach, so that none is put out of it unnoticed.
IN_REACH_MIN = 1641


@pytest.mark.parametrize("name", RECORDING_NAMES)
def test_the_recorded_answers(name: str, outcomes: dict[str, list[Outcome]]) -> None:
    of_recording = outcomes[name]
    in_reach = [outcome for outcome in of_recording if outcome.out_of_reach is None]
    if not in_reach:
        classes = Counter(str(outcome.out_of_reach) for outcome in of_recording)
        pytest.skip(
            "not served yet: "
            + ", ".join(f"{name} {many}" for name, many in sorted(classes.items()))
        )
    unexpected = [
        str(outcome)
        for outcome in in_reach
        if outcome.differences and EXPECTED.of(outcome.exchange.name) is None
    ]
    assert not unexpected, "\n".join(["", *unexpected])


@pytest.mark.parametrize("row", OUT_OF_REACH, ids=lambda row: row.name)
def test_out_of_reach(row: OutOfReach, recordings: list[Recording]) -> None:
    exchanges = [exchange for recording in recordings for exchange in recording.exchanges]
    waiting = sum(class_out_of_reach(exchange) == row.name for exchange in exchanges)
    assert waiting, "nothing waits for this any more: delete the row"
    pytest.skip(f"{row.name}: {waiting} exchanges of what is not served yet: {row.why}")


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


def test_nearly_every_exchange_in_reach_is_answered_identically(
    outcomes: dict[str, list[Outcome]],
) -> None:
    of_all = [outcome for of_recording in outcomes.values() for outcome in of_recording]
    in_reach = [outcome for outcome in of_all if outcome.out_of_reach is None]
    identical = sum(outcome.is_identical for outcome in in_reach)
    assert len(in_reach) >= IN_REACH_MIN
    assert identical / len(in_reach) >= IDENTICAL_SHARE_MIN, statistics(of_all)
