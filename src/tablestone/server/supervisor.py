"""The supervisor of several worker processes: starts them, gives them connections, replaces and stops them.

It accepts every connection and hands it to the worker that has the fewest, so that a few busy connections are never all
in one worker while another is idle (docs/decisions/0004-workers.md). It has no event loop, no thread and no open data,
so it can fork at any time.
"""

import contextlib
import gc
import logging
import math
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from tablestone.clock import monotonic_seconds
from tablestone.server.connection_handover import (
    CONNECTIONS_PER_MESSAGE_MAX,
    READY,
    STOPS,
    SupervisorEnd,
    WorkerEnd,
    channel,
    ended_counters,
)
from tablestone.server.worker import STOP_SECONDS_MAX, Hangup, StartRefused
from tablestone.sigint import ENDS_PROCESS

logger = logging.getLogger(__name__)

REPLACEMENT_PAUSE_SECONDS: Final = 1.0
"""Seconds between the starts of a worker and its replacement, at least: a limit for one that always fails."""
LOOK_SECONDS: Final = 1.0
ACCEPT_PAUSE_SECONDS: Final = 0.1
"""Seconds without accepting, after an accept failed or no worker could take a connection."""
STOP_MARGIN_SECONDS: Final = 5.0
"""Seconds that a worker may need to stop beyond the time for its requests, before it is killed."""
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

RunProcess = Callable[[int, WorkerEnd], None]
"""Serves as the process of this number until a signal stops it; `StartRefused` if it cannot start."""


@dataclass(slots=True)
class _Process:
    """A process that runs. `given` counts the connections that it received; it gets more while `is_ready`."""

    number: int
    pid: int
    end: SupervisorEnd
    started_at: float
    given: int = 0
    is_ready: bool = False
    sentence: bytes = b""


class Supervisor:
    """Runs `workers` processes on the connections of `listener`, and with `has_admin` one more, which gets none.

    `look` is called every `LOOK_SECONDS` and must not wait. New workers are forked with the result of the last look.
    With `keeps_rows`, the rows are in the memory of a worker, so the server ends with it.
    """

    def __init__(
        self,
        listener: socket.socket,
        workers: int,
        run: RunProcess,
        look: Callable[[], None] | None = None,
        hangup: Hangup | None = None,
        *,
        has_admin: bool = False,
        keeps_rows: bool = False,
    ) -> None:
        self._listener = listener
        self._workers = workers
        self._run = run
        self._look = look
        self._next_look_at = math.inf if look is None else monotonic_seconds()
        self._hangup = hangup
        self._hangup_has_come = False
        self._keeps_rows = keeps_rows
        processes = workers + has_admin
        self._ended = ended_counters(processes)
        self._processes: dict[int, _Process] = {}
        """The running processes, by number."""
        self._missing: dict[int, float] = dict.fromkeys(range(processes), 0.0)
        """The numbers without a process, each with the earliest time of its next start."""
        self._late: set[int] = set()
        """The missing numbers whose last start failed, which is logged once."""
        self._selector = selectors.DefaultSelector()
        self._wake_up, self._waker = socket.socketpair()
        self._is_start = True
        """Whether some process has not been ready yet: a failure ends the server."""
        self._stop_asked = False
        self._accepts_again_at = math.inf
        """The end of a pause; infinite if there is none."""
        self._last_given = 0

    def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until SIGINT or SIGTERM. `StartRefused` if a process does not start."""
        for each in (self._wake_up, self._waker):
            each.setblocking(False)
        self._selector.register(self._wake_up, selectors.EVENT_READ)
        for number in STOP_SIGNALS:
            signal.signal(number, self._ask_to_stop)
        signal.signal(signal.SIGHUP, self._note_hangup)
        signal.set_wakeup_fd(self._waker.fileno())
        try:
            self._start_missing()
            while not self._stop_asked:
                self._wait_once()
                if self._is_start and self._all_are_ready() and not self._stop_asked:
                    self._is_start = False
                    on_ready()
                    self._selector.register(self._listener, selectors.EVENT_READ)
        finally:
            self._stop()
            signal.set_wakeup_fd(-1)
            self._selector.close()
            self._wake_up.close()
            self._waker.close()

    def _ask_to_stop(self, number: int, _frame: object) -> None:
        if self._stop_asked and number == signal.SIGINT:
            for worker in self._processes.values():
                os.kill(worker.pid, signal.SIGKILL)
            signal.signal(signal.SIGINT, ENDS_PROCESS)
            os.kill(os.getpid(), signal.SIGINT)
        self._stop_asked = True

    def _note_hangup(self, *_: object) -> None:
        self._hangup_has_come = True

    def _hang_up(self) -> None:
        """Stop if the terminal is gone; else pass SIGHUP on to the workers, which have the log files open."""
        self._hangup_has_come = False
        if self._hangup is not None and self._hangup.ends_server():
            self._stop_asked = True
            return
        for worker in self._processes.values():
            os.kill(worker.pid, signal.SIGHUP)

    def _all_are_ready(self) -> bool:
        return not self._missing and all(each.is_ready for each in self._processes.values())

    # Waiting for the next event.

    def _wait_once(self) -> None:
        for key, _events in self._selector.select(self._seconds_to_wait()):
            if self._stop_asked:
                return  # the workers may have got the signal too, so one that has ended has not failed
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._wake_up:
                self._wake_up.recv(4096)
            elif key.data.number in self._processes and self._has_ended(key.data):
                self._note_end(key.data)
        if self._hangup_has_come:
            self._hang_up()
        if self._stop_asked:
            return
        if self._next_look_at <= monotonic_seconds():
            self._look_again()
        self._start_missing()
        if self._accepts_again_at <= monotonic_seconds():
            self._accepts_again_at = math.inf
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _look_again(self) -> None:
        assert self._look is not None
        self._next_look_at = monotonic_seconds() + LOOK_SECONDS
        try:
            self._look()
        except Exception:
            logger.exception("The periodic check failed.")

    def _seconds_to_wait(self) -> float | None:
        due_at = min(*self._missing.values(), self._next_look_at, self._accepts_again_at)
        return None if due_at == math.inf else max(0.0, due_at - monotonic_seconds())

    def _has_ended(self, worker: _Process) -> bool:
        """Read what a worker says about its state; True if it has ended."""
        said = worker.end.receive()
        if said == READY:
            worker.is_ready = True
        elif said in STOPS:
            worker.is_ready = False
            worker.end.end_handover()
        elif said is not None:
            worker.sentence += said
        return said is None

    def _note_end(self, worker: _Process) -> None:
        how = self._reap(worker)
        sentence = worker.sentence.decode()
        if self._is_start:
            raise StartRefused(
                sentence or f"Worker process {worker.pid} {how} before it was ready."
            )
        if self._keeps_rows and worker.number < self._workers:
            raise StartRefused(f"Worker process {worker.pid} {how}, and its rows are lost.")
        logger.error(
            "Worker process %d %s and is replaced.%s", worker.pid, how, sentence and f" {sentence}"
        )
        self._missing[worker.number] = max(
            monotonic_seconds(), worker.started_at + REPLACEMENT_PAUSE_SECONDS
        )

    def _reap(self, worker: _Process) -> str:
        """Remove a process that has ended; returns how it ended."""
        del self._processes[worker.number]
        self._selector.unregister(worker.end)
        worker.end.close()
        _process, status = os.waitpid(worker.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"

    # Connections.

    def _accept(self) -> None:
        """Accept the waiting connections, and hand each to the ready worker that has the fewest."""
        ready = [
            each
            for each in self._processes.values()
            if each.is_ready and each.number < self._workers
        ]
        shares: dict[int, list[socket.socket]] = {each.number: [] for each in ready}
        try:
            while ready and all(
                len(each) < CONNECTIONS_PER_MESSAGE_MAX for each in shares.values()
            ):
                connection, _address = self._listener.accept()
                shares[self._with_fewest(ready).number].append(connection)
        except BlockingIOError:
            pass
        except OSError as error:
            logger.warning("A connection could not be accepted: %s", error)
            self._pause_accepting()
        if not ready:
            self._pause_accepting()
        for worker in ready:
            connections = shares[worker.number]
            if connections and not worker.end.hand_over(connections):
                # The worker has ended, which its channel reports next, or it is stuck. These connections are closed.
                worker.given -= len(connections)
                self._pause_accepting()
            for connection in connections:
                connection.close()

    def _with_fewest(self, ready: list[_Process]) -> _Process:
        """The worker with the fewest connections; among equals, the next in turn."""
        worker = min(
            ready,
            key=lambda each: (
                each.given - self._ended[each.number],
                (each.number - self._last_given - 1) % self._workers,
            ),
        )
        worker.given += 1
        self._last_given = worker.number
        return worker

    def _pause_accepting(self) -> None:
        if self._accepts_again_at == math.inf:
            self._selector.unregister(self._listener)
            self._accepts_again_at = monotonic_seconds() + ACCEPT_PAUSE_SECONDS

    # Processes.

    def _start_missing(self) -> None:
        """Start the processes whose time has come. If the system does not allow one now, try again later."""
        now = monotonic_seconds()
        for number in [each for each, at in self._missing.items() if at <= now]:
            try:
                worker = self._start(number)
            except OSError as error:  # too many processes or files, or no memory
                sentence = f"A worker process cannot be started: {error.strerror}."
                if self._is_start:
                    raise StartRefused(sentence) from None
                if number not in self._late:
                    self._late.add(number)
                    logger.error("%s The server tries again every second.", sentence)  # noqa: TRY400 - the system's limit
                self._missing[number] = monotonic_seconds() + REPLACEMENT_PAUSE_SECONDS
            else:
                del self._missing[number]
                self._late.discard(number)
                self._processes[number] = worker
                self._selector.register(worker.end, selectors.EVENT_READ, worker)

    def _start(self, number: int) -> _Process:
        self._ended[number] = 0
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # the workers share the objects that exist now, so their collectors must not touch them
        ours, theirs = channel()
        # A new process has the handlers of the supervisor at first, and would ignore the signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            process = os.fork()
            if process == 0:
                ours.close()
                self._become_worker(WorkerEnd(theirs, self._ended, number), number)
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            theirs.close()
        return _Process(number, process, SupervisorEnd(ours), monotonic_seconds())

    def _become_worker(self, end: WorkerEnd, number: int) -> NoReturn:
        """In the new process: close what is the supervisor's, serve, and exit."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until its files are open
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor sends SIGTERM
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            self._selector.close()
            self._listener.close()
            self._wake_up.close()
            self._waker.close()
            for worker in self._processes.values():
                worker.end.close()  # otherwise those workers would not notice the end of the supervisor
            self._run(number, end)
            status = 0
        except StartRefused as refused:
            end.tell_refused(str(refused))
        except BaseException:
            logger.exception("Worker process %d failed.", os.getpid())
        finally:
            logging.shutdown()
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _stop(self) -> None:
        """End every worker by SIGTERM, and kill those that do not stop in time."""
        with contextlib.suppress(KeyError):  # it is not registered during a start or a pause
            # Closing it is not enough: a worker that was just forked may still have it open, so events would go on.
            self._selector.unregister(self._listener)
        self._listener.close()
        for worker in self._processes.values():
            os.kill(worker.pid, signal.SIGTERM)
        deadline = monotonic_seconds() + STOP_SECONDS_MAX + STOP_MARGIN_SECONDS
        while self._processes:
            left = deadline - monotonic_seconds()
            if left <= 0:
                for worker in list(self._processes.values()):
                    logger.warning("Worker process %d did not stop and is killed.", worker.pid)
                    os.kill(worker.pid, signal.SIGKILL)
                    self._reap(worker)
                return
            for key, _events in self._selector.select(left):
                worker = key.data
                if key.fileobj is self._wake_up:
                    self._wake_up.recv(4096)
                elif worker.number in self._processes and self._has_ended(worker):
                    self._reap(worker)
