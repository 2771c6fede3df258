"""Runs `tablestone account` as a user does, and asks a server about an account."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from cli.command_line import in_this_process
from server_process import ServerProcess
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
    line = ("account", *arguments, "--data", str(data))
    ended, printed, errors = in_this_process(*line, given=keys or "", environment=environment)
    assert ended == status, errors
    assert (errors if status == 0 else printed) == (told if status == 0 else "")
    return printed if status == 0 else errors


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
