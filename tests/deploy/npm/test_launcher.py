"""The command of the npm package: where it refuses to run, its exit status, its signals, and what a kill leaves."""

import os
import pty
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from cli.small_disk import make_read_only, small_disk
from cli.worker_processes import is_running, wait_until
from deploy.npm.packed import are_gone, launcher, make_project, processes_below, run
from server_process import READY_SECONDS_MAX, clean_environment

pytestmark = pytest.mark.slow

FAKE = """
Object.defineProperty(process, "platform", {{ value: "{platform}" }});
Object.defineProperty(process, "arch", {{ value: "{arch}" }});
const report = process.report.getReport();
report.header.glibcVersionRuntime = {glibc};
process.report.getReport = () => report;
"""
SENTENCE = (
    "tablestone: This package is for Linux on x86-64 with glibc 2.36 or later (Debian 12, Ubuntu 24.04), and this is "
    "{}: use Tablestone's container image or Python package or, on Windows, this package in WSL.\n"
)
REFUSED = [
    ("win32", "x64", "undefined", "win32 on x64"),
    ("darwin", "x64", "undefined", "darwin on x64"),
    ("darwin", "arm64", "undefined", "darwin on arm64"),
    ("linux", "arm64", '"2.36"', "linux on arm64, with glibc 2.36"),
    ("linux", "x64", "undefined", "linux on x64, without glibc"),
    ("linux", "x64", '"2.35"', "linux on x64, with glibc 2.35"),
    ("linux", "x64", '"2.4"', "linux on x64, with glibc 2.4"),
]
SERVE = ("serve", "--engine", "memory", "--port", "0")


def on_a_fake_machine(directory: Path, platform: str, arch: str, glibc: str) -> dict[str, str]:
    """The environment in which Node believes that it runs on another machine."""
    fake = directory / "fake.cjs"
    fake.write_text(FAKE.format(platform=platform, arch=arch, glibc=glibc), encoding="utf-8")
    return {"NODE_OPTIONS": f"--require {fake}"}


@pytest.mark.parametrize(("platform", "arch", "glibc", "named"), REFUSED)
def test_another_machine_is_refused(
    project: Path, tmp_path: Path, platform: str, arch: str, glibc: str, named: str
) -> None:
    environment = on_a_fake_machine(tmp_path, platform, arch, glibc)
    ended = run(launcher(project), "--version", environment=environment)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", SENTENCE.format(named))


@pytest.mark.parametrize("glibc", ["2.36", "2.41", "2.100", "3.0"])
def test_a_newer_glibc_is_not(project: Path, tmp_path: Path, glibc: str) -> None:
    environment = on_a_fake_machine(tmp_path, "linux", "x64", f'"{glibc}"')
    ended = run(launcher(project), "--version", environment=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Tablestone ")


def test_the_status_and_the_words_are_those_of_the_program(project: Path) -> None:
    ended = run(launcher(project), "serve", "--port", "a b")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "tablestone: --port must be a number from 0 to 65535, not 'a b'.\n"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("chmod -x", r"The program of this package cannot be started: .* EACCES\."),
        ("rm", r"ENOENT: no such file or directory, .*"),
        ("truncate --size=0", r"This package is not complete: install it again, with more .*"),
    ],
)
def test_a_program_that_cannot_be_started(
    package: Path, tmp_path: Path, damage: str, said: str
) -> None:
    damaged = make_project(tmp_path / "damaged", package)
    program = damaged / "node_modules/tablestone/server/lib/tablestone-program"
    subprocess.run([*damage.split(), program], check=True)
    ended = run(launcher(damaged), "--version")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(rf"tablestone: {said}\n", ended.stderr), ended.stderr


@contextmanager
def launched(
    project: Path, *words: str, by: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[bytes], set[int]]]:
    """A server that is ready, by the launcher or a command for it, and the processes that this has started."""
    with subprocess.Popen(
        [*(by or [str(launcher(project))]), *words],
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=clean_environment(),
    ) as process:
        assert process.stdout is not None
        server: set[int] = set()
        try:
            wait_for_connection_string(process.stdout)
            server |= processes_below(process.pid)
            yield process, server
        finally:
            process.kill()
            for each in filter(is_running, server):  # of a test that fails
                os.kill(each, signal.SIGKILL)


def wait_for_connection_string(output: IO[bytes]) -> None:
    assert any(line.startswith(b"Connection string: ") for line in iter(output.readline, b""))


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGUSR2, None)]
)
def test_a_signal_to_the_launcher(
    project: Path, number: signal.Signals, status: int | None
) -> None:
    """What it does not pass on ends it, and so the server."""
    with launched(project, *SERVE) as (process, server):
        process.send_signal(number)
        ended = process.wait(READY_SECONDS_MAX)
        assert ended == (-number if status is None else status)
        wait_until(lambda: are_gone(server))


def test_sigterm_to_npx(project: Path) -> None:
    """`npx … &` and `kill $!`: npm ends its shell, and tells the launcher nothing."""
    with launched(project, *SERVE, by=("npx", "--no", "tablestone")) as (process, server):
        process.terminate()
        process.wait(READY_SECONDS_MAX)
        wait_until(lambda: are_gone(server))


def test_sighup_reaches_the_server(project: Path, tmp_path: Path) -> None:
    log, moved = tmp_path / "log", tmp_path / "moved"
    with launched(project, *SERVE, "--access-log", str(log)) as (process, _):
        log.rename(moved)
        process.send_signal(signal.SIGHUP)
        wait_until(log.exists)


def test_it_ends_as_the_server_ends(project: Path) -> None:
    with launched(project, *SERVE) as (process, server):
        os.kill(max(server), signal.SIGKILL)
        assert process.wait(READY_SECONDS_MAX) == -signal.SIGKILL


@pytest.mark.parametrize("words", [SERVE, ("--workers", "3")], ids=["memory", "workers"])
def test_a_launcher_that_is_killed_leaves_nothing(
    project: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    if words != SERVE:
        words = ("serve", "--port", "0", "--data", str(tmp_path / "data"), *words)
    with launched(project, *words) as (process, server):
        assert len(server) == (1 if words == SERVE else 4)
        process.kill()
        wait_until(lambda: are_gone(server))


ON_TERMINAL = 'terminal=$1; shift; exec "$@" <"$terminal" >"$terminal" 2>&1'
"""The first terminal that the leader of a session opens is that of the session."""


def test_ctrl_c_stops_the_server_once(project: Path) -> None:
    """The terminal sends SIGINT to both. A second one would end the server before it has answered."""
    keyboard, terminal = pty.openpty()
    line = ["sh", "-c", ON_TERMINAL, "sh", os.ttyname(terminal), str(launcher(project))]
    line += SERVE
    with subprocess.Popen(line, start_new_session=True, env=clean_environment()) as process:
        printed, found = "", None
        while found is None:
            printed += os.read(keyboard, 4096).decode()
            found = re.search(r"TableEndpoint=http://([^:]+):(\d+)/", printed)
        with socket.create_connection((found[1], int(found[2]))) as under_way:
            under_way.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf")
            time.sleep(0.5)
            os.write(keyboard, b"\x03")
            time.sleep(1)
            assert process.poll() is None, "it waits for the request"
        assert process.wait(READY_SECONDS_MAX) == 0
    os.close(keyboard)
    os.close(terminal)


def test_a_read_only_disk(package: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 512 * 1024 * 1024) as disk:
        project = make_project(disk / "project", package)
        make_read_only(disk)
        with launched(project, *SERVE) as (process, _):
            process.terminate()
            assert process.wait(READY_SECONDS_MAX) == 0


def test_two_at_once(project: Path) -> None:
    with launched(project, *SERVE) as (one, first), launched(project, *SERVE) as (_, second):
        assert not first & second
        one.kill()
        wait_until(lambda: are_gone(first))
        assert not are_gone(second)
