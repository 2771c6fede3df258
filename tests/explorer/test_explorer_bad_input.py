"""Bad input gets an explanation, none of it runs as code, and the page stays usable."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import generate_table_sas

from explorer.conftest import entity_of
from explorer.install import missing
from explorer.pages_in_browser import WatchedPage, running_explorer, watched_page
from server_process import ServerProcess, start_server
from tablestone.tools.connection import LOCAL_KEY

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

HTML = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(1)</script>"


def problem(watched: WatchedPage) -> str:
    """The sentence that says what went wrong; the rest of the page must be there."""
    page = watched.page
    page.wait_for_selector(".problem")
    assert page.get_by_role("link", name="Tables").first.is_visible()
    return page.inner_text(".problem")


@contextmanager
def answering(
    answer: Callable[[str], tuple[int, str, bytes]],
    headers: Callable[[str], Mapping[str, str]] = lambda _path: {},
) -> Iterator[str]:
    """An endpoint with these answers and extra headers by path; its connection string."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content_type, body = answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            for name, text in headers(self.path).items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield connection_string(f"http://127.0.0.1:{server.server_address[1]}/devstoreaccount1")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def connection_string(endpoint: str) -> str:
    return f"AccountName=devstoreaccount1;AccountKey={LOCAL_KEY};TableEndpoint={endpoint}"


STRANGERS: dict[str, tuple[int, str, bytes]] = {
    "a page of the web": (200, "text/html", b"<!doctype html><title>Hello</title>" + SCRIPT.encode()),
    "a page that is not found": (404, "text/html", HTML.encode()),
    "JSON of another service": (200, "application/json", b'{"hello": "world"}'),
    "JSON that does not end": (200, "application/json", b'{"value": [{"PartitionKey": "a"'),
    "nothing": (204, "text/plain", b""),
    "an error without words": (500, "text/plain", b""),
}  # fmt: skip


def test_an_endpoint_that_is_no_table_service(browser: Any, tmp_path: Path) -> None:
    now = "nothing"
    with (
        answering(lambda _path: STRANGERS[now]) as place,
        running_explorer(place, settings=tmp_path) as process,
        watched_page(browser, process) as watched,
    ):
        for now in STRANGERS:
            for path in ("/", "/tables/Weather", "/service"):
                watched.open(path)
                said = problem(watched)
                assert said.startswith("http://127.0.0.1:"), (now, path, said)
        said_by_process = process.stop()
    assert "Traceback" not in said_by_process


def test_names_and_values_of_a_hostile_service(browser: Any, tmp_path: Path) -> None:
    """HTML and script in names of tables and properties, values, keys, ETags and tokens: all of it shows as text."""
    entity = {
        "odata.etag": f'W/"{HTML}"',
        "PartitionKey": HTML,
        "RowKey": SCRIPT,
        "Timestamp": HTML,
        HTML: HTML,
        "__proto__": {"polluted": True},
        f'"{SCRIPT}@odata.type': "Edm.String",
        "list": [1, 2],
        "number@odata.type": "Edm.Int64",
        "number": HTML,
        "none": None,
    }

    def answer(path: str) -> tuple[int, str, bytes]:
        if "/Tables" in path:
            return 200, "application/json", json.dumps({"value": [{"TableName": HTML}]}).encode()
        if "PartitionKey=" in path:
            return 200, "application/json", json.dumps(entity).encode()
        return 200, "application/json", json.dumps({"value": [entity] * 2}).encode()

    with (
        answering(answer) as place,
        running_explorer(place, settings=tmp_path) as process,
        watched_page(browser, process) as watched,
    ):
        page = watched.page
        assert page.locator(".tables .name").all_inner_texts() == [HTML]
        page.locator(".tables .name").click()
        page.wait_for_selector("#grid")
        assert HTML in page.locator(".piece .row").first.inner_text()
        page.locator("#grid .piece a").first.click()
        page.wait_for_selector("#panel.open form")
        assert page.get_by_label(f"Value of {HTML}").input_value() == HTML
        assert page.locator("main img").count() == 0
        assert page.evaluate("({}).polluted") is None


def test_a_server_that_goes_away(browser: Any, tmp_path: Path) -> None:
    """The page says so, even in the middle of the grid, and goes on when the server is back."""
    server = start_server(tmp_path / "data", "--workers", "1")
    host, port = server.address
    with (
        running_explorer(server.connection_string, settings=tmp_path / "settings") as process,
        watched_page(browser, process) as watched,
    ):
        page = watched.page
        watched.create_table("Made")
        page.wait_for_url("**/tables/Made")
        server.stop()
        page.get_by_role("link", name="Insert").click()
        page.get_by_label("PartitionKey", exact=True).fill("a")
        page.get_by_role("button", name="Insert").click()
        page.locator("#panel .problem").filter(has_text="cannot be reached").wait_for()
        watched.open("/tables/Made")
        assert "cannot be reached" in problem(watched)
        again = start_server(
            tmp_path / "data", "--workers", "1", "--host", host, "--port", str(port)
        )
        try:
            watched.open("/tables/Made")
            page.wait_for_selector("#grid")
        finally:
            again.stop()


def test_rows_that_could_not_be_read_are_tried_again(browser: Any, tmp_path: Path) -> None:
    """Rows in the middle of the grid; the page stays and continues after them."""
    refused = b'{"odata.error": {"code": "AuthorizationFailure", "message": {"value": "Not now."}}}'
    refusals = [refused]

    def answer(path: str) -> tuple[int, str, bytes]:
        if "NextPartitionKey" in path and refusals:
            return 403, "application/json", refusals.pop()
        key = "b" if "NextPartitionKey" in path else "a"
        entity = f'{{"PartitionKey": "{key}", "RowKey": "1"}}'
        return 200, "application/json", f'{{"value": [{entity}]}}'.encode()

    def following(path: str) -> dict[str, str]:
        return {} if "NextPartitionKey" in path else {"x-ms-continuation-NextPartitionKey": "b"}

    one_row = {"tablestone.explorer.grid.PIECE_ROWS": 1}
    with (
        answering(answer, following) as place,
        running_explorer(place, settings=tmp_path, constants=one_row) as process,
        watched_page(browser, process) as watched,
    ):
        page = watched.page
        watched.open("/tables/T")
        page.locator(".piece .problem").wait_for()
        page.get_by_role("button", name="Try again").click()
        page.locator(".piece .row").filter(has_text="b").wait_for()
        assert page.locator(".piece .problem").count() == 0
        assert page.locator(".piece .row").count() == 2


def test_an_explorer_that_goes_away(
    browser: Any, filled_server: ServerProcess, tmp_path: Path
) -> None:
    place = filled_server.connection_string
    with running_explorer(place, settings=tmp_path) as process, watched_page(browser, process) as watched:  # fmt: skip
        watched.open("/tables/Weather")
        process.stop()
        watched.page.locator("#grid .piece a").first.click()
        watched.page.locator("#panel .problem").filter(
            has_text="The explorer does not answer"
        ).wait_for()


def test_an_expired_signature(browser: Any, filled_server: ServerProcess, tmp_path: Path) -> None:
    credential = AzureNamedKeyCredential(filled_server.account_name, filled_server.account_key)
    signature = generate_table_sas(
        credential, "Weather", permission="r", expiry="2020-01-01T00:00:00Z"
    )
    place = f"TableEndpoint={filled_server.endpoint};SharedAccessSignature={signature}"
    with (
        running_explorer(place, settings=tmp_path) as process,
        watched_page(browser, process) as watched,
    ):
        watched.open("/tables/Weather")
        assert "AuthenticationFailed" in problem(watched)
        assert signature not in watched.page.content()
        watched.open("/signature")
        assert "Signing needs the account key" in watched.page.inner_text("main")
        assert signature not in process.stop()


@pytest.mark.parametrize(("key", "fields"), [("large", 16), ("wide", 252)])
def test_the_largest_entities(
    watched: WatchedPage, filled_server: ServerProcess, key: str, fields: int
) -> None:
    """1 MiB of text, and 252 properties: shown, saved, and complete afterwards."""
    page = watched.page
    watched.open(f"/tables/Odd?filter=PartitionKey eq '{key}'")
    page.locator("#grid .piece a").first.click()
    page.wait_for_selector("#panel.open form")
    assert page.locator(".properties .property").count() == fields
    before = entity_of(filled_server, "Odd", key, "1")
    page.get_by_role("button", name="Save").click()
    page.locator(".done").filter(has_text="The entity is saved.").wait_for()
    assert dict(entity_of(filled_server, "Odd", key, "1")) == dict(before)
    if key == "wide":
        page.get_by_role("button", name="Add a property").click()
        row = page.locator(".property").last
        row.get_by_label("Name").fill("one_more")
        row.get_by_role("textbox").last.fill("x")
        page.get_by_role("button", name="Save").click()
        page.locator("#panel .problem").filter(has_text="TooManyProperties").wait_for()


def test_a_filter_of_30_kilobytes(watched: WatchedPage) -> None:
    page = watched.page
    text = " or ".join(f"RowKey eq '{number:08}'" for number in range(1300))
    watched.open(f"/tables/Weather?filter={quote(text)}")
    page.wait_for_selector(".badge")
    assert page.get_by_label("Filter", exact=True).input_value() == text
    assert (
        "No entity matches the filter." in page.inner_text("main")
        or page.locator(".problem").count()
    )
    watched.open(f"/tables/Weather?filter={quote(text + ' qe')}")
    assert "Syntax error at position" in problem(watched)


def test_a_filter_that_is_too_long_for_an_address(watched: WatchedPage) -> None:
    """30 KB of brackets are an address of 90 KB: the page says so before it sends anything; a shorter filter works."""
    page = watched.page
    watched.open("/tables/Weather")
    page.get_by_label("Filter", exact=True).fill("(" * 15_000 + "wet" + ")" * 15_000)
    page.get_by_role("button", name="Run").click()
    assert "servers accept up to 64 KiB" in problem(watched)
    page.get_by_label("Filter", exact=True).fill("wet")
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector(".badge")
    page.wait_for_url("**filter=wet**")


BROKEN_ADDRESSES = {
    "/tables/Weather/rows?after=x": "The address names a page that does not exist.",
    "/tables/Weather/rows?kept=x&order=temp": "This sorted result is gone",
    "/tables/Weather?top=many": "Top must be a number",
    "/tables/Weather?order=a b c": "Order must be a property, or a property and desc",
    "/tables/Weather/download?kind=exe": "Unknown export format exe.",
    "/tables/Weather/entity?pk=no&rk=no": "does not exist",
    "/tables/%3Cimg src=x onerror=alert(1)%3E": "InvalidInput",
    "/tables/a%2Fb": "There is no such page.",
    "/nowhere": "There is no such page.",
}


@pytest.mark.parametrize("path", BROKEN_ADDRESSES)
def test_an_address_that_is_wrong(watched: WatchedPage, path: str) -> None:
    watched.open(path)
    assert BROKEN_ADDRESSES[path] in watched.page.inner_text("main")
    assert watched.page.get_by_role("link", name="Tables").first.is_visible()


@pytest.mark.parametrize("rest", ["", "/rows", "/size", "/policies"])
def test_a_table_that_is_not_there(watched: WatchedPage, rest: str) -> None:
    answer = watched.page.goto(f"{watched.explorer.base}/tables/Nope{rest}")
    assert answer is not None
    assert answer.status == 404
    assert "TableNotFound" in problem(watched)


def test_a_file_that_cannot_be_imported(watched: WatchedPage, tmp_path: Path) -> None:
    page = watched.page
    good = '{"PartitionKey": "a", "RowKey": "1"}\n'
    for name, text, said in (
        ("file.exe", "x", "does not end in"),
        ("file.json", "{", "file.json"),
        ("some.jsonl", good + '{"RowKey": "2"}\n', "there is no PartitionKey"),
    ):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        watched.open("/tables/Empty")
        page.get_by_role("link", name="Import").click()
        page.get_by_label("File", exact=True).set_input_files(path)
        page.get_by_role("button", name="Import").click()
        page.locator("#panel").filter(has_text=said).wait_for()
