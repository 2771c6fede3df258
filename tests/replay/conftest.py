"""The server that the recordings are replayed against, and the replay itself, once per session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server_process import start_server

from .archive import ArchiveUnavailableError, recordings_archive
from .cassettes import load_recordings
from .replayer import replay_all
from .target import Target

if TYPE_CHECKING:
    from .cassettes import Recording
    from .replayer import Outcome


@pytest.fixture(scope="session")
def recordings() -> list[Recording]:
    try:
        return load_recordings(recordings_archive())
    except ArchiveUnavailableError as unavailable:
        pytest.skip(str(unavailable))


@pytest.fixture(scope="session")
def outcomes(
    recordings: list[Recording], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Outcome]]:
    """Of every recording by name, against a server of our own: each replay deletes every table."""
    server = start_server(tmp_path_factory.mktemp("replay"))
    with Target(server.endpoint, server.account_name, server.account_key) as target:
        replayed = replay_all(recordings, target)
    assert server.stop() == 0, server.stderr
    return replayed
