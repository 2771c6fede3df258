"""The indexes of a table in the head of its page, and the plan of a query that one serves."""

import html
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from explorer.test_explorer_changes import show
from tablestone.testing import TableStorage
from tablestone.tools.client import Page, TableEndpoint

ADVICE = "make an index instead: on <code>temp</code>, on the tab Indexes and expiry."


@pytest.fixture
def storage() -> Iterator[TableStorage]:
    with TableStorage() as running:
        running.seed(
            {"Weather": [{"PartitionKey": "JFK", "RowKey": "1", "temp": 3.5, "wet": True}]}
        )
        yield running


def test_the_page_of_a_table(storage: TableStorage) -> None:
    query = "/tables/Weather?filter=temp%20gt%203.0"
    page = show(storage, query).text
    assert ">table scan</span>" in page
    assert ADVICE in page
    assert "index:" not in page
    storage.create_index("Weather", "temp")
    page = show(storage, query).text
    assert ">index</span>" in page
    assert "by the index on temp" in page
    assert "1 index: <bdi>temp</bdi></p>" in page
    assert ADVICE not in page
    assert "would be better" not in page
    storage.create_index("Weather", "wet", partition=True)
    page = show(storage, "/tables/Weather?filter=wet").text
    assert "2 indexes: <bdi>temp</bdi>, <bdi>wet</bdi> within partitions</p>" in page
    assert ">table scan</span>" in page
    assert show(storage, "/tables/Weather/policies").status_code == 200


def test_the_cost_says_what_the_server_examined(
    storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what it returned: of two entities none is shown. A service that ignores the question does not say."""
    storage.seed({"Weather": [{"PartitionKey": "JFK", "RowKey": "2", "temp": 4.5}]})
    query = "/tables/Weather?filter=temp%20gt%209.0"
    assert 'data-read="0" data-pages="1" data-examined="2"' in show(storage, query).text
    page = TableEndpoint.page

    def of_another_service(*given: Any, **more: Any) -> Page:
        return page(*given, **more)._replace(examined=None)

    monkeypatch.setattr(TableEndpoint, "page", of_another_service)
    assert 'data-read="0" data-pages="1" data-examined=""' in show(storage, query).text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("temp gt '5'", "temp gt '5': temp is Edm.Double in the entities that were read, not Edm"),
        ("temp lt '5'", "not Edm.String, so each of them counts as less."),
        ("temp gt 9.0", ""),
        ("temp gt 9", ""),
        ("wet eq 1 or temp gt '5'", "wet eq 1: wet is Edm.Boolean"),
    ],
)
def test_the_page_says_that_a_literal_has_another_type(
    storage: TableStorage, text: str, sentence: str
) -> None:
    """Also if the page is the first that is opened, so no entity was seen before."""
    page = show(storage, f"/tables/Weather?{urlencode({'filter': text})}").text
    said = re.findall('class="advice" role="status">([^<]*)<', page)
    assert bool(said) == bool(sentence)
    assert sentence in html.unescape("".join(said))


def test_no_key_or_index_is_advised_for_a_literal_of_another_type(storage: TableStorage) -> None:
    for text, better in (("temp eq '5'", ""), ("temp eq 5", "What would be better")):
        page = html.unescape(show(storage, f"/tables/Weather?{urlencode({'filter': text})}").text)
        assert ("What would be better" in page) == bool(better)
        assert ("not Edm.String. Write temp eq 5.0." in page) == (not better)
