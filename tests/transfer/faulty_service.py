"""A service with faults: it passes requests on to a real service, and gives some requests a fault by a plan.

The faults are: busy (503 with Retry-After), throttled (429), a reset before the request is passed on or after its
answer has come, and an answer that ends before its Content-Length. Knows HTTP as bytes; does not know tables.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BUSY, THROTTLED, RESET, ANSWER_LOST, CUT_OFF = (
    "busy",
    "throttled",
    "reset",
    "answer lost",
    "cut off",
)

Plan = Callable[[int, str, str], str | None]
"""The fault of a request, by its number, method and path; with None the request is only passed on."""

_OWN_HEADERS = {"connection", "transfer-encoding", "content-length", "date", "server"}


class FaultyService:
    """The server: the names of the faults so far, and the port that it listens on."""

    def __init__(self, address: tuple[str, int], plan: Plan) -> None:
        self.done: list[str] = []
        self.requests = 0
        self._lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                service.handle(self, address, plan)

            def log_message(self, *_: object) -> None:
                """Print nothing on standard error."""

        for method in ("GET", "POST", "PUT", "DELETE", "MERGE", "PATCH"):
            setattr(Handler, f"do_{method}", Handler._any)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]

    def handle(self, request: BaseHTTPRequestHandler, address: tuple[str, int], plan: Plan) -> None:
        """Answer one request with its fault, or with the real answer."""
        with self._lock:
            self.requests += 1
            fault = plan(self.requests, request.command, request.path)
            if fault:
                self.done.append(fault)
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if fault in (BUSY, THROTTLED):
            request.send_response(503 if fault == BUSY else 429)
            request.send_header("Retry-After", "0")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if fault == RESET:
            self._reset(request)
            return
        with closing(HTTPConnection(*address, timeout=30)) as upstream:
            # The signature covers the path and not the host, so that the real service accepts the request.
            headers = {
                name: value for name, value in request.headers.items() if name.lower() != "host"
            }
            upstream.request(request.command, request.path, body, headers)
            answer = upstream.getresponse()
            content = answer.read()
        if fault == ANSWER_LOST:
            self._reset(request)
            return
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OWN_HEADERS:
                request.send_header(name, value)
        request.send_header("Date", answer.getheader("Date") or "")
        request.send_header("Content-Length", str(len(content) + (100 if fault == CUT_OFF else 0)))
        request.end_headers()
        request.wfile.write(content)
        if fault == CUT_OFF:
            self._reset(request)

    def _reset(self, request: BaseHTTPRequestHandler) -> None:
        """End the connection with a RST, as after the crash of a server."""
        request.close_connection = True
        request.wfile.flush()
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.connection.close()


@contextmanager
def faulty_service(address: tuple[str, int], plan: Plan) -> Iterator[FaultyService]:
    """A faulty service that runs in a thread of its own."""
    service = FaultyService(address, plan)
    thread = threading.Thread(target=service.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.server.shutdown()
        service.server.server_close()
        thread.join()
