"""A proxy with faults: it passes requests on to a real service, and makes some of them fail by a plan.

The faults are: busy (503) and throttled (429), each with Retry-After and without, failed (500), a reset before the
request is passed on or after its answer has come, and an answer that ends before its Content-Length. Its pages may have
other forms than those of the real service (`page_forms`).
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tools.page_forms import INVALID_INPUT, Form, InvalidInput, PageForms

BUSY, THROTTLED, RESET, ANSWER_LOST, CUT_OFF = (
    "busy",
    "throttled",
    "reset",
    "answer lost",
    "cut off",
)
BUSY_FOR_LONG, THROTTLED_FOR_LONG, FAILED = "busy for long", "throttled for long", "failed"
"""The answers without Retry-After."""
_STATUSES = {BUSY: 503, BUSY_FOR_LONG: 503, THROTTLED: 429, THROTTLED_FOR_LONG: 429, FAILED: 500}

Plan = Callable[[int, str, str], str | None]
"""The fault of a request, by its number, method and path; None just passes it on."""
NO_FAULTS: Plan = lambda _number, _method, _path: None  # noqa: E731

_OWN_HEADERS = {"connection", "transfer-encoding", "content-length", "date", "server"}


class FaultyService:
    """The server: the faults so far, the targets of the requests, and the port that it listens on."""

    def __init__(self, address: tuple[str, int], plan: Plan, forms: Sequence[Form]) -> None:
        self.done: list[str] = []
        self.targets: list[str] = []
        self.shaped_pages = 0
        self._forms = PageForms(forms)
        self._lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Otherwise each body waits 40 ms for the acknowledgement of its head.
            disable_nagle_algorithm = True

            def _any(self) -> None:
                service.handle(self, address, plan)

            def log_message(self, *_: object) -> None:
                """Keep standard error for the test."""

        for method in ("GET", "POST", "PUT", "DELETE", "MERGE", "PATCH"):
            setattr(Handler, f"do_{method}", Handler._any)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]

    def handle(self, request: BaseHTTPRequestHandler, address: tuple[str, int], plan: Plan) -> None:
        """Answer one request with its fault, or with the real answer."""
        with self._lock:
            self.targets.append(request.path)
            fault = plan(len(self.targets), request.command, request.path)
            if fault:
                self.done.append(fault)
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if fault in _STATUSES:
            after = [("Retry-After", "0")] if fault in (BUSY, THROTTLED) else []
            _send(request, _STATUSES[fault], after, b"")
            return
        if fault == RESET:
            self._reset(request)
            return
        try:
            page = self._forms.asked(request.command, request.path)
        except InvalidInput:
            _send(request, 400, [("Content-Type", "application/json")], INVALID_INPUT)
            return
        with closing(HTTPConnection(*address, timeout=30)) as upstream:
            # The signature covers the path and not the host, so the real service accepts the request.
            headers = {
                name: value for name, value in request.headers.items() if name.lower() != "host"
            }
            upstream.request(request.command, page.path if page else request.path, body, headers)
            answer = upstream.getresponse()
            content = answer.read()
        if fault == ANSWER_LOST:
            self._reset(request)
            return
        shown = [pair for pair in answer.getheaders() if pair[0].lower() not in _OWN_HEADERS]
        if page is not None and answer.status == 200:
            self.shaped_pages += 1
            shown, content = self._forms.shaped(page, shown, content)
        shown.append(("Date", answer.getheader("Date") or ""))
        _send(request, answer.status, shown, content, missing=100 if fault == CUT_OFF else 0)
        if fault == CUT_OFF:
            self._reset(request)

    def _reset(self, request: BaseHTTPRequestHandler) -> None:
        """End the connection with a RST, as after a crash of the server."""
        request.close_connection = True
        request.wfile.flush()
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.connection.close()


def _send(
    request: BaseHTTPRequestHandler,
    status: int,
    headers: Sequence[tuple[str, str]],
    content: bytes,
    *,
    missing: int = 0,
) -> None:
    request.send_response_only(status)
    for name, value in headers:
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(content) + missing))
    request.end_headers()
    request.wfile.write(content)


@contextmanager
def faulty_service(
    address: tuple[str, int], plan: Plan = NO_FAULTS, forms: Sequence[Form] = ()
) -> Iterator[FaultyService]:
    """A faulty service on its own thread; its pages have these forms, or those of the real service."""
    service = FaultyService(address, plan, forms)
    thread = threading.Thread(target=service.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.server.shutdown()
        service.server.server_close()
        thread.join()
