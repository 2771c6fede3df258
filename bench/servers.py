"""The servers of a run: how each is started, and when it is ready.

All run at the same time, on free ports; only one of them is under load at any moment. Tablestone and the floor have
their default number of workers, or the one in their name: `tablestone:1`.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench import paths, processes
from bench.prerequisites import PrerequisiteError, install_azurite
from tablestone.cli.option_sources import default_workers

if TYPE_CHECKING:
    from collections.abc import Callable

ACCOUNT = "devstoreaccount1"
# The emulators' well-known key; every Azure Storage document prints it.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
T = TypeVar("T")
READY_SECONDS = 30.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.005
TABLESTONE, METRICS, CHANGES, ARCHIVE = "tablestone", "metrics", "changes", "archive"
AZURITE, FLOOR, ENGINE = "azurite", "floor", "engine"
RAW, UVICORN = "raw", "uvicorn"


@dataclass
class Server:
    name: str
    address: str
    base_path: str
    process: subprocess.Popen[bytes]
    constant: bool
    """Whether it answers every request with the same 200: then nothing is seeded and nothing is checked."""

    @property
    def connection_string(self) -> str:
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"TableEndpoint=http://{self.address}{self.base_path};"
        )

    def tree(self) -> list[int]:
        return processes.process_tree(self.process.pid)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def kind_of(name: str) -> str:
    """The name without the number of workers."""
    return name.partition(":")[0]


def is_known(name: str) -> bool:
    kind, colon, workers = name.partition(":")
    return kind in STARTERS and (
        not colon or (kind != AZURITE and workers.isdecimal() and int(workers) > 0)
    )


def start(name: str, data: Path) -> Server:
    """Start a server; one that keeps its data uses the given directory."""
    kind, _, workers = name.partition(":")
    return STARTERS[kind](name, data, workers)


def start_tablestone(name: str, data: Path, workers: str, *more: str) -> Server:
    data.mkdir(parents=True, exist_ok=True)
    return _start_serve(name, workers, "--data", str(data), *more)


def _start_serve(name: str, workers: str, *more: str) -> Server:
    command = Path(sys.executable).parent / "tablestone"
    if not command.exists():
        raise PrerequisiteError(
            "bench runs the tablestone command beside its own Python: pip install . first."
        )
    serve = [str(command), "serve", "--port", "0", *more]
    serve += ["--workers", workers] if workers else []
    return start_announced(name, serve, constant=False)


def start_with_metrics(name: str, data: Path, workers: str) -> Server:
    """Start Tablestone with an admin address, so that it counts its requests."""
    return start_tablestone(name, data, workers, "--admin", "0")


def start_with_changes(name: str, data: Path, workers: str) -> Server:
    """Start Tablestone with a record of changes that is trimmed while the bench runs."""
    return start_tablestone(name, data, workers, "--keep-changes", "7d,64MiB")


def start_with_archive(name: str, data: Path, workers: str) -> Server:
    """Start Tablestone with an archive in a directory, on the same disk."""
    archive = data.with_name(f"{data.name}-archive")
    return start_tablestone(name, data, workers, "--archive", str(archive))


def start_on_engine(name: str, _data: Path, workers: str) -> Server:
    """Start Tablestone on the engine that TABLESTONE_ENGINE names, such as a cluster."""
    return _start_serve(name, workers)


def start_floor(name: str, _data: Path, workers: str) -> Server:
    floor = [sys.executable, "-m", "bench.floor", workers or str(default_workers())]
    return start_announced(name, floor, constant=True)


def start_raw(name: str, _data: Path, workers: str) -> Server:
    raw = [sys.executable, "-m", "bench.raw_floor", workers or str(default_workers())]
    raw += [UVICORN] if kind_of(name) == UVICORN else []
    return start_announced(name, raw, constant=True)


def start_announced(name: str, command: list[str], *, constant: bool) -> Server:
    """Start a server that prints its endpoint when it is ready."""
    log = fresh_log(name)
    process = spawn(command, log)
    endpoint = wait_for(lambda: first_endpoint(log), process, log)
    address, _, account = endpoint.partition("/")
    return Server(name, address, f"/{account}", process, constant=constant)


def start_azurite(_name: str, _data: Path, _workers: str) -> Server:
    port = free_port()
    log = fresh_log(AZURITE)
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
    process = spawn([*install_azurite(), *options, "--tablePort", str(port)], log)
    address = f"127.0.0.1:{port}"
    wait_for(lambda: accepts(address), process, log)
    return Server(AZURITE, address, f"/{ACCOUNT}", process, constant=False)


STARTERS: dict[str, Callable[[str, Path, str], Server]] = {
    TABLESTONE: start_tablestone,
    METRICS: start_with_metrics,
    CHANGES: start_with_changes,
    ARCHIVE: start_with_archive,
    AZURITE: start_azurite,
    FLOOR: start_floor,
    RAW: start_raw,
    UVICORN: start_raw,
    ENGINE: start_on_engine,
}


def spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=paths.BENCH.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )


def fresh_log(name: str) -> Path:
    logs = paths.WORK / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return logs / f"{name}.log"


def first_endpoint(log: Path) -> str | None:
    found = re.search(r"http://([^\s;/]+/[A-Za-z0-9]+)\n", log.read_text(errors="replace"))
    return found[1] if found else None


def wait_for(probe: Callable[[], T | None], process: subprocess.Popen[bytes], log: Path) -> T:
    """The probe's first answer that is not empty; an error if the server ends before."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        answer = probe()
        if answer:
            return answer
        if process.poll() is not None:
            break
        time.sleep(POLL_SECONDS)
    process.kill()
    raise PrerequisiteError(
        f"a server did not start; its output: {log.read_text(errors='replace')[-600:]}"
    )


def accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
