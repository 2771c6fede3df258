"""`tablestone health`: one line and an exit status, for a container's health check."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from cli.admin_pages import admin_of
from cli.command_line import tablestone
from server_process import start_server

WORKERS = {"ready": 1, "configured": 2}


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """The address of a stand-in for a server, which answers each request with this."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/health/ready"
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "found", "line", "ended"),
    [
        (200, {"status": "ready"}, "ready, 1 of 2 workers", 0),
        (
            200,
            {"status": "ready", "warnings": ["The disk is nearly full."]},
            "ready, 1 of 2 workers: The disk is nearly full.",
            0,
        ),
        (
            503,
            {"status": "not ready", "reasons": ["No worker is ready yet.", "Storage hangs."]},
            "not ready, 1 of 2 workers: No worker is ready yet. Storage hangs.",
            1,
        ),
    ],
)
def test_an_answer_is_a_line(status: int, found: dict[str, object], line: str, ended: int) -> None:
    with answering(status, json.dumps(found | {"workers": WORKERS})) as address:
        assert tablestone("health", "--admin", address) == (ended, [line], "")


@pytest.mark.parametrize("body", ["", "<html>", "[]", "{}"])
def test_what_is_no_admin_address(body: str) -> None:
    with answering(400, body) as address:
        assert tablestone("health", "--admin", address) == (
            1,
            [],
            f"tablestone: The admin address {address} answers, but not with health: "
            "give the port of --admin, not that of the tables.\n",
        )


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 2, "Missing option '--admin'"),
        (("--admin", "x"), 2, "--admin must be PORT or HOST:PORT"),
        (("--admin", "127.0.0.1:1"), 1, "127.0.0.1:1 does not answer (Connection refused)."),
    ],
)
def test_a_refusal(words: tuple[str, ...], status: int, said: str) -> None:
    ended = tablestone("health", *words)
    assert (ended.status, ended.lines) == (status, [])
    assert said in ended.stderr


def test_a_server_that_runs_and_one_that_has_stopped(tmp_path: Path) -> None:
    server = start_server(tmp_path, "--admin=0", "--workers=1")
    environment = {"TABLESTONE_ADMIN": admin_of(server)}
    ready = tablestone("health", environment=environment, as_process=True)
    assert ready == (0, ["ready, 1 of 1 workers"], "")
    assert server.stop() == 0
    assert tablestone("health", environment=environment).status == 1
