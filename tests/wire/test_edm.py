"""Every EDM type in both directions: the texts that a client may write, and those that it reads (wire 5.3 to 5.5)."""

from typing import Any

import pytest

from spec_tables import Row
from wire.case_tables import TAG, TIME, error_of, expanded, prepare, rows
from wire.service_under_test import ServiceUnderTest

_GIVEN: Row = {"given": ['POST /Tables {"TableName":"tab"}']}


def _parameters() -> list[Any]:
    found = rows("edm.toml")
    assert len({row["id"] for row in found}) == len(found)
    assert all(row["source"] and row.keys() <= {"id", "in", "out", "source"} for row in found)
    return [pytest.param(row, id=row["id"]) for row in found]


@pytest.mark.parametrize("row", _parameters())
def test_a_value_comes_back(service: ServiceUnderTest, row: Row) -> None:
    prepare(service, _GIVEN)
    body = '{"PartitionKey":"p","RowKey":"r",' + expanded(row["in"]) + "}"
    inserted = service.send("POST", "/tab", [("Prefer", "return-no-content")], body.encode())
    if "out" not in row:
        text = "An error occurred while processing this request."
        assert error_of(inserted) == ("InvalidInput", text, "json")
        assert "cache-control" not in inserted.headers
        return
    assert inserted.status == 204, inserted
    members = "," + row["out"] if row["out"] else ""
    found = service.send("GET", "/tab()")
    tag = TAG.replace('"', '\\"')
    expected = f'"value":[{{"odata.etag":"{tag}","PartitionKey":"p","RowKey":"r","Timestamp":"{TIME}"{members}}}]}}'
    assert found.body.decode().partition(",")[2] == expected
