"""`x-tablestone-examined`: how many entities a request examined, if it asks (docs/compatibility.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from sas_signing import completed, query_of, signed
from storage.engines_under_test import URL
from tablestone import limits
from wire.service_under_test import ACCOUNT, KEY, ServiceUnderTest

LARGE = 9
ASKS = ("x-tablestone-examined", "1")
JSON = ("Content-Type", "application/json")


class Table:
    """Ten entities in each of the partitions a, b and c; one in ten has `color eq 'red'`, which is the fifth."""

    def __init__(self) -> None:
        self.service = ServiceUnderTest()
        self.service.send("POST", "/Tables", [JSON], b'{"TableName": "Things"}')
        for partition in "abc":
            for row in range(10):
                self.insert(partition, row, color="red" if row == 4 else "blue")

    def insert(self, partition: str, row: int, **properties: object) -> None:
        key = {"PartitionKey": partition, "RowKey": f"{row:02}"}
        body = json.dumps({**key, **properties}).encode()
        assert self.service.send("POST", "/Things", [JSON], body).status == 201

    def examined(self, target: str, *headers: tuple[str, str]) -> tuple[int, int | None]:
        """The entities in the answer, and those that it says were examined."""
        answer = self.service.send("GET", f"/{target}", [ASKS, *headers])
        assert answer.status == 200, answer
        found: dict[str, Any] = json.loads(answer.body)
        said = answer.headers.get("x-tablestone-examined")
        return len(found.get("value", [0])), None if said is None else int(said)

    def expire(self) -> None:
        """Let all entities so far expire, and hide them."""
        own = [("x-tablestone-indexes", "1")]
        answer = self.service.send("POST", "/Things?comp=expiry", own, b'{"after": 60}')
        count = json.loads(answer.body)["count"]
        self.service.work()
        found = json.loads(self.service.send("GET", f"/Things?comp=expiry&count={count}", own).body)
        token = ("x-tablestone-token", found["token"])
        answer = self.service.send("PUT", "/Things?comp=expiry", [*own, token], b'{"after": 60}')
        if answer.status == 202:
            self.service.work()
        self.service.clock.now += timedelta(seconds=60)


@pytest.fixture
def table() -> Iterator[Table]:
    made = Table()
    yield made
    made.service.close()


RED = "$filter=color%20eq%20'red'"


@pytest.mark.parametrize(
    ("target", "found", "examined"),
    [
        ("Things()", 30, 30),
        (f"Things()?{RED}", 3, 30),
        ("Things()?$filter=PartitionKey%20eq%20'a'", 10, 10),
        (f"Things()?{RED}%20and%20PartitionKey%20eq%20'a'", 1, 10),
        ("Things()?$filter=PartitionKey%20eq%20'a'%20and%20RowKey%20lt%20'03'", 3, 3),
        ("Things()?$filter=PartitionKey%20eq%20'z'", 0, 0),
        ("Things()?$top=4", 4, 4),
        ("Things()?$top=4&$select=color", 4, 4),
        ("Things(PartitionKey='a',RowKey='01')", 1, 1),
    ],
)
def test_what_was_examined(table: Table, target: str, found: int, examined: int) -> None:
    assert table.examined(target) == (found, examined)


def test_what_was_read_ahead_is_not_counted(table: Table) -> None:
    assert table.examined(f"Things()?{RED}&$top=1") == (1, 5)
    assert table.examined(f"Things()?{RED}&$top=2") == (2, 15)


@pytest.mark.parametrize("limit", ["top", "seconds", "bytes"])
@pytest.mark.parametrize("top", [1, 2, 3, 10])
def test_the_pages_of_a_query_examine_the_table_once(table: Table, top: int, limit: str) -> None:
    """Where a page ends inside a read, a hint does not say how many rows it left out before that."""
    if limit == "seconds":  # each page ends after a row
        table.service.seconds = count(0, 2 * limits.PAGE_SECONDS_MAX)
    elif limit == "bytes":  # a read ends within values that are too large for a hint
        notes = {f"note{number}": "x" * limits.STRING_LENGTH_MAX for number in range(15)}
        for row in range(20, 20 + LARGE):
            table.insert("b", row, color="blue", **notes)
        assert LARGE * len(notes) * limits.STRING_LENGTH_MAX > limits.PAGE_BYTES_MAX
    target, whole, found = f"/Things()?{RED}&$top={top}", 0, 0
    rest = ""
    while True:
        answer = table.service.send("GET", target + rest, [ASKS])
        whole += int(answer.headers["x-tablestone-examined"])
        found += len(json.loads(answer.body)["value"])
        if "x-ms-continuation-nextpartitionkey" not in answer.headers:
            break
        rest = "".join(
            f"&{name}={answer.headers[f'x-ms-continuation-{name.lower()}']}"
            for name in ("NextPartitionKey", "NextRowKey")
        )
    assert found == 3
    assert whole == 30 + (LARGE if limit == "bytes" else 0)


def test_only_who_asks_is_told(table: Table) -> None:
    for target in (f"/Things()?{RED}", "/Things(PartitionKey='a',RowKey='01')"):
        assert "x-tablestone-examined" not in table.service.send("GET", target).headers
    for target in (
        "/Tables",
        "/Things?comp=acl",
        "/Things(PartitionKey='a',RowKey='99')",
        "/Things()?$filter=1",
    ):
        answer = table.service.send("GET", target, [ASKS])
        assert "x-tablestone-examined" not in answer.headers


def test_the_range_of_a_signature_limits_it(table: Table) -> None:
    given = {"tn": "Things", "sp": "r", "spk": "a", "srk": "03", "epk": "b", "erk": "02"}
    query = query_of(signed(ACCOUNT, KEY, completed(given)))
    found, examined = table.examined(f"Things()?{RED}&{query}", ("Authorization", "-"))
    assert (found, examined) == (1, 7 + 3)
    assert table.examined(f"Things()?{query}", ("Authorization", "-")) == (10, 10)


@pytest.mark.parametrize(
    "filtered", [f"Things()?{RED}", "Things()", f"Things()?{RED}%20and%20PartitionKey%20eq%20'a'"]
)
def test_expired_entities_are_not_counted(table: Table, filtered: str) -> None:
    table.expire()
    assert table.examined(filtered) == (0, 0)
    table.insert("a", 50, color="blue")
    table.insert("a", 51, color="red")
    assert table.examined(filtered) == (1 if RED in filtered else 2, 2)


@pytest.mark.skipif(URL is not None, reason="an engine that keeps entries is needed")
def test_entries_of_an_index_are_not_counted(table: Table) -> None:
    body = b'{"property": "color"}'
    own = ("x-tablestone-indexes", "1")
    assert table.service.send("PUT", "/Things?comp=indexes", [own], body).status == 202
    table.service.work()
    assert table.examined(f"Things()?{RED}") == (3, 3)
    table.expire()
    assert table.examined(f"Things()?{RED}") == (0, 0)
    table.insert("a", 50, color="red")
    assert table.examined(f"Things()?{RED}") == (1, 1)


@pytest.mark.skipif(URL is not None, reason="an engine that keeps entries is needed")
def test_a_scan_before_an_index_examines_no_more_than_the_page_holds(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the entries are more than a few: then at most twice the entities that are found are examined."""
    monkeypatch.setattr("tablestone.tables.index_reads.ROWS_PER_READ_MIN", 2)
    own = ("x-tablestone-indexes", "1")
    body = b'{"property": "color"}'
    assert table.service.send("PUT", "/Things?comp=indexes", [own], body).status == 202
    table.service.work()
    assert table.examined(f"Things()?{RED}") == (3, 3 + 3)
    assert table.examined(f"Things()?{RED}&$top=2") == (2, 2 + 2)
