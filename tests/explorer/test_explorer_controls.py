"""Controls that the other tests of the explorer do not use, each once, in a real browser through the real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from azure.data.tables import TableServiceClient, UpdateMode

from explorer.conftest import entity_of
from explorer.install import missing
from explorer.pages_in_browser import WatchedPage
from explorer.test_explorer_pages import FIRST, field, open_entity, table, wait_for_text
from server_process import ServerProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]


def test_the_stored_entity_is_taken_after_a_conflict(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    page = watched.page
    open_entity(watched, "Weather", FIRST)
    with table(filled_server, "Weather") as client:
        client.update_entity(
            {"PartitionKey": FIRST[0], "RowKey": FIRST[1], "humid": 77}, UpdateMode.MERGE
        )
    field(watched, "humid").fill("78")
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_selector(".both")
    page.get_by_role("link", name="Take the stored one").click()
    page.wait_for_selector("#panel .properties")
    assert field(watched, "humid").input_value() == "77"
    assert entity_of(filled_server, "Weather", *FIRST)["humid"] == 77


def test_a_property_is_removed_and_the_panel_closed(
    watched: WatchedPage, filled_server: ServerProcess
) -> None:
    page = watched.page
    open_entity(watched, "Weather", FIRST)
    page.get_by_label("Remove note", exact=True).click()
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for_text(watched, ".done", "The entity is saved.")
    assert "note" not in entity_of(filled_server, "Weather", *FIRST)
    page.get_by_label("Close", exact=True).first.click()
    page.wait_for_selector("#panel.open", state="detached")


def test_the_panel_copies_its_entity(watched: WatchedPage) -> None:
    open_entity(watched, "Weather", FIRST)
    panel = watched.page.locator("#panel")
    for name, expected in (
        ("JSON", '"PartitionKey":"EWR"'),
        ("filter", "PartitionKey eq 'EWR' and RowKey eq '2013-01-01T00:00'"),
        ("Python", "get_entity("),
        ("JavaScript", "getEntity("),
        ("Go", "GetEntity("),
        ("Java", "getEntity("),
        ("C#", "GetEntity"),
    ):
        panel.get_by_role("button", name=name, exact=True).click()
        wait_for_text(watched, "#copied h2", name)
        assert expected in watched.page.locator("#copied [data-copy]").input_value()


def test_every_field_of_the_service(watched: WatchedPage, filled_server: ServerProcess) -> None:
    page = watched.page
    watched.open("/service")
    page.get_by_label("Origins").fill("https://example.com")
    page.get_by_label("Methods").fill("GET")
    page.get_by_label("Headers that it may send").fill("x-ms-*")
    page.get_by_label("Headers that it may read").fill("ETag")
    for name in ("read", "write"):
        page.get_by_label(name, exact=True).check()
    for name in ("enabled", "by operation"):
        page.get_by_label(name, exact=True).first.check()
    page.get_by_role("button", name="Save the properties").click()
    wait_for_text(watched, ".done", "The properties are saved.")
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        found: Any = service.get_service_properties()
    assert found["cors"][0].allowed_headers == ["x-ms-*"]
    assert found["cors"][0].exposed_headers == ["ETag"]
    assert (found["analytics_logging"].read, found["analytics_logging"].write) == (True, True)
    assert (found["hour_metrics"].enabled, found["hour_metrics"].include_apis) == (True, True)


def test_a_policy_begins(watched: WatchedPage, filled_server: ServerProcess) -> None:
    page = watched.page
    watched.open("/tables/Empty/policies")
    page.get_by_label("Id").fill("later")
    page.get_by_label("Begins").fill("2099-01-01T00:00:00Z")
    page.get_by_role("button", name="Save the policies").click()
    wait_for_text(watched, ".done", "The policies are saved.")
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        policy: Any = service.get_table_client("Empty").get_table_access_policy()["later"]
    assert str(policy.start).startswith("2099-01-01")


def test_keys_of_an_import_are_made_of_columns(
    watched: WatchedPage, filled_server: ServerProcess, tmp_path: Path
) -> None:
    page = watched.page
    path = tmp_path / "cities.csv"
    path.write_text("country,city\nNorway,Oslo\n", encoding="utf-8")
    watched.open("/tables/Empty")
    page.get_by_role("link", name="Import").click()
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_label("PartitionKey from").fill("{country}")
    page.get_by_label("RowKey from").fill("{city}")
    page.get_by_role("button", name="Import").click()
    wait_for_text(watched, "#panel [role=status]", "1 entities stored")
    assert entity_of(filled_server, "Empty", "Norway", "Oslo")["city"] == "Oslo"
