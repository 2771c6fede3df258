"""A request whose body arrives after its account was replaced by another one with the same name and keys.

`tests/wire/test_outlived_accounts.py` has every operation, overtaken at every step.
"""

from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.account_command import WORKERS, account, connections, status_of
from server_process import ServerProcess
from signing import signed_headers

KEY = "a2V5IG9uZQ=="

StartServer = Callable[..., ServerProcess]

HELD_BACK = {
    "Create Table": ("POST", "/Tables", '{"TableName":"crossed"}'),
    "Insert Entity": ("POST", "/tab", '{"PartitionKey":"p","RowKey":"crossed"}'),
    "Insert Or Merge Entity": ("PATCH", "/tab(PartitionKey='p',RowKey='crossed')", "{}"),
    "Set Table ACL": ("PUT", "/tab?comp=acl", "<SignedIdentifiers />"),
    "Set Table Service Properties": (
        "PUT",
        "/?restype=service&comp=properties",
        "<StorageServiceProperties><Cors /></StorageServiceProperties>",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HELD_BACK)
def test_a_request_that_outlives_its_account_ends_in_no_other(
    private_server: StartServer, tmp_path: Path, name: str
) -> None:
    server = private_server(tmp_path, "--workers", str(WORKERS))

    def make() -> None:
        account(tmp_path, "create", "weather", "--key-file", "-", keys=KEY)
        with connections(server) as opened:
            assert status_of(opened[0], "weather", KEY, "POST", '{"TableName":"tab"}') == 201

    make()
    method, resource, body = HELD_BACK[name]
    target = f"/weather{resource}"
    kind = "application/xml" if body.startswith("<") else "application/json"
    with connections(server) as opened:
        held = opened[0]
        held.putrequest(method, target)
        for header, value in signed_headers(
            "weather", KEY, method=method, target=target, content_type=kind
        ):
            held.putheader(header, value)
        held.putheader("Content-Length", str(len(body)))
        held.putheader("Expect", "100-continue")
        held.endheaders()
        assert held.sock.recv(100).startswith(b"HTTP/1.1 100 "), "it was let in"
        account(tmp_path, "delete", "weather", "--force")
        make()
        held.send(body.encode())
        assert held.getresponse().status == 404
    assert "tables: 1\n" in account(tmp_path, "show", "weather")
    with closing(HTTPConnection(urlsplit(server.endpoint).netloc, timeout=20)) as connection:
        target = "/weather/tab()"
        headers = signed_headers("weather", KEY, method="GET", target=target)
        connection.request("GET", target, headers=dict(headers))
        assert connection.getresponse().read().endswith(b'"value":[]}')
