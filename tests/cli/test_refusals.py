"""Commands that fail with one sentence and exit status 2."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import tablestone
from certificates import key_pem, make_key, write_pair
from server_process import COMMAND, ServerProcess, clean_environment, needs_console_script
from tablestone.cli.main import HOW_IT_RUNS
from tablestone.engines.sqlite.row_hints import way

StartServer = Callable[..., ServerProcess]


def run_command(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command that should end by itself."""
    ended = subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=clean_environment() | (environment or {}),
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_a_taken_port(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path / "one")
    port = urlsplit(server.endpoint).port
    assert run_command("serve", "--port", str(port), "--data", str(tmp_path / "two")) == (
        2,
        "",
        f"tablestone: Cannot listen on 127.0.0.1:{port}: address already in use. --port 0 takes a free port.\n",
    )
    assert not (tmp_path / "two").exists()


def test_an_unknown_host(tmp_path: Path) -> None:
    status, _, sentence = run_command(
        "serve", "--host", "no.such.host.invalid", "--data", str(tmp_path)
    )
    assert status == 2
    assert sentence == (
        "tablestone: Cannot listen on no.such.host.invalid:10002: the address is not known.\n"
    )


def test_a_data_directory_in_use(private_server: StartServer, tmp_path: Path) -> None:
    private_server(tmp_path)
    assert run_command("serve", "--port", "0", "--data", str(tmp_path)) == (
        2,
        "",
        f"tablestone: The data directory {tmp_path} is in use by another Tablestone server.\n",
    )


def test_a_data_directory_written_by_a_newer_version(
    private_server: StartServer, tmp_path: Path
) -> None:
    private_server(tmp_path).stop()
    with closing(sqlite3.connect(tmp_path / "tablestone.db")) as database:
        database.execute("PRAGMA user_version = 999")
    status, printed, sentence = run_command("serve", "--port", "0", "--data", str(tmp_path))
    assert (status, printed) == (2, "")
    assert sentence.count("\n") == 1
    assert sentence.startswith(
        f"tablestone: The data directory {tmp_path} was written by a newer version of Tablestone"
    )


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run_command("serve", "--port", "0", "--data", str(tmp_path / "file")) == (
        2,
        "",
        f"tablestone: The data directory {tmp_path / 'file'} is not a directory.\n",
    )


@pytest.mark.parametrize("below", ["below", "far/below"])
def test_a_data_directory_below_a_file(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert run_command("serve", "--port", "0", "--data", str(file / below)) == (
        2,
        "",
        f"tablestone: The data directory {file / below} cannot be used: {file} is not a directory.\n",
    )


def test_a_directory_of_somebody_elses_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    assert run_command("serve", "--port", "0", "--data", str(tmp_path)) == (
        2,
        "",
        f"tablestone: The data directory {tmp_path} holds no Tablestone data but other files, such as "
        "'package.json': name a new or an empty directory.\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["package.json"]


def test_other_files_beside_its_own_data_do_not_matter(
    private_server: StartServer, tmp_path: Path
) -> None:
    private_server(tmp_path).stop()
    (tmp_path / "notes.txt").write_text("ours")
    assert private_server(tmp_path).stop() == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_directory_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert run_command("serve", "--port", "0", "--data", str(tmp_path / "data")) == (
        2,
        "",
        f"tablestone: The data directory {tmp_path / 'data'} cannot be used: Permission denied.\n",
    )


def test_an_unwritable_place(tmp_path: Path) -> None:
    """Not even root can write there: it is the kernel's own file system."""
    assert tmp_path.exists()
    status, printed, sentence = run_command("serve", "--port", "0", "--data", "/proc/tablestone")
    assert (status, printed) == (2, "")
    assert re.fullmatch(
        r"tablestone: The data directory /proc/tablestone cannot be used: .*\.\n", sentence
    )


def test_a_broken_variable() -> None:
    assert run_command("serve", environment={"TABLESTONE_LOG_LEVEL": "loud"}) == (
        2,
        "",
        "tablestone: TABLESTONE_LOG_LEVEL must be critical, error, warning, info or debug, "
        "not 'loud'.\n",
    )


def test_no_command_shows_the_commands() -> None:
    status, printed, help_text = run_command()
    assert (status, printed) == (2, "")
    assert "serve" in help_text


@needs_console_script
def test_version() -> None:
    told = f"Tablestone {tablestone.__version__}, {HOW_IT_RUNS}, filters in {way()}\n"
    assert run_command("--version") == (0, told, "")
    assert HOW_IT_RUNS in {"compiled", "interpreted"}


def test_the_package_is_the_command_too() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tablestone", "serve", "--port", "x"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=clean_environment(),
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        2,
        "",
        "tablestone: --port must be a number from 0 to 65535, not 'x'.\n",
    )


CertificateFile = Callable[[Path], object]

UNUSABLE_CERTIFICATES: dict[str, tuple[CertificateFile, str]] = {
    "a certificate that is not there": (
        lambda place: (place / "certificate.pem").unlink(),
        "CERTIFICATE cannot be read: no such file or directory.",
    ),
    "a key that is not there": (
        lambda place: (place / "key.pem").unlink(),
        "KEY cannot be read: no such file or directory.",
    ),
    "half a certificate": (
        lambda place: os.truncate(place / "certificate.pem", 300),
        "The certificate CERTIFICATE and the key KEY cannot be used: a PEM block is missing or broken.",
    ),
    "the key of another certificate": (
        lambda place: (place / "key.pem").write_bytes(key_pem(make_key())),
        "The key KEY is not that of the certificate CERTIFICATE.",
    ),
    "a key with a password": (
        lambda place: (place / "key.pem").write_bytes(key_pem(make_key(), b"secret")),
        "The key KEY is encrypted: give one without a password.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "sentence"), UNUSABLE_CERTIFICATES.values(), ids=UNUSABLE_CERTIFICATES
)
def test_an_unusable_certificate(tmp_path: Path, spoil: CertificateFile, sentence: str) -> None:
    """The command fails before it creates the data directory."""
    certificate, key = write_pair(tmp_path, "spoilt")
    spoil(tmp_path)
    files = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    sentence = sentence.replace("CERTIFICATE", str(certificate)).replace("KEY", str(key))
    data = tmp_path / "data"
    assert run_command("serve", "--port", "0", "--data", str(data), *files) == (
        2,
        "",
        f"tablestone: {sentence}\n",
    )
    assert not data.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_key_without_permission(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path, "closed")
    key.chmod(0)
    files = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    assert run_command("serve", "--port", "0", "--data", str(tmp_path / "data"), *files) == (
        2,
        "",
        f"tablestone: {key} cannot be read: permission denied.\n",
    )


@pytest.mark.slow
def test_a_self_signed_certificate_that_cannot_be_kept(
    private_server: StartServer, tmp_path: Path
) -> None:
    private_server(tmp_path).stop()
    (tmp_path / "tls").write_text("")
    options = ["--port", "0", "--data", str(tmp_path), "--tls", "self-signed"]
    assert run_command("serve", *options) == (
        2,
        "",
        f"tablestone: The certificate for --tls self-signed cannot be kept in {tmp_path / 'tls'}: file exists.\n",
    )
