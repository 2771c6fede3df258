"""An access log whose file is a FIFO: refused without a reader, and written with one."""

import os
from pathlib import Path

import pytest

from tablestone.clock import monotonic_seconds
from tablestone.telemetry.access_log import AccessLog, AccessLogRefused, AccessLogTarget


def test_a_fifo_without_a_reader_is_refused_and_one_with_a_reader_is_opened(tmp_path: Path) -> None:
    place = tmp_path / "log"
    os.mkfifo(place)
    with pytest.raises(AccessLogRefused, match="cannot be written"):
        AccessLog(AccessLogTarget("text", place), monotonic_seconds)
    reading = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    try:
        log = AccessLog(AccessLogTarget("text", place), monotonic_seconds)
        log.reopen()
        log.close()
    finally:
        os.close(reading)
