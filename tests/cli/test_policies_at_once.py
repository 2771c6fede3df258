"""A stored access policy changed in one process takes effect in every other process on its next request."""

import http.client
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from sas_signing import query_of, signed
from server_process import ServerProcess
from stress.crash.writers import Connection

CONNECTIONS = 8
TURNS = 15


def _status(each: Connection, query: str) -> int:
    http_connection: http.client.HTTPConnection = each.http
    accept = {"Accept": "application/json;odata=nometadata"}
    http_connection.request("GET", f"{each.base}/tab()?{query}", headers=accept)
    response = http_connection.getresponse()
    response.read()
    return response.status


def test_a_policy_acts_at_once_in_every_process(
    private_server: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--workers=3")
    parameters = {"sv": "2019-02-02", "tn": "tab", "si": "p"}
    query = query_of(signed(server.account_name, server.account_key, parameters))
    policy = "<Expiry>9000-01-01</Expiry><Permission>{}</Permission>"
    identifier = "<SignedIdentifier><Id>p</Id><AccessPolicy>{}</AccessPolicy></SignedIdentifier>"

    def set_policies(by: Connection, inside: str) -> None:
        body = f"<SignedIdentifiers>{inside}</SignedIdentifiers>".encode()
        by.send("PUT", "/tab?comp=acl", body, expected=204, content_type="application/xml")

    with ExitStack() as stack:
        opened = [stack.enter_context(Connection(server)) for _ in range(CONNECTIONS)]
        opened[0].send("POST", "/Tables", b'{"TableName":"tab"}', expected=201)
        for turn in range(TURNS):
            by = opened[turn % CONNECTIONS]
            set_policies(by, identifier.format(policy.format("r")))
            assert [_status(each, query) for each in opened] == [200] * CONNECTIONS
            removed = "" if turn % 2 else identifier.format(policy.format("d"))
            set_policies(by, removed)
            assert [_status(each, query) for each in opened] == [403] * CONNECTIONS
