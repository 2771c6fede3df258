"""Connections to the workers of `tablestone serve`: all are accepted, spread evenly, and forgotten when they end."""

import http.client
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.worker_processes import CONNECTIONS, LOGGED, SECONDS_MAX, Probes, probing, workers_of
from server_process import ServerProcess

StartServer = Callable[..., ServerProcess]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_connections_spread_evenly_and_again_when_some_have_ended(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    server = private_server(tmp_path, f"--workers={workers}", LOGGED)
    probes = Probes(server)
    opened = [probing(server) for _ in range(CONNECTIONS)]
    processes = probes.processes(opened)
    assert Counter(processes) == dict.fromkeys(workers_of(server), CONNECTIONS // workers)
    left = []
    for process, each in zip(processes, opened, strict=True):
        if process == processes[0]:
            each.close()
        else:
            left.append(each)
    time.sleep(3.0)  # until the server sees that they are closed
    opened = left + [probing(server) for _ in range(CONNECTIONS - len(left))]
    processes = probes.processes(opened)
    assert Counter(processes) == dict.fromkeys(workers_of(server), CONNECTIONS // workers)
    for each in opened:
        each.close()


@pytest.mark.slow
def test_connections_that_never_speak_properly_are_not_counted_for_ever(
    private_server: StartServer, tmp_path: Path
) -> None:
    """No TLS, no data, a reset: each connection ends once, and later ones are spread evenly."""
    server = private_server(tmp_path, "--workers=2", LOGGED, "--tls=self-signed")
    address = ("127.0.0.1", int(str(urlsplit(server.endpoint).port)))
    for number in range(30):
        with socket.create_connection(address, timeout=SECONDS_MAX) as wrong:
            if number % 3 == 0:
                wrong.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while wrong.recv(1000):
                    pass
            if number % 3 == 1:
                wrong.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    time.sleep(3.0)  # until the server sees that they are gone
    probes = Probes(server)
    context = ssl.create_default_context(cafile=tmp_path / "tls" / "certificate.pem")
    opened = [
        http.client.HTTPSConnection("127.0.0.1", address[1], timeout=20, context=context)
        for _ in range(CONNECTIONS)
    ]
    processes = probes.processes(list(opened))
    assert Counter(processes) == dict.fromkeys(workers_of(server), CONNECTIONS // 2)
    for each in opened:
        each.close()
    assert server.stop() == 0
    assert "Traceback" not in server.stderr


def test_connections_that_come_at_once_are_all_served(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--workers=2")
    statuses: list[int] = []

    def ask() -> None:
        each = probing(server)
        each.request("GET", urlsplit(server.endpoint).path)
        statuses.append(each.getresponse().status)
        each.close()

    asking = [threading.Thread(target=ask) for _ in range(300)]
    for each in asking:
        each.start()
    for each in asking:
        each.join(SECONDS_MAX)
    assert len(statuses) == 300
