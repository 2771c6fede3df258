"""When entities of a table expire, in the head of its page."""

from datetime import timedelta

from explorer.test_explorer_changes import show
from tablestone.testing import TableStorage


def test_the_head_of_a_table_says_when_its_entities_expire() -> None:
    with TableStorage() as storage:
        storage.seed({"Sessions": [{"PartitionKey": "p", "RowKey": "r"}]})
        page = "/tables/Sessions"
        assert "expire" not in show(storage, page).text
        storage.set_expiry("Sessions", after=timedelta(hours=24))
        assert "entities expire 1d after their Timestamp</p>" in show(storage, page).text
        storage.set_expiry("Sessions", property="expires")
        assert "entities expire at the time in expires</p>" in show(storage, page).text
        assert "entities expire" not in show(storage, f"{page}/policies").text
        assert ">Suspend</button> <span" in (tab := show(storage, f"{page}/indexes").text)
        assert "shows hidden entities again, until you resume it" in tab
