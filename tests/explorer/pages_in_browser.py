"""The explorer in a real browser: a process of `tablestone explore`, and pages of Chromium driven by Playwright.

Every page is watched: a test fails if it makes a request to another host, raises an error in its script, or opens a
dialog.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from explorer import driven_controls
from explorer.install import BROWSERS
from server_process import clean_environment, command_with

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

READY_SECONDS_MAX = 60.0
WAIT_MILLISECONDS_MAX = 60_000
"""For how long a page waits for a condition, on a busy machine."""
KEPT = "EXPLORER_SCREENSHOTS"
"""The variable that names a directory for the tests' screenshots."""


@dataclass
class ExplorerProcess:
    """A running `tablestone explore`, and the address that it printed, with the token."""

    process: subprocess.Popen[str]
    address: str

    @property
    def base(self) -> str:
        """The address without the token."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"

    def stop(self) -> str:
        """Stop it; returns its standard error."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=READY_SECONDS_MAX)
        return said


@contextmanager
def running_explorer(
    place: str, *options: str, settings: Path, constants: Mapping[str, float] | None = None
) -> Iterator[ExplorerProcess]:
    """Run an explorer of the connection string or URL, on a free port, with some constants changed."""
    environment = clean_environment() | {
        "AZURE_STORAGE_CONNECTION_STRING": place,
        "TABLESTONE_PROFILES": str(settings),
    }
    process = subprocess.Popen(
        [*command_with(constants or {}), "explore", "--no-browser", "--port", "0", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if "http://127.0.0.1:" not in line:
        raise AssertionError(process.communicate(timeout=READY_SECONDS_MAX)[1])
    explorer = ExplorerProcess(process, line.rsplit(" ", 1)[1].strip())
    try:
        yield explorer
    finally:
        if process.poll() is None:
            explorer.stop()


@dataclass
class WatchedPage:
    """A page, and the things it did that it must not do."""

    page: Page
    explorer: ExplorerProcess
    wrong: list[str] = field(default_factory=list)
    asked: int = 0
    """How often the browser asked whether to leave the page."""

    def open(self, path: str = "/") -> None:
        """Open a page of the explorer."""
        self.page.goto(self.explorer.base + path)

    def wait_until(self, expression: str, milliseconds_max: float = WAIT_MILLISECONDS_MAX) -> None:
        """Wait for a condition in JavaScript.

        Playwright's own way evaluates a string in the page, which the policy forbids.
        """
        deadline = monotonic() + milliseconds_max / 1000
        while not self._holds(expression):
            assert monotonic() < deadline, expression
            self.page.wait_for_timeout(20)

    def _holds(self, expression: str) -> bool:
        try:
            return bool(self.page.evaluate(expression))
        except Exception as error:
            if "context was destroyed" not in str(error):
                raise
            return False  # of a page that is just being left

    def create_table(self, name: str) -> None:
        """Create a table on the page of the tables."""
        self.page.locator("[data-control='tables.new']").click()
        self.page.get_by_label("Name", exact=True).fill(name)
        self.page.get_by_role("button", name="Create").click()

    def ask_to_delete(self, table: str) -> None:
        """Go to the question whether a table is to be deleted, which is on its own page."""
        self.open(f"/tables/{table}")
        self.page.get_by_label("More about this table").click()
        self.page.get_by_role("link", name="Delete this table…").click()
        self.page.get_by_label("Type the name of the table").wait_for()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition in Python."""
        deadline = monotonic() + WAIT_MILLISECONDS_MAX / 1000
        while not condition():
            assert monotonic() < deadline
            self.page.wait_for_timeout(20)

    def keep(self, name: str, path: Path | None = None) -> None:
        """Keep a screenshot, if a directory is set."""
        directory = os.environ.get(KEPT)
        if directory:
            Path(directory).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(directory) / f"{name}.png")
        if path is not None:
            self.page.screenshot(path=path)


NO_CLICKS_BEFORE_THE_SCRIPT = """
let hasRun = false;
document.addEventListener("DOMContentLoaded", () => {
  hasRun = true;
  document.documentElement.style.pointerEvents = "";
});
// The observer may be called after that.
const wait = () => { if (!hasRun) document.documentElement.style.pointerEvents = "none"; };
if (document.documentElement) wait();
else new MutationObserver((_, observer) => { observer.disconnect(); wait(); }).observe(document, { childList: true });
"""
"""A click on a page that still loads its script would send a form as without a script; a person is slower."""


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A headless Chromium; root must run it without its sandbox."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - the tests are skipped without it

    path = next(filter(None, map(shutil.which, BROWSERS)))
    arguments = ["--disable-dev-shm-usage", "--no-proxy-server"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=arguments, timeout=2 * WAIT_MILLISECONDS_MAX
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def watched_page(
    browser: Browser, explorer: ExplorerProcess, width: int = 1280, height: int = 800
) -> Iterator[WatchedPage]:
    """A page in a new session of the browser, opened at the address with the token."""
    context = browser.new_context(viewport={"width": width, "height": height})
    driven_controls.watch(context)
    context.add_init_script(NO_CLICKS_BEFORE_THE_SCRIPT)
    page = context.new_page()
    page.set_default_timeout(WAIT_MILLISECONDS_MAX)
    watched = WatchedPage(page, explorer)
    host = urlsplit(explorer.address).netloc

    def note_request(url: str) -> None:
        if urlsplit(url).netloc != host:
            watched.wrong.append(f"a request to {url}")

    page.on("request", lambda request: note_request(request.url))
    page.on("pageerror", lambda error: watched.wrong.append(f"an error of the script: {error}"))
    page.on("console", lambda said: _note_console(watched, said.type, said.text))
    page.on("dialog", lambda dialog: _note_dialog(watched, dialog))
    page.goto(explorer.address)
    page.wait_for_selector("h1")
    # With its script. Ask the document: Playwright can miss the load of a page that another one leads to.
    watched.wait_until("document.readyState === 'complete'")
    try:
        yield watched
    finally:
        context.close()
    assert watched.wrong == []


def _note_dialog(watched: WatchedPage, dialog: Dialog) -> None:
    # Only the browser's own question before leaving a page with unsaved values is allowed.
    if dialog.type == "beforeunload":
        watched.asked += 1
    else:
        watched.wrong.append(f"a dialog: {dialog.message}")
    dialog.accept()


def _note_console(watched: WatchedPage, kind: str, text: str) -> None:
    # Error statuses are among the things under test.
    if kind == "error" and "Failed to load resource" not in text:
        watched.wrong.append(f"an error on the console: {text}")
