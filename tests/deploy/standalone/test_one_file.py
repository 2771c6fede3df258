"""The one file: it unpacks itself, and nothing is left of it however it ends."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from deploy.standalone.conftest import EMPTY, SECONDS_MAX, run
from tablestone import __version__

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where it is unpacked."""
    directory = tmp_path / "with a blank"
    directory.mkdir()
    return directory


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_empty(place: Path) -> bool:
    return not list(place.iterdir())


def processes(place: Path) -> list[str]:
    """Those that were started with something in `place`."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [words for words in [process.read_bytes()] if os.fsencode(place) in words]
        except OSError:  # it has ended
            continue
    return [words.decode() for words in found]


@contextmanager
def serving(
    one_file: Path, place: Path, *words: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, and the endpoint of its account."""
    with subprocess.Popen(
        [one_file, "serve", "--port=0", "--data", place.with_name("data"), *words],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=EMPTY | {"TMPDIR": str(place), "TABLESTONE_LOG_LEVEL": "warning"},
    ) as server:
        assert server.stdout is not None
        endpoint = next(line for line in server.stdout if line.startswith("Table endpoint: "))
        try:
            yield server, endpoint.split()[-1]
        finally:
            server.kill()


def test_it_names_itself_and_leaves_nothing(one_file: Path, place: Path) -> None:
    version = run(one_file, "--version", TMPDIR=str(place))
    assert version.stdout == (
        f"Tablestone {__version__}, compiled, filters in C, one file build\n"
    ), version.stderr
    wait_until(lambda: is_empty(place))


@pytest.mark.parametrize(
    ("kill", "number"),
    [
        (os.killpg, signal.SIGTERM),
        (os.killpg, signal.SIGINT),
        (os.kill, signal.SIGKILL),
        (os.killpg, signal.SIGKILL),
    ],
)
def test_nothing_is_left_however_it_ends(
    one_file: Path, place: Path, kill: Callable[[int, int], None], number: signal.Signals
) -> None:
    """Neither files nor workers. A terminal sends its signal to the whole group, and `timeout` SIGKILL too."""
    with serving(one_file, place, "--workers=2") as (server, _):
        assert len(processes(place)) == 3
        kill(server.pid, number)
        assert server.wait(SECONDS_MAX) == (-number if number == signal.SIGKILL else 0)
        wait_until(lambda: is_empty(place) and not processes(place))


def test_a_relative_place(one_file: Path, place: Path) -> None:
    script = 'cd "$1" && TMPDIR=. exec "$2" --version'
    assert run("sh", "-c", script, "-", place, one_file).stdout.startswith("Tablestone ")
    wait_until(lambda: is_empty(place))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.5])
def test_nothing_is_left_if_it_is_ended_while_it_unpacks(
    one_file: Path, place: Path, number: signal.Signals, seconds: float
) -> None:
    """SIGKILL in the milliseconds before that leaves an empty directory."""
    awaited = "*" if number == signal.SIGTERM else "*/tablestone"
    with subprocess.Popen([one_file, "--version"], env=EMPTY | {"TMPDIR": str(place)}) as started:
        wait_until(lambda: any(place.glob(awaited)))
        time.sleep(seconds)
        started.send_signal(number)
    wait_until(lambda: is_empty(place))


def test_two_at_once_are_apart(one_file: Path, place: Path) -> None:
    with serving(one_file, place, "--workers=1") as (_, endpoint):
        assert run(one_file, "--version", TMPDIR=str(place)).returncode == 0
        wait_until(lambda: len(list(place.iterdir())) == 1)
        with pytest.raises(HTTPError) as refused, urlopen(f"{endpoint}/Tables"):
            pass
        with refused.value as answer:
            assert answer.headers["x-ms-request-id"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("ro", "The program is unpacked in {}, which cannot be written."),
        ("size=20m", "The program cannot be unpacked in {}: that needs tar, gzip and 120 MB."),
        ("noexec", "The program is unpacked in {}, which is mounted without exec."),
    ],
)
def test_a_place_that_will_not_do(one_file: Path, place: Path, options: str, said: str) -> None:
    script = (
        'mount -t tmpfs -o "$1" none "$TMPDIR"; "$2" --version; status=$?; sleep 1; ls "$TMPDIR"'
    )
    ended = run(
        *("unshare", "--map-root-user", "--mount", "sh", "-c", script + "; exit $status", "-"),
        *(options, one_file),
        TMPDIR=str(place),
    )
    expected = f"tablestone: {said.format(place)} Set TMPDIR to another directory.\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", expected)


@pytest.mark.network
@pytest.mark.parametrize(
    ("release", "status", "said"),
    [
        ("bullseye", 2, "needs glibc 2.36 or newer, and this system has 2.31."),
        ("trixie", 0, f"Tablestone {__version__}, compiled"),
    ],
)
def test_on_a_debian_that_has_a_shell_and_nothing_else(
    one_file: Path, release: str, status: int, said: str, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root, and debootstrap")
    root = tmp_path / "root"
    made = run("debootstrap", "--variant=minbase", release, root, PATH=os.environ["PATH"])
    if made.returncode != 0:
        pytest.skip(f"debootstrap: {made.stdout.splitlines()[-1]}")
    shutil.copy(one_file, root)
    ended = run("chroot", root, f"/{one_file.name}", "--version", PATH=os.environ["PATH"])
    assert ended.returncode == status
    assert said in ended.stdout + ended.stderr
    wait_until(lambda: is_empty(root / "tmp"))
