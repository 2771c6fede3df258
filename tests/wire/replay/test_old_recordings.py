"""The server answers old SDKs as the live service did from 2014 to 2021, except for the differences named here."""

from __future__ import annotations

import tomllib
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from server_process import start_server

from .old_recordings import FILES, VARIABLE, directory, load_old_recordings
from .replayer import replay_all
from .target import Target

if TYPE_CHECKING:
    from .cassettes import Recording

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(directory() is None, reason=f"{VARIABLE} names no directory of recordings"),
]

DIFFERENCES = tomllib.loads(Path(__file__).with_name("old_differences.toml").read_text())
EXCHANGES = 6_105


@pytest.fixture(scope="module")
def recordings() -> dict[str, list[Recording]]:
    place = directory()
    assert place is not None
    of_all = load_old_recordings(place)
    return {
        file: list(found)
        for file, found in groupby(of_all, key=lambda each: each.name.partition("/")[0])
    }


@pytest.mark.parametrize("file", FILES)
def test_the_recorded_answers(
    file: str, recordings: dict[str, list[Recording]], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    server = start_server(data, "--tls", "self-signed", "--workers", "1")
    with Target(
        server.endpoint,
        server.account_name,
        server.account_key,
        certificate=data / "tls" / "certificate.pem",
    ) as target:
        outcomes = [
            each for found in replay_all(recordings[file], target).values() for each in found
        ]
    assert server.stop() == 0, server.stderr
    expected = {
        exchange
        for row in DIFFERENCES["difference"]
        for exchange in row["exchanges"]
        if row["reason"]
    }
    different = {each.exchange.name: each for each in outcomes if not each.is_identical}
    unexpected = different.keys() - expected
    assert not unexpected, "\n".join(["", *(str(different[name]) for name in sorted(unexpected))])
    gone = {name for name in expected if name.startswith(f"{file}/")} - different.keys()
    assert not gone, f"no longer different: {sorted(gone)}"


def test_all_exchanges_are_replayed(recordings: dict[str, list[Recording]]) -> None:
    found = [each for of_file in recordings.values() for each in of_file]
    assert sum(len(recording.exchanges) for recording in found) == EXCHANGES
    names = [recording.name for recording in found]
    assert len(set(names)) == len(names)
