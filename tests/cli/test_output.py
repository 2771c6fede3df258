"""Standard output that cannot be written: the message, the exit status, and no process left running."""

import os
import subprocess
from pathlib import Path

import pytest

from cli.account_command import account
from server_process import COMMAND, clean_environment

FULL_DEVICE = Path("/dev/full")
DATA, FRESH = "DATA", "FRESH"
"""In a command: a directory with an account, and an empty one."""
COMMANDS = {
    "help": ("--help",),
    "version": ("--version",),
    "account list": ("account", "list", "--data", DATA),
    "account create": ("account", "create", "another", "--data", FRESH),
    "check": ("check", "--data", DATA),
    "token": ("token", "--data", DATA),
    "serve, one process": ("serve", "--port", "0", "--workers", "1", "--data", DATA),
    "serve, several processes": ("serve", "--port", "0", "--workers", "3", "--data", DATA),
}
ROWS = [pytest.param(words, "", id=name) for name, words in COMMANDS.items()] + [
    pytest.param(COMMANDS["account list"], "1", id="account list, unbuffered")
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("output") / "data"
    account(directory, "create", "weather")
    return directory


@pytest.fixture
def places(data: Path, tmp_path: Path) -> dict[str, Path]:
    return {DATA: data, FRESH: tmp_path}


def ended(
    arguments: tuple[str, ...], places: dict[str, Path], output: int, unbuffered: str
) -> tuple[int, str]:
    """Exit status and standard error. Reading to its end waits for every process."""
    command = [COMMAND, *(str(places.get(word, word)) for word in arguments)]
    environment = clean_environment() | {"PYTHONUNBUFFERED": unbuffered}
    run = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
        env=environment,
    )
    return run.returncode, run.stderr


@pytest.mark.slow
@pytest.mark.skipif(not FULL_DEVICE.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(("arguments", "unbuffered"), ROWS)
def test_a_full_device(
    arguments: tuple[str, ...], unbuffered: str, places: dict[str, Path]
) -> None:
    with FULL_DEVICE.open("wb") as full:
        assert ended(arguments, places, full.fileno(), unbuffered) == (
            2,
            "tablestone: Standard output cannot be written: No space left on device.\n",
        )


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "unbuffered"), ROWS)
def test_a_reader_that_has_gone(
    arguments: tuple[str, ...], unbuffered: str, places: dict[str, Path]
) -> None:
    """No message, and the status that a shell reports for a program ended by SIGPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert ended(arguments, places, writing, unbuffered) == (141, "")
    finally:
        os.close(writing)
