"""A large table in the grid: wherever one scrolls, the browser holds only a few pieces of it.

`EXPLORER_ENTITIES=1000000` makes it a million. `EXPLORER_SCREENSHOTS=DIR` writes the time of each scroll step, in
milliseconds, to DIR/scroll.json. The test judges the times only if EXPLORER_ENTITIES is set, as in a measurement.
"""

import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from explorer.install import missing
from explorer.pages_in_browser import (
    KEPT,
    WAIT_MILLISECONDS_MAX,
    WatchedPage,
    running_explorer,
    watched_page,
)
from server_process import start_server
from tablestone.explorer.grid import PIECE_ROWS
from tablestone.model.keys import EntityKey
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.formats.rows import Row
from tablestone.tools.writing import OnConflict, TableWriter

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

STEP_MILLISECONDS_MAX = 100
"""The median time of a scroll step, where it is measured."""
ENTITIES = int(os.environ.get("EXPLORER_ENTITIES", "10000"))
IN_PARTITION = 1_000
STEPS = int(os.environ.get("EXPLORER_STEPS", "110"))
STEP_PIXELS = 800
ELEMENTS_MAX = 60_000
"""Elements of a page with 24 loaded pieces of 100 rows. A page that keeps what it has shown soon has more."""

STEP = """async (pixels) => {
  const grid = document.getElementById("grid");
  const frame = () => new Promise(requestAnimationFrame);
  const start = performance.now();
  grid.scrollBy(0, pixels);
  await frame();
  await frame();
  return performance.now() - start;
}"""


def rows() -> Iterator[Row]:
    for number in range(ENTITIES):
        key = EntityKey(f"sensor-{number // IN_PARTITION:04}", f"{number:010}")
        body = {
            "PartitionKey": key.partition_key,
            "RowKey": key.row_key,
            "value": number * 0.5 + 0.25,
            "count": number,
            "place": f"hall {number % 40}",
            "is_ok": number % 9 != 0,
        }
        yield Row(number + 1, key, json.dumps(body).encode())


@pytest.fixture
def large(browser: Any, tmp_path: Path) -> Iterator[WatchedPage]:
    server = start_server(tmp_path / "data", "--engine", "memory")
    with TableEndpoint(parse_connection_string(server.connection_string)) as endpoint:
        endpoint.create_table("Readings")
        writer = TableWriter(
            endpoint, "Readings", OnConflict.FAIL, parallel=2, reject=lambda *_: None
        )
        for row in rows():
            writer.add(row)
        writer.drain()
        writer.close()
    place = server.connection_string
    with (
        running_explorer(place, settings=tmp_path / "settings") as process,
        watched_page(browser, process) as watched,
    ):
        yield watched
    server.stop()


def test_the_grid_stays_small(large: WatchedPage) -> None:
    page = large.page
    large.open("/tables/Readings")
    times = []
    most = 0
    loaded = "[...document.querySelectorAll('.piece')].some(each => each.isNear && !each.childElementCount)"
    for _ in range(STEPS):
        times.append(page.evaluate(STEP, STEP_PIXELS))
        large.wait_until(f"!{loaded}")
        most = max(most, page.evaluate("document.getElementsByTagName('*').length"))
    assert most < ELEMENTS_MAX
    assert page.evaluate("document.querySelector('.piece').childElementCount") == 0
    assert page.evaluate("document.getElementById('grid').scrollTop") > STEPS * STEP_PIXELS * 0.9
    # No row is missing: after the emptied pieces, the loaded ones continue number by number.
    keys = page.evaluate("[...document.querySelectorAll('.piece input')].map(each => each.value)")
    numbers = [int(json.loads(key)[1]) for key in keys]
    emptied = page.evaluate(
        "[...document.querySelectorAll('.piece')].findIndex(each => each.childElementCount > 0)"
    )
    assert emptied > 0
    assert numbers == list(range(emptied * PIECE_ROWS, emptied * PIECE_ROWS + len(numbers)))
    page.evaluate("document.getElementById('grid').scrollTo(0, 0)")
    large.wait_until("document.querySelector('.piece').childElementCount > 0")
    assert (
        page.evaluate("document.querySelector('.piece input').value")
        == '["sensor-0000","0000000000"]'
    )
    ordered = sorted(times)
    measured = {
        "entities": ENTITIES,
        "steps": STEPS,
        "median": round(statistics.median(times), 1),
        "p99": round(ordered[int(len(ordered) * 0.99)], 1),
        "most": round(ordered[-1], 1),
        "elements": most,
    }
    directory = os.environ.get(KEPT)
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        (Path(directory) / "scroll.json").write_text(json.dumps(measured), encoding="utf-8")
    if "EXPLORER_ENTITIES" in os.environ:
        assert measured["median"] < STEP_MILLISECONDS_MAX, measured
    large.keep("large")
    page.keyboard.press("/")
    page.get_by_label("Filter", exact=True).fill(f"count eq {ENTITIES - 1}")
    page.get_by_role("button", name="Run").click()
    page.wait_for_url("**count**")
    found = "document.querySelector('.piece .row:not(.further)') !== null"
    scanned = WAIT_MILLISECONDS_MAX + ENTITIES
    large.wait_until(f"document.querySelector('.look-further')?.click(), {found}", scanned)
    assert f"{ENTITIES - 1:010}" in page.inner_text(".piece .row")


@pytest.mark.parametrize(
    "path", ["/tables/Empty", "/tables/Weather?filter=note eq 'nowhere'", "/tables/Weather?top=3"]
)
def test_an_untouched_page_asks_for_nothing(watched: WatchedPage, path: str) -> None:
    """A page without a result, or with one that fits, is read once: each request may scan a table."""
    page = watched.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    watched.open(path)
    page.wait_for_selector("#grid")
    # The page checks its pieces in each frame, so an endless loop would send many requests here.
    page.evaluate(
        "(async () => { for (let n = 0; n < 60; n++) await new Promise(requestAnimationFrame); })()"
    )
    assert [url for url in asked if "/rows" in url] == []
