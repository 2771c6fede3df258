"""The limit on log lines about one client address: shared by processes, bounded, and no count is logged twice."""

import logging
import os

import pytest

from tablestone.model.errors import StorageError
from tablestone.telemetry.refused_callers import (
    PLACES,
    QUIET_SECONDS,
    QuietAddresses,
    RefusedCallers,
)


class Seconds:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refuse(callers: RefusedCallers, client: str, times: int = 1) -> None:
    for _ in range(times):
        callers.note(client, "weather", "id", StorageError("AuthenticationFailed", reason="no key"))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines since the last call, without their common part."""
    lines = [
        record.getMessage().removeprefix("authentication failed ") for record in caplog.records
    ]
    caplog.clear()
    return [line.partition(" at account")[0] for line in lines]


def test_several_processes_log_an_address_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    seconds, quiet = Seconds(), QuietAddresses()
    workers = [RefusedCallers(seconds, quiet) for _ in range(3)]
    for worker in workers:
        refuse(worker, "10.0.0.1", 2)
        refuse(worker, "10.0.0.2")
    assert told(caplog) == ["for 10.0.0.1", "for 10.0.0.2"]
    for worker in workers:
        worker.log_counts()
    assert told(caplog) == []
    seconds.now += QUIET_SECONDS
    for worker in workers:
        worker.log_counts()
    assert told(caplog) == [
        "5 more times for 10.0.0.1 within 60 s",
        "2 more times for 10.0.0.2 within 60 s",
    ]


def test_a_failure_after_the_minute_logs_the_count_of_another_process_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    seconds, quiet = Seconds(), QuietAddresses()
    first, second = RefusedCallers(seconds, quiet), RefusedCallers(seconds, quiet)
    refuse(first, "10.0.0.1", 4)
    seconds.now += QUIET_SECONDS
    refuse(second, "10.0.0.1")
    first.log_counts()
    assert told(caplog) == ["for 10.0.0.1", "3 more times for 10.0.0.1 within 60 s", "for 10.0.0.1"]


def test_a_process_that_ends_logs_its_addresses(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    callers = RefusedCallers(Seconds())
    refuse(callers, "", 2)
    callers.log_counts(at_end=True)
    callers.log_counts(at_end=True)
    assert told(caplog) == [
        "for an unknown address",
        "1 more times for an unknown address within 60 s",
    ]


def test_other_errors_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    RefusedCallers(Seconds()).note("10.0.0.1", "weather", "id", StorageError("ResourceNotFound"))
    assert told(caplog) == []


def test_the_number_of_addresses_is_bounded() -> None:
    """An address that was forgotten is logged again; one that is remembered is not."""
    quiet = QuietAddresses()
    for number in range(20 * PLACES):
        assert quiet.take(f"10.0.{number}", float(number), number + 1e6) is not None
    last = f"10.0.{20 * PLACES - 1}"
    assert quiet.take(last, 1e5, 2e6) is None
    assert quiet.take("10.0.0", 1e5, 2e6) is not None


def test_another_process_sees_it() -> None:
    quiet = QuietAddresses()
    process = os.fork()
    if process == 0:
        os._exit(0 if quiet.take("10.0.0.1", 1.0, 61.0) is not None else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert quiet.take("10.0.0.1", 2.0, 62.0) is None


def test_a_rule_is_told_once_a_minute_for_each_account_and_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever address it comes from: a scan of a network is one line."""
    caplog.set_level(logging.WARNING)
    seconds = Seconds()
    callers = RefusedCallers(seconds)

    def refuse_by_rule(account: str, code: str, reason: str, times: int) -> None:
        for number in range(times):
            error = StorageError(code, reason=reason, by_rule=True)
            callers.note(f"10.0.0.{number}", account, "id", error)

    address, key = "no range holds the address", "the shared key is off: shared-key"
    refuse_by_rule("weather", "AuthorizationFailure", address, 3)
    refuse_by_rule("weather", "KeyBasedAuthenticationNotPermitted", key, 5)
    refuse_by_rule("other", "AuthorizationFailure", address, 1)
    callers.note(
        "10.0.0.1", "weather", "id", StorageError("AuthorizationFailure")
    )  # of a signature
    assert told(caplog) == [
        f"account weather refuses 10.0.0.0: {address} [request id]",
        f"account weather refuses 10.0.0.0: {key} [request id]",
        f"account other refuses 10.0.0.0: {address} [request id]",
    ]
    seconds.now += QUIET_SECONDS
    callers.log_counts()
    assert told(caplog) == [
        f"account weather has refused 2 more requests within 60 s: {address}",
        f"account weather has refused 4 more requests within 60 s: {key}",
    ]
