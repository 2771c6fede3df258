"""A server with tables of every type of value, an explorer for it, and a browser, once per file of tests."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest
from azure.data.tables import EdmType, EntityProperty, TableServiceClient

from explorer import driven_controls
from explorer.pages_in_browser import (
    ExplorerProcess,
    WatchedPage,
    running_browser,
    running_explorer,
    watched_page,
)
from server_process import ServerProcess, start_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

AIRPORTS = ("EWR", "JFK", "LGA")
HOURS = 300
ODD_KEY = ("😀 שלום", "مرحبا")


def weather(airport: str, hour: int) -> dict[str, Any]:
    """One hour at an airport, with a property of each type."""
    day, of_day = divmod(hour, 24)
    return {
        "PartitionKey": airport,
        "RowKey": f"2013-01-{1 + day:02}T{of_day:02}:00",
        "temp": -5.5 + hour % 40,
        "humid": 30 + hour % 60,
        "passengers": EntityProperty(2**40 + hour, EdmType.INT64),
        "station": uuid.UUID(int=hour),
        "seen": dt.datetime(2013, 1, 1 + day, of_day, tzinfo=dt.UTC),
        "wet": hour % 7 == 0,
        "raw": bytes([hour % 256, 1, 2]),
        "note": "clear sky" if hour % 3 else "<b>fog</b> <script>alert(1)</script>",
    }


def fill(connection_string: str) -> None:
    """Create the tables."""
    with TableServiceClient.from_connection_string(connection_string) as service:
        table = service.create_table("Weather")
        for airport in AIRPORTS:
            for start in range(0, HOURS, 100):
                hours = range(start, start + 100)
                table.submit_transaction([("create", weather(airport, hour)) for hour in hours])
        service.create_table("Empty")
        odd = service.create_table("Odd")
        odd.create_entity(
            {
                "PartitionKey": ODD_KEY[0],
                "RowKey": ODD_KEY[1],
                "__proto__": "a prototype",
                "constructor": "a constructor",
                "html": "<img src=x onerror=alert(1)>",
                "lines": "a\r\nb\n\nc",
                "empty": "",
            }
        )
        many = {f"p{number}": number for number in range(252)}
        odd.create_entity({"PartitionKey": "wide", "RowKey": "1", **many})
        large = {f"s{number:02}": "x" * 32_000 for number in range(16)}
        odd.create_entity({"PartitionKey": "large", "RowKey": "1", **large})


@pytest.fixture(autouse=True)
def driven(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that does not drive the controls that `DRIVEN_BY` lists for it."""
    driven_controls.DRIVEN.clear()
    yield
    test = driven_controls.name_of(request)
    driven_controls.keep(test)
    promised = {name for name, by in driven_controls.DRIVEN_BY.items() if by == test}
    assert promised <= driven_controls.DRIVEN, promised - driven_controls.DRIVEN


@pytest.fixture(scope="module")
def filled_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = start_server(
        tmp_path_factory.mktemp("data"),
        "--workers",
        "1",
        "--keep-changes",
        "7d",
        "--remote-indexes",
    )
    fill(server.connection_string)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def explorer(
    filled_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExplorerProcess]:
    settings = tmp_path_factory.mktemp("settings")
    with running_explorer(filled_server.connection_string, settings=settings) as process:
        yield process


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as launched:
        yield launched


OpenPage = Callable[..., AbstractContextManager[WatchedPage]]


@pytest.fixture
def watched(browser: Browser, explorer: ExplorerProcess) -> Iterator[WatchedPage]:
    """A page in a new session; the test fails if the page does what no page may do."""
    with watched_page(browser, explorer) as opened:
        yield opened


def entity_of(server: ServerProcess, table: str, partition_key: str, row_key: str) -> Any:
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        return service.get_table_client(table).get_entity(partition_key, row_key)
