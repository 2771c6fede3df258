"""Runs `tablestone account` as a user does, and asks a server about an account."""

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from server_process import COMMAND, ServerProcess, clean_environment
from signing import signed_headers

WORKERS = 3


def made(data: Path) -> str:
    """The line that a command prints when it creates the data directory, in case the name is a typing error."""
    return (
        f"tablestone: {data} did not exist and was created. Only a server with this data directory "
        "uses it.\n"
    )


def account(
    data: Path,
    *arguments: str,
    status: int = 0,
    keys: str | None = None,
    environment: dict[str, str] | None = None,
) -> str:
    """The output of the command, with `keys` on its standard input; if it fails, its error message.

    A command that creates a directory names it on standard error.
    """
    told = "" if data.exists() else made(data)
    ended = subprocess.run(
        [COMMAND, "account", *arguments, "--data", str(data)],
        input=keys,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=clean_environment() | (environment or {}),
    )
    assert ended.returncode == status, ended
    if status == 0:
        assert ended.stderr == told
    else:
        assert ended.stdout == ""
    return ended.stdout if status == 0 else ended.stderr


@contextmanager
def connections(server: ServerProcess) -> Iterator[list[HTTPConnection]]:
    """More connections than processes, so that every process gets a request."""
    netloc = urlsplit(server.endpoint).netloc
    opened = [HTTPConnection(netloc, timeout=20) for _ in range(4 * WORKERS)]
    try:
        yield opened
    finally:
        for connection in opened:
            connection.close()


def status_of(
    connection: HTTPConnection, name: str, key: str, method: str = "GET", body: str = ""
) -> int:
    """The status of a signed request that lists the account's tables."""
    target = f"/{name}/Tables"
    kind = "application/json" if body else ""
    headers = signed_headers(name, key, method=method, target=target, content_type=kind)
    connection.request(method, target, body or None, dict(headers))
    with closing(connection.getresponse()) as response:
        response.read()
        return response.status
