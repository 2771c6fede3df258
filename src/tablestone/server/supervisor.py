"""Several processes that serve together: started, given connections evenly, replaced when they end, stopped.

The supervisor accepts every connection and hands it to the worker that has the fewest, so that a handful of busy
connections never meets in one of them while another idles (docs/decisions/0004-workers.md). It has no event loop, no
thread and no data open, and so can fork at any time. It does not know what a worker serves.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from tablestone.clock import monotonic_seconds
from tablestone.server.handover import (
    CONNECTIONS_PER_MESSAGE_MAX,
    READY,
    STOPS,
    EndedCounters,
    SupervisorEnd,
    WorkerEnd,
    channel,
)
from tablestone.server.worker import STOP_SECONDS_MAX, StartRefused

logger = logging.getLogger(__name__)

REPLACEMENT_PAUSE_SECONDS: Final = 1.0
"""From the start of a worker to the start of its replacement at least: one that cannot live does not spin."""
LOOK_SECONDS: Final = 1.0
ACCEPT_PAUSE_SECONDS: Final = 0.1
"""How long nothing is accepted when that failed, or nobody takes what was."""
STOP_MARGIN_SECONDS: Final = 5.0
"""What a worker may take to stop beyond the time for its requests, before it is killed."""
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

RunWorker = Callable[[int, WorkerEnd], None]
"""Serves as the worker of this number until it is told to stop; `StartRefused` if it cannot."""


@dataclass(slots=True)
class _Worker:
    """A worker process. `given` counts the connections it was handed; one that is ready takes more."""

    number: int
    process: int
    end: SupervisorEnd
    started_at: float
    given: int = 0
    is_ready: bool = False
    sentence: bytes = b""


class Supervisor:
    """Runs `workers` processes on the connections of `listener`.

    `look`, which must not wait, is called every `LOOK_SECONDS`: what it learns, a worker that is started has from here.
    """

    def __init__(
        self,
        listener: socket.socket,
        workers: int,
        run: RunWorker,
        look: Callable[[], None] | None = None,
    ) -> None:
        self._look = look
        self._looks_at = monotonic_seconds()
        self._listener = listener
        self._run_worker = run
        self._ended = EndedCounters(workers)
        self._workers: dict[int, _Worker] = {}
        self._missing: dict[int, float] = dict.fromkeys(range(workers), 0.0)
        """The numbers that no worker has, with the time from which one may be started."""
        self._selector = selectors.DefaultSelector()
        self._wake_up, self._waker = socket.socketpair()
        self._stop_asked = False
        self._accepts_again_at: float | None = None
        self._last_given = 0

    def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until SIGINT or SIGTERM. `StartRefused` if a worker does not start."""
        with self._told_of_signals():
            try:
                self._start_missing()
                while not self._stop_asked and not self._all_are_ready():
                    self._wait_once(is_start=True)
                if not self._stop_asked:
                    on_ready()
                    self._selector.register(self._listener, selectors.EVENT_READ)
                while not self._stop_asked:
                    self._wait_once(is_start=False)
            finally:
                self._stop()

    @contextlib.contextmanager
    def _told_of_signals(self) -> Iterator[None]:
        """A signal sets `_stop_asked` and ends the wait that is under way."""
        self._wake_up.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._wake_up, selectors.EVENT_READ)
        before = [(each, signal.signal(each, self._ask_to_stop)) for each in STOP_SIGNALS]
        signal.set_wakeup_fd(self._waker.fileno())
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before:
                signal.signal(number, handler)
            self._selector.close()
            self._wake_up.close()
            self._waker.close()

    def _ask_to_stop(self, *_: object) -> None:
        self._stop_asked = True

    def _all_are_ready(self) -> bool:
        return not self._missing and all(each.is_ready for each in self._workers.values())

    # Waiting for whatever comes first.

    def _wait_once(self, *, is_start: bool) -> None:
        for key, _events in self._selector.select(self._seconds_to_wait()):
            if self._stop_asked:
                return  # a worker that was told to stop too, and has ended, has not failed
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._wake_up:
                self._wake_up.recv(4096)
            elif key.data.number in self._workers:  # not one that was found ended in this turn
                self._hear(key.data, is_start=is_start)
        if self._stop_asked:
            return
        self._look_if_due()
        self._start_missing()
        if self._accepts_again_at is not None and self._accepts_again_at <= monotonic_seconds():
            self._accepts_again_at = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _look_if_due(self) -> None:
        if self._look is None or monotonic_seconds() < self._looks_at:
            return
        self._looks_at = monotonic_seconds() + LOOK_SECONDS
        try:
            self._look()
        except Exception:
            logger.exception("looking failed")

    def _seconds_to_wait(self) -> float | None:
        times = [*self._missing.values()]
        if self._look is not None:
            times.append(self._looks_at)
        if self._accepts_again_at is not None:
            times.append(self._accepts_again_at)
        return max(0.0, min(times) - monotonic_seconds()) if times else None

    def _hear(self, worker: _Worker, *, is_start: bool) -> None:
        said = worker.end.receive()
        if said == READY:
            worker.is_ready = True
        elif said in STOPS:
            worker.is_ready = False
            worker.end.end_handover()
        elif said is not None:
            worker.sentence += said
        else:
            self._note_end(worker, is_start=is_start)

    def _note_end(self, worker: _Worker, *, is_start: bool) -> None:
        how = self._bury(worker)
        sentence = worker.sentence.decode()
        if is_start:
            raise StartRefused(
                sentence or f"Worker process {worker.process} {how} before it was ready."
            )
        logger.error(
            "Worker process %d %s and is replaced.%s",
            worker.process,
            how,
            sentence and f" {sentence}",
        )
        self._missing[worker.number] = max(
            monotonic_seconds(), worker.started_at + REPLACEMENT_PAUSE_SECONDS
        )

    def _bury(self, worker: _Worker) -> str:
        """Forget a worker that has ended; how it did."""
        del self._workers[worker.number]
        self._selector.unregister(worker.end)
        worker.end.close()
        _process, status = os.waitpid(worker.process, 0)
        code = os.waitstatus_to_exitcode(status)
        return f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"

    # Connections.

    def _accept(self) -> None:
        """Accept what has come and hand it over, each connection to the ready worker that has the fewest."""
        ready = [each for each in self._workers.values() if each.is_ready]
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
            self._hand_over(worker, shares[worker.number])

    def _with_fewest(self, ready: list[_Worker]) -> _Worker:
        """The worker with the fewest connections; of equal ones the one whose turn it is."""
        workers = len(self._workers) + len(self._missing)
        worker = min(
            ready,
            key=lambda each: (
                each.given - self._ended.of(each.number),
                (each.number - self._last_given - 1) % workers,
            ),
        )
        worker.given += 1
        self._last_given = worker.number
        return worker

    def _hand_over(self, worker: _Worker, connections: list[socket.socket]) -> None:
        if connections and not worker.end.hand_over(connections):
            # It has ended, which is heard next, or is stuck: these connections are closed, as its others are.
            worker.given -= len(connections)
            self._pause_accepting()
        for connection in connections:
            connection.close()

    def _pause_accepting(self) -> None:
        if self._accepts_again_at is None:
            self._selector.unregister(self._listener)
            self._accepts_again_at = monotonic_seconds() + ACCEPT_PAUSE_SECONDS

    # Processes.

    def _start_missing(self) -> None:
        now = monotonic_seconds()
        for number in [each for each, at in self._missing.items() if at <= now]:
            del self._missing[number]
            self._start(number)

    def _start(self, number: int) -> None:
        self._ended.clear(number)
        ours, theirs = channel()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # what is there now is shared: the collectors of the workers leave it alone
        with _stop_signal_held():
            process = os.fork()
            if process == 0:
                ours.close()
                self._become_worker(WorkerEnd(theirs, self._ended, number), number)
        theirs.close()
        worker = _Worker(number, process, SupervisorEnd(ours), monotonic_seconds())
        self._workers[number] = worker
        self._selector.register(worker.end, selectors.EVENT_READ, worker)

    def _become_worker(self, end: WorkerEnd, number: int) -> NoReturn:
        """In the new process: let go of all that is the supervisor's, serve, and end without going back."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor tells its workers
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            self._selector.close()
            self._listener.close()
            self._wake_up.close()
            self._waker.close()
            for worker in self._workers.values():
                worker.end.close()  # or they would not see that the supervisor has ended
            self._run_worker(number, end)
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
        """Ends every worker: by a signal, and by force those that do not heed it."""
        with contextlib.suppress(KeyError):  # nothing is accepted during a start or a pause
            # Closed it would still be heard of for as long as a worker that has just begun has it.
            self._selector.unregister(self._listener)
        self._listener.close()
        for worker in self._workers.values():
            os.kill(worker.process, signal.SIGTERM)
        deadline = monotonic_seconds() + STOP_SECONDS_MAX + STOP_MARGIN_SECONDS
        while self._workers:
            left = deadline - monotonic_seconds()
            if left <= 0:
                for worker in list(self._workers.values()):
                    logger.warning("Worker process %d did not stop and is killed.", worker.process)
                    os.kill(worker.process, signal.SIGKILL)
                    self._bury(worker)
                return
            for key, _events in self._selector.select(left):
                worker = key.data
                if key.fileobj is self._wake_up:
                    self._wake_up.recv(4096)
                elif worker.number in self._workers:
                    said = worker.end.receive()
                    if said is None:
                        self._bury(worker)
                    elif said in STOPS:
                        worker.end.end_handover()


@contextlib.contextmanager
def _stop_signal_held() -> Iterator[None]:
    """SIGTERM waits: a new process that had this one's handler yet would take it for its own and go on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
