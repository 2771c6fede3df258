"""Reports in shared memory: the newest is read, whole, even from another process; totals are added."""

import os
from typing import Any

import pytest

from tablestone.telemetry import worker_reports
from tablestone.telemetry.worker_reports import WorkerReport, WorkerReports, added, sum_of


def test_the_newest_report_is_read() -> None:
    reports = WorkerReports(2)
    assert reports.newest(0) is None
    for number in range(5):
        reports.leave(0, WorkerReport(7, float(number), {"number": number}))
        reports.leave(1, WorkerReport(8, float(number), {"other": -number}))
        assert reports.newest(0) == WorkerReport(7, number, {"number": number})
        assert reports.newest(1) == WorkerReport(8, number, {"other": -number})


def test_another_process_leaves_a_report() -> None:
    reports = WorkerReports(1)
    process = os.fork()
    if process == 0:
        reports.leave(0, WorkerReport(os.getpid(), 1.5, {"from": "there"}))
        os._exit(0)
    os.waitpid(process, 0)
    assert reports.newest(0) == WorkerReport(process, 1.5, {"from": "there"})


def test_a_report_that_is_being_written_is_not_read() -> None:
    """Its place is overwritten before the head is; the checksum reveals that."""
    reports = WorkerReports(1)
    reports.leave(0, WorkerReport(1, 1.0, {"text": "whole"}))
    place = worker_reports._place(0, 1)
    reports._memory[place + 3] ^= 1
    assert reports.newest(0) is None
    reports._memory[place + 3] ^= 1
    assert reports.newest(0) == WorkerReport(1, 1.0, {"text": "whole"})


def test_a_report_that_is_too_long_leaves_the_one_before() -> None:
    reports = WorkerReports(1)
    reports.leave(0, WorkerReport(1, 1.0, {"text": "short"}))
    long = {"text": "x" * worker_reports.REPORT_BYTES_MAX}
    with pytest.raises(ValueError, match=r"^a report of \d+ bytes is too long$"):
        reports.leave(0, WorkerReport(1, 2.0, long))
    assert reports.newest(0) == WorkerReport(1, 1.0, {"text": "short"})


ADDED: dict[str, tuple[Any, Any, Any]] = {
    "numbers": (1, 2.5, 3.5),
    "lists": ([1, 2], [10, 20], [11, 22]),
    "lists of other bounds": ([1, 2], [1, 2, 3], [1, 2, 3]),
    "members of both": ({"a": 1, "b": [1]}, {"a": 2, "b": [2]}, {"a": 3, "b": [3]}),
    "members of one": ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
    "nothing before": ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    "members of members": ({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}}, {"a": {"b": 3, "c": 3}}),
}


@pytest.mark.parametrize(("one", "other", "expected"), ADDED.values(), ids=ADDED)
def test_added(one: Any, other: Any, expected: Any) -> None:
    assert added(one, other) == expected


def test_the_sum_of_several() -> None:
    assert sum_of([]) == {}
    first = {"a": 1}
    assert sum_of([first, {"a": 2}, {"a": 3}]) == {"a": 6}
    assert first == {"a": 1}
