"""The short form of the long run: `python -m tests.stress.long_life` sends 30,000 requests, or more."""

import socket
from pathlib import Path

from server_process import start_server
from stress.crash.writers import Connection
from stress.long_life.living import NARROW, live


def test_ten_thousand_requests_on_one_connection(tmp_path: Path) -> None:
    lived = live(tmp_path, 10_000, seed=1)
    assert lived.problems == []
    assert lived.requests >= 10_000


def test_three_thousand_connections_one_after_the_other(tmp_path: Path) -> None:
    """Each is served although only few may be open: some end after their answer, others in the middle of a head."""
    server = start_server(tmp_path, "--workers=1", *NARROW)
    try:
        for number in range(3_000):
            if number % 3:
                with Connection(server) as connection:
                    connection.send("GET", "/Tables", expected=200)
            else:
                with socket.create_connection(server.address) as unfinished:
                    unfinished.sendall(
                        b"GET /devstoreaccount1/Tables HTTP/1.1\r\nHost: h\r\nX-Long: "
                    )
        assert server.stop() == 0
        assert server.stderr == ""
    finally:
        if server.process.poll() is None:
            server.kill()
