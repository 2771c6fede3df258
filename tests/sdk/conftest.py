"""The server of the SDK tests, and the skip for a language that is not prepared."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import pytest

from sdk.endpoint import Endpoint, endpoint_from_environment
from server_process import start_server


class RunningServer(Protocol):
    endpoint: str
    account_name: str
    account_key: str


@pytest.fixture(scope="session")
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    """A server of our own, or the one that TABLESTONE_TEST_ENDPOINT names (Azurite, Azure)."""
    elsewhere = endpoint_from_environment()
    if elsewhere is not None:
        return elsewhere
    server = cast("RunningServer", request.getfixturevalue("tablestone_server"))
    return Endpoint(server.endpoint.rstrip("/"), server.account_name, server.account_key)


class TlsServer(NamedTuple):
    """A server of our own over TLS; `tablestone token` finds the key of its tokens with `store`."""

    endpoint: Endpoint
    store: tuple[str, ...]


@pytest.fixture(scope="session")
def tls_server(
    tmp_path_factory: pytest.TempPathFactory, engine_arguments: tuple[str, ...]
) -> Iterator[TlsServer]:
    """A server with a self-signed certificate; programs follow its instructions to trust it."""
    data = str(tmp_path_factory.mktemp("tls-data"))
    # A server on a cluster has no data directory, and keeps the certificate in the user's cache.
    server = start_server(
        Path(data), *engine_arguments, "--tls", "self-signed", environment={"XDG_CACHE_HOME": data}
    )
    trust = obeyed(server.stdout, tmp_path_factory.mktemp("trust"))
    endpoint = Endpoint(server.endpoint, server.account_name, server.account_key, trust)
    yield TlsServer(endpoint, engine_arguments or ("--data", data))
    assert server.stop() == 0, server.stderr


@pytest.fixture(scope="session")
def tls_endpoint(tls_server: TlsServer) -> Endpoint:
    return tls_server.endpoint


def obeyed(ready_lines: list[str], directory: Path) -> tuple[tuple[str, str], ...]:
    """The environment after the indented lines were pasted into a shell."""
    pasted = "".join(line for line in ready_lines if line.startswith("    "))
    if shutil.which("keytool") is None:
        pasted = "".join(
            line for line in pasted.splitlines(keepends=True) if "#" in line and "Java," not in line
        )
    ended = subprocess.run(
        ["bash", "-ec", f"{{ {pasted} }} >&2; env -0"],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    shown = dict(entry.split("=", 1) for entry in ended.stdout.decode().split("\0") if entry)
    return tuple(sorted(shown.items() - os.environ.items()))
