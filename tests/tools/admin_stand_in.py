"""An admin address that gives one answer, for the commands that ask a server for insight."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread


class _Admin(BaseHTTPRequestHandler):
    """Answers every GET with one text."""

    status = 200
    text = b""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


@contextmanager
def admin_address(text: bytes, status: int = 200) -> Iterator[str]:
    kind = type("Admin", (_Admin,), {"status": status, "text": text})
    with HTTPServer(("127.0.0.1", 0), kind) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield str(server.server_port)
        finally:
            server.shutdown()
            thread.join()
