"""Cosmos DB's Table API: an endpoint that accepts a merge only as POST with X-HTTP-Method, reached through a proxy.

The SDK sends merges to Cosmos DB in this form. The endpoint is a proxy with that rule in front of the real server,
under a host name of Cosmos DB; so the environment's proxy settings are tested too.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from conftest import StartServer
from server_process import ServerProcess
from tools.data_tools import DataTools, entity

DOMAIN = "cosmos.azure.com"
REFUSED = re.compile(rb"^(?:PATCH|MERGE) ", re.MULTILINE)


@pytest.fixture
def cosmos(
    private_server: StartServer, tools: DataTools, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """The tools have the endpoint's connection string; yields the methods of its requests."""
    server = private_server(tools.directory / "data", "--domain", DOMAIN)
    methods: list[str] = []
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler(server, methods))
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_address[1]}")
    host = f"http://{server.account_name}.table.{DOMAIN}"
    tools.connection_string = (
        f"AccountName={server.account_name};AccountKey={server.account_key};TableEndpoint={host};"
    )
    yield methods
    proxy.shutdown()
    proxy.server_close()
    thread.join()


def handler(server: ServerProcess, methods: list[str]) -> type[BaseHTTPRequestHandler]:
    class Cosmos(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Otherwise each body waits 40 ms for the acknowledgement of its head.
        disable_nagle_algorithm = True

        def _any(self) -> None:
            methods.append(self.command)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.command in ("PATCH", "MERGE") or REFUSED.search(body):
                self.send_error(405)
                return
            target = urlsplit(self.path)
            path = target.path + (f"?{target.query}" if target.query else "")
            with closing(HTTPConnection(*server.address, timeout=30)) as upstream:
                upstream.request(self.command, path, body, dict(self.headers.items()))
                answer = upstream.getresponse()
                content = answer.read()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Keep standard error for the test."""

    for method in ("GET", "POST", "PUT", "DELETE", "MERGE", "PATCH"):
        setattr(Cosmos, f"do_{method}", Cosmos._any)
    return Cosmos


def test_merges_reach_it(tools: DataTools, cosmos: list[str]) -> None:
    tools.run("import", tools.write_lines("a.jsonl", [entity("p", "1", a=1)]), "Weather")
    path = tools.write_lines("b.jsonl", [entity("p", "1", b=2), entity("p", "2", b=2)])
    tools.run("import", path, "Weather", "--on-conflict", "merge")
    tools.run("merge", "Weather", "p", "2", "c:Int32=3")
    assert tools.all_of("Weather") == [entity("p", "1", a=1, b=2), entity("p", "2", b=2, c=3)]
    assert set(cosmos) == {"GET", "POST"}


def test_its_account_counts_as_production(tools: DataTools, cosmos: list[str]) -> None:
    tools.run("import", tools.write_lines("a.jsonl", [entity("p", "1", a=1)]), "Weather")
    refused = tools.run("clear", "Weather", status=2).stderr
    assert refused.endswith("needs --yes without a terminal.\n")
    assert tools.run("clear", "Weather", "--yes").lines == ["1 entity deleted."]
    assert cosmos
