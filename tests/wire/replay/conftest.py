"""The server that the recordings are replayed against, and the replay itself, once per session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from certificates import write_pair
from server_process import start_server
from storage.engines_under_test import SHARED
from tokens import ISSUER, RsaKey, key_set

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
    """The result of every recording by name, against a server of its own: each replay deletes every table."""
    directory, token_key = tmp_path_factory.mktemp("replay"), RsaKey("replay")
    keys = directory / "keys.json"
    keys.write_bytes(key_set(token_key))
    data = directory / "data"
    certificate, key = write_pair(directory, "replay")
    server = start_server(
        data,
        *("--tls-certificate", str(certificate), "--tls-key", str(key)),
        *("--token-issuer", f"{ISSUER},{keys}", "--workers", "1"),
        *(() if SHARED is None else ("--engine", SHARED)),
    )
    with Target(
        server.endpoint,
        server.account_name,
        server.account_key,
        certificate=certificate,
        token_key=token_key,
    ) as target:
        replayed = replay_all(recordings, target)
    assert server.stop() == 0, server.stderr
    return replayed
