"""Connections on the way from the supervisor to a worker, when the worker may open no more files."""

import os
import resource
import socket
from contextlib import ExitStack

from tablestone.server.connection_handover import SupervisorEnd, WorkerEnd, channel, ended_counters
from tablestone.server.start import OTHER_FILES, connections_of


def test_connections_without_a_descriptor_are_lost_and_count_as_ended() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        ours, theirs = map(stack.enter_context, channel())
        counters = ended_counters(2)
        given = [stack.enter_context(socket.socket()) for _ in range(5)]
        worker = WorkerEnd(theirs, counters, 1)
        assert SupervisorEnd(ours).hand_over(given)
        free = [os.dup(theirs.fileno()) for _ in range(2)]
        for descriptor in free:
            os.close(descriptor)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, before[1]))
            received = worker.receive()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert received is not None
        for each in received:
            each.close()
        assert (len(received), worker.lost) == (2, 3)
        assert counters.tolist() == [0, 3]
        assert SupervisorEnd(ours).hand_over(given)
        received = worker.receive() or []
        for each in received:
            each.close()
        assert (len(received), worker.lost) == (5, 0)


def test_files_for_connections() -> None:
    """A process raised to its limit has enough files for the connection limit; with fewer files it takes fewer."""
    for connections in (1, 12, 100, 101, 8192, 100_000):
        assert connections_of(2 * connections + OTHER_FILES) >= connections
    assert connections_of(1024) == 616
    assert connections_of(300) == 150
    assert connections_of(4) == 2
