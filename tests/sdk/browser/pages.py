"""Pages for a real browser: a web server per origin, and a browser that opens a page and reports its script's result.

A page's script makes one `fetch` and posts the result to the server that it came from.
"""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from sdk.browser.install import browser

PAGE_SECONDS_MAX = 60.0
"""From the start of a browser to the page's report, on a busy machine."""

PAGE = """<!doctype html><meta charset="utf-8"><title>A page of another origin</title><script>
const asked = ASKED;
(async () => {
  let seen;
  try {
    const answer = await fetch(asked.url, asked.options);
    seen = { status: answer.status, headers: Object.fromEntries(answer.headers), body: await answer.text() };
  } catch (error) {
    seen = { error: String(error) };
  }
  await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
})();
</script>"""


class Seen(NamedTuple):
    """The parts of an answer that a page could read (only `error` if none), and the browser's log."""

    status: int
    headers: dict[str, str]
    body: str
    error: str
    console: str


class PageServer:
    """Serves one page from a port, and so an origin, of its own."""

    def __init__(self) -> None:
        self.page = ""
        self.reported: queue.Queue[dict[str, Any]] = queue.Queue()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.page.encode() if self.path == "/" else b""
                self._answer(200 if body else 404, body)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(200, b"")
                outer.reported.put(json.loads(body))

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_address[1]}"

    def open(self, profile: Path, url: str, **options: Any) -> Seen:
        """Open the page in a fresh browser; its script fetches `url` with these options of `fetch`."""
        self.page = PAGE.replace("ASKED", json.dumps({"url": url, "options": options}))
        log = profile / "console.txt"
        profile.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as console:
            process = subprocess.Popen(
                [*command(profile), self.origin + "/"],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
            try:
                seen = self.reported.get(timeout=PAGE_SECONDS_MAX)
                # The browser writes why it refused an answer at its leisure.
                until = time.monotonic() + 10
                while "error" in seen and "CORS policy" not in log.read_text(errors="replace"):
                    if time.monotonic() > until:
                        break
                    time.sleep(0.05)
            except queue.Empty:
                said = log.read_text(errors="replace")
                raise TimeoutError(f"the page reported nothing; the browser said: {said}") from None
            finally:
                os.killpg(
                    process.pid, signal.SIGKILL
                )  # Debian's command is a shell that waits for the browser
                process.wait(PAGE_SECONDS_MAX)
        return Seen(
            seen.get("status", 0),
            seen.get("headers", {}),
            seen.get("body", ""),
            seen.get("error", ""),
            log.read_text(errors="replace"),
        )


def command(profile: Path) -> list[str]:
    """A headless browser that logs its console; root must run it without its sandbox."""
    path = browser()
    assert path is not None
    return [
        path,
        "--headless=new",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--no-proxy-server",
        "--enable-logging=stderr",
        f"--user-data-dir={profile}",
    ]


@contextmanager
def page_server() -> Iterator[PageServer]:
    pages = PageServer()
    thread = threading.Thread(target=pages.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield pages
    finally:
        pages.server.shutdown()
        pages.server.server_close()
        thread.join()
