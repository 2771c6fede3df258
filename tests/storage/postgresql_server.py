"""A throw-away PostgreSQL server for tests, and a proxy before it that cuts connections."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS_MAX = 30
LATE_SECONDS = 0.2
_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, _PLACES)]))


def why_not() -> str | None:
    """Why no server can run here, or None."""
    if find_spec("asyncpg") is None:
        return "no driver of PostgreSQL: pip install '.[postgresql]'"
    if _program("initdb") is None or _program("postgres") is None:
        return "no PostgreSQL server on PATH or in /usr/lib/postgresql"
    return None


def _as_user() -> dict[str, Any]:
    """The server refuses to run as root."""
    if os.geteuid():
        return {}
    return {"user": "nobody", "group": "nogroup", "extra_groups": []}


@contextmanager
def running_server() -> Iterator[int]:
    """Its port. Only the role `locked` needs a password."""
    with tempfile.TemporaryDirectory(prefix="postgresql-", ignore_cleanup_errors=True) as directory:
        as_user, data = _as_user(), Path(directory, "data")
        if as_user:
            shutil.chown(directory, "nobody", "nogroup")
        initdb, postgres = _program("initdb"), _program("postgres")
        assert initdb is not None
        assert postgres is not None
        subprocess.run(
            [initdb, "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=directory,
            **as_user,
        )
        hba = data / "pg_hba.conf"
        hba.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + hba.read_text())
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = int(found.getsockname()[1])
        settings = {"port": port, "listen_addresses": "127.0.0.1", "fsync": "off"}
        settings |= {"unix_socket_directories": ""}
        process = subprocess.Popen(
            [postgres, "-D", data, *(f"--{name}={value}" for name, value in settings.items())],
            stderr=subprocess.DEVNULL,
            cwd=directory,
            **as_user,
        )
        try:
            _wait_for(port)
            yield port
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(2)
            process.kill()
            process.wait()


def _wait_for(port: int) -> None:
    until = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


@dataclass
class Cut:
    """What becomes of the next message on a connection that has sent `marker`.

    It is not delivered ("before"), or delivered after the client knows that the connection is lost ("late"). Its answer
    is not waited for ("during"), or is lost ("after"). Or nothing happens on the connection any more ("hang").
    """

    marker: bytes
    how: str


@dataclass
class Proxy:
    """Every cut happens once, in order."""

    server_port: int
    cuts: list[Cut] = field(default_factory=list)
    is_away: bool = False
    away_after_cuts: bool = False
    bytes_received: int = 0

    def __post_init__(self) -> None:
        self.released = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _address = self._listener.accept()
                if self.is_away:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self.server_port))
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        loses_answer = threading.Event()
        answers = threading.Thread(
            target=self._answer, args=(client, server, loses_answer), daemon=True
        )
        answers.start()
        seen = b""
        with suppress(OSError):
            while sent := client.recv(1 << 20):
                how = ""
                if self.cuts and self.cuts[0].marker in seen:
                    how = self.cuts.pop(0).how
                    self.is_away = self.away_after_cuts and not self.cuts
                if how == "before":
                    break
                if how == "late":
                    client.shutdown(socket.SHUT_RDWR)
                    time.sleep(LATE_SECONDS)
                if how == "hang":
                    self.released.wait()
                    break
                if how == "after":
                    loses_answer.set()
                server.sendall(sent)
                if how == "late":
                    answers.join(LATE_SECONDS)  # the server carries it out meanwhile
                    break
                if how == "during":
                    break
                seen += sent
        self._end(client, server)

    def _answer(
        self, client: socket.socket, server: socket.socket, loses_answer: threading.Event
    ) -> None:
        with suppress(OSError):
            while got := server.recv(1 << 20):
                if loses_answer.is_set():
                    break
                self.bytes_received += len(got)
                client.sendall(got)
        self._end(client, server)

    @staticmethod
    def _end(*sockets: socket.socket) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
