"""The pictures of README and the guides; `python docs/generate/pictures.py` keeps them.

Each is a page in a real browser, against the real server.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.data.tables import TableServiceClient

from explorer.insight_stand_in import insight_address
from explorer.install import missing
from explorer.pages_in_browser import ExplorerProcess, running_explorer, watched_page
from server_process import ServerProcess, start_server
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.sample_data import load_sample_data

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

AIRLINES = ("9E", "AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN")
HOT = "UA"
SLOW = "dep_delay gt 60.0"
SOON = {"tablestone.server.admin.size_survey.SURVEY_PAUSE_SECONDS": 0.2}


def load(server: ServerProcess) -> None:
    """The sample data. One airline gets far more reads than the others, and one query scans."""
    with TableEndpoint(parse_connection_string(server.connection_string)) as endpoint:
        load_sample_data(endpoint)
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        table = service.get_table_client("Flights")
        for turn in range(30):
            for number, airline in enumerate(AIRLINES):
                if airline == HOT or turn % (number + 2) == 0:
                    list(table.query_entities(f"PartitionKey eq '{airline}'"))
            if turn % 3 == 0:
                list(table.query_entities(SLOW))


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("sampled")
    server = start_server(data, "--explorer", "--workers", "1", constants=SOON)
    load(server)
    yield server
    server.stop()


def test_the_picture_of_a_query(browser: Any, sampled: ServerProcess) -> None:
    """The heat page of the same server names the hottest partition and the query that scans."""
    line = next(each for each in sampled.stdout if each.startswith("Explorer: "))
    process = ExplorerProcess(sampled.process, line.split(" ", 1)[1].strip())
    with watched_page(browser, process) as watched:
        page = watched.page

        def is_counted() -> bool:
            page.goto(process.address)
            return "842" in page.inner_text("nav.list")

        watched.wait_for(is_counted)
        watched.keep("explorer-tables")
        page.goto(f"{process.base}/explorer/tables/Flights?filter={SLOW}")
        page.locator("#grid .piece a").nth(2).click()
        page.wait_for_selector("#panel.open form")
        assert page.inner_text(".badge") == "table scan"
        assert "842 examined" in page.inner_text("#cost")
        watched.keep("explorer-query")
        page.get_by_label("Of this table").get_by_role("link", name="Heat").click()
        page.wait_for_selector("svg.heat rect")
        hot = page.inner_text("[aria-labelledby=hot]")
        assert hot.index(HOT) < hot.index("AA")
        assert HOT in page.inner_text("[aria-labelledby=card-partition]")
        assert "dep_delay gt ?" in page.inner_text("[aria-labelledby=scans]")


def test_the_picture_of_a_heat_map(browser: Any, sampled: ServerProcess, tmp_path: Path) -> None:
    """An hour of known numbers, because a test's server has counted for only a few seconds."""
    with (
        insight_address() as admin,
        running_explorer(sampled.connection_string, "--admin", admin, settings=tmp_path) as process,
        watched_page(browser, process) as watched,
    ):
        watched.open("/tables/Weather/heat")
        watched.page.wait_for_selector("svg.heat rect")
        assert "JFK" in watched.page.inner_text("[aria-labelledby=card-partition]")
        watched.keep("explorer-heat")
