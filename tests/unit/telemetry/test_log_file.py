"""The file of the log: rotation, a directory that was removed, a full disk."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tablestone.telemetry import logs
from tablestone.telemetry.logs import LogFile

FULL = Path("/dev/full")


class Hour:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hour() -> Hour:
    return Hour()


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    made = logging.Logger("of the test")  # noqa: LOG001 - its messages reach no other handler
    yield made
    for handler in list(made.handlers):
        with suppress(OSError):
            handler.close()


def test_a_file_that_was_moved_away_is_made_again(
    tmp_path: Path, log: logging.Logger, hour: Hour
) -> None:
    path = tmp_path / "debug.log"
    log.addHandler(LogFile(path, hour))
    log.warning("one")
    path.rename(tmp_path / "debug.log.1")
    log.warning("two")
    assert (tmp_path / "debug.log.1").read_text() == "one\n"
    assert path.read_text() == "two\n"


def test_a_directory_that_has_gone_ends_nothing(
    tmp_path: Path, log: logging.Logger, hour: Hour, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log" / "debug.log"
    path.parent.mkdir()
    log.addHandler(LogFile(path, hour))
    path.parent.rename(tmp_path / "away")
    for _ in range(2):
        log.warning("lost")
    assert caplog.messages == [f"Messages are missing in {path}: No such file or directory."]
    hour.now += logs.WARNING_SECONDS
    log.warning("lost")
    assert len(caplog.messages) == 2
    path.parent.mkdir()
    log.warning("found")
    assert path.read_text() == "found\n"


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is full")
def test_a_full_disk_ends_nothing(
    log: logging.Logger, hour: Hour, caplog: pytest.LogCaptureFixture
) -> None:
    log.addHandler(LogFile(FULL, hour))
    for _ in range(2):
        log.warning("lost")
    assert caplog.messages == [f"Messages are missing in {FULL}: No space left on device."]
