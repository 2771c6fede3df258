"""The pictures of README and guide: `EXPLORER_SCREENSHOTS=docs/images pytest tests/explorer/test_explorer_pictures.py`.

Each is a page in a real browser, against the real server.
"""

from pathlib import Path
from typing import Any

import pytest
from azure.data.tables import TableServiceClient

from explorer.insight_stand_in import insight_address
from explorer.install import missing
from explorer.pages_in_browser import ExplorerProcess, running_explorer, watched_page
from server_process import ServerProcess, start_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

AIRPORTS = ("ATL", "BOS", "DEN", "EWR", "JFK", "LAX", "LGA", "MIA", "ORD", "SEA", "SFO", "TPA")
HOT = "JFK"


def load(server: ServerProcess) -> None:
    """Readings of twelve airports. One airport gets far more reads than the others, and one query scans."""
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        table = service.create_table("Weather")
        for number, airport in enumerate(AIRPORTS):
            rows = [
                {
                    "PartitionKey": airport,
                    "RowKey": f"2013-07-{1 + hour // 24:02}T{hour % 24:02}:00",
                    "temp": 18.5 + (hour * 7 + number * 3) % 17,
                    "humid": 40 + (hour * 11 + number) % 55,
                    "wind": (hour * 5 + number) % 23,
                    "clear": (hour + number) % 4 != 0,
                }
                for hour in range(100)
            ]
            table.submit_transaction([("create", row) for row in rows])
        for turn in range(30):
            for number, airport in enumerate(AIRPORTS):
                if airport == HOT or turn % (number + 2) == 0:
                    list(table.query_entities(f"PartitionKey eq '{airport}'"))
            if turn % 3 == 0:
                list(table.query_entities("temp gt 33.0"))


def test_the_picture_of_a_query(browser: Any, tmp_path: Path) -> None:
    """The heat page of the same server names the hottest partition and the query that scans."""
    server = start_server(tmp_path / "data", "--explorer", "--workers", "1")
    try:
        load(server)
        line = next(each for each in server.stdout if each.startswith("Explorer: "))
        process = ExplorerProcess(server.process, line.split(" ", 1)[1].strip())
        with watched_page(browser, process) as watched:
            page = watched.page
            page.goto(f"{process.base}/explorer/tables/Weather?filter=temp gt 33.0")
            page.locator("#grid .piece a").nth(2).click()
            page.wait_for_selector("#panel.open form")
            assert page.inner_text(".badge") == "table scan"
            watched.keep("explorer-query")
            # The tables lead to the heat of the one that has a hot partition.
            page.goto(process.address)
            page.get_by_label("Pages").get_by_role("link", name="Heat").click()
            page.get_by_label("List of the tables").get_by_role("link", name="Weather").click()
            page.wait_for_selector("svg.heat rect")
            hot = page.inner_text("[aria-labelledby=hot]")
            assert hot.index(HOT) < hot.index("ATL")
            assert "temp gt ?" in page.inner_text("[aria-labelledby=scans]")
    finally:
        server.stop()


def test_the_picture_of_a_heat_map(
    browser: Any, filled_server: ServerProcess, tmp_path: Path
) -> None:
    """An hour of known numbers, because a test's server has counted for only a few seconds."""
    place = filled_server.connection_string
    with (
        insight_address() as admin,
        running_explorer(place, "--admin", admin, settings=tmp_path) as process,
        watched_page(browser, process) as watched,
    ):
        watched.open("/tables/Weather/heat")
        watched.page.wait_for_selector("svg.heat rect")
        watched.keep("explorer-heat")
