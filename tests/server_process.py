"""A real `tablestone serve` in its own process: started, read from its ready lines, stopped or killed.

A test that needs its own server calls `start_server`; the fixture `tablestone_server` is the one that the session
shares.
"""

import atexit
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

COMMAND = os.environ.get("PROGRAM_UNDER_TEST") or str(Path(sys.executable).with_name("tablestone"))
"""The console script of the environment the tests run in, or another build, such as that of deploy/standalone."""
needs_console_script = pytest.mark.skipif(
    "PROGRAM_UNDER_TEST" in os.environ, reason="the build under test has its own packages"
)
"""For a test that changes what the program imports."""
READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0

QUIETER = {"TABLESTONE_LOG_LEVEL": "warning"}
"""Hides the lines of start and stop: what is left on standard error is a warning."""

WITH_CONSTANTS = """
import sys
from importlib import import_module
from tablestone.cli.main import main

for module, name, value in {places}:
    constants = vars(import_module(module))
    assert name in constants, name
    constants[name] = value
sys.exit(main())
"""

_ENDPOINT = re.compile(r"^Table endpoint: (\S+)$")
_CONNECTION_STRING = re.compile(r"^Connection string: (\S.*)$")


class NotReady(Exception):
    """The server ended, or printed nothing, before it was ready; has its exit status and its output."""


@dataclass
class ServerProcess:
    """A running server, with everything that a client needs to connect."""

    process: subprocess.Popen[str]
    stdout: list[str] = field(default_factory=list)
    stderr_lines: list[str] = field(default_factory=list)
    endpoint: str = ""
    connection_string: str = ""
    _readers: list[threading.Thread] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        """The server's address, for a socket."""
        parts = urlsplit(self.endpoint)
        return str(parts.hostname), int(str(parts.port))

    @property
    def account_name(self) -> str:
        return self._member("AccountName")

    @property
    def account_key(self) -> str:
        return self._member("AccountKey")

    @property
    def stderr(self) -> str:
        """The server's standard error so far; all of it once the server has ended."""
        return "".join(self.stderr_lines)

    def stderr_without(self, text: str) -> str:
        """Standard error without the lines that contain the text; there must be one."""
        assert text in self.stderr
        return "".join(line for line in self.stderr_lines if text not in line)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed or closed."""
        self.process.kill()
        self._ended()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the operator's signal; returns the exit status."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self._ended()

    def _member(self, name: str) -> str:
        members = dict(part.split("=", 1) for part in self.connection_string.rstrip(";").split(";"))
        return members[name]

    def _ended(self) -> int:
        try:
            status = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            for reader in self._readers:
                reader.join(STOP_SECONDS_MAX)
        return status

    def _watch(self) -> threading.Event:
        """Read both outputs in the background; sets the event at the ready lines, or at the end."""
        ready = threading.Event()

        def read_stdout() -> None:
            assert self.process.stdout is not None
            with self.process.stdout as stream:
                for line in stream:
                    self.stdout.append(line)
                    if (found := _ENDPOINT.match(line)) and not self.endpoint:
                        self.endpoint = found[1]
                    if (found := _CONNECTION_STRING.match(line)) and not self.connection_string:
                        self.connection_string = found[1]
                        ready.set()
            ready.set()

        def read_stderr() -> None:
            assert self.process.stderr is not None
            with self.process.stderr as stream:
                self.stderr_lines.extend(stream)

        for read in (read_stdout, read_stderr):
            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            self._readers.append(reader)
        return ready


def start_server(
    data_dir: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    constants: Mapping[str, float] | None = None,
    command: Sequence[str] | None = None,
    ready_seconds: float = READY_SECONDS_MAX,
) -> ServerProcess:
    """Start a server on a free port that keeps its data in `data_dir`; raises `NotReady` if it does not start.

    `constants` replaces constants by their full names, so that no test waits for half a minute. `command` runs instead
    of `tablestone`.
    """
    given = {"--port": "0", "--data": str(data_dir)}
    for argument in arguments:
        given.pop(argument.partition("=")[0], None)
        if argument.startswith("--engine"):
            given.pop("--data", None)
    defaults = [word for pair in given.items() for word in pair]
    server = ServerProcess(
        subprocess.Popen(
            [*(command or command_with(constants or {})), "serve", *defaults, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=clean_environment() | QUIETER | (environment or {}),
        )
    )
    atexit.register(server.process.kill)  # of a test that fails before it stops its server
    ready = server._watch()
    if not ready.wait(ready_seconds) or not server.connection_string:
        server.kill()
        raise NotReady(f"exit status {server.process.returncode}: {server.stderr}")
    return server


def command_with(constants: Mapping[str, float]) -> list[str]:
    """`tablestone`, or a program that first sets constants, which must exist, and then does the same."""
    if not constants:
        return [COMMAND]
    places = [(*name.rpartition(".")[::2], value) for name, value in constants.items()]
    return [sys.executable, "-c", WITH_CONSTANTS.format(places=places)]


def clean_environment() -> dict[str, str]:
    """The environment without the variables that configure a server."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TABLESTONE_", "AZURITE_", "OTEL_"))
    }


def free_ports(count: int) -> list[int]:
    """Ports below the range for outgoing connections, so that they stay free until a server takes them."""
    found: list[int] = []
    while len(found) < count:
        port = random.randint(20_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0 and port not in found:
                found.append(port)
    return found
