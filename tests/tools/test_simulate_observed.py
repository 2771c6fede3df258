"""`simulate-keys --admin`: a running server's requests under other keys, and what happens without such a server."""

import json
from dataclasses import replace

import pytest

from tablestone.insight.report import DAY, HOUR, TableInsight
from tools.admin_stand_in import admin_address
from tools.data_tools import DataTools, entity
from tools.test_observed_workload import BY_DESTINATION, report


def test_the_queries_of_a_running_server_and_its_rate(tools: DataTools) -> None:
    """The shapes and the types are the server's; the rate is its busiest of the day, without what scans left out."""
    rows = [entity("p", f"{n:03}", dest=f"c{n % 7}", delay=n) for n in range(90)]
    path = tools.write_lines("flights.jsonl", rows)
    seen = report(BY_DESTINATION, points=0)
    day = replace(seen, queries={DAY: seen.queries[HOUR]}, tables=(in_day(seen.tables[0]),))
    keys = ("--partition-key", "dest", "--row-key", "{RowKey}")
    with admin_address(day.to_json()) as port:
        ran = tools.run("simulate-keys", path, *keys, "--admin", port, "--quiet", "--json")
    told = json.loads(ran.stdout)
    (query,) = told["queries"]
    assert (query["filter"], query["runs"], query["plan"]) == (
        BY_DESTINATION.filter,
        10,
        "partition",
    )
    assert told["rate"] == 300
    padded = (*keys[:3], "{delay:010}_{RowKey}")
    with admin_address(day.to_json()) as port:
        ran = tools.run("simulate-keys", path, *padded, "--admin", port, "--quiet")
    assert (
        "  A range of delay is a range of these keys only if no delay is negative.\n" in ran.stdout
    )
    assert "\n  row 1 gets PartitionKey 'c0', RowKey '0000000000_000'\n" in ran.stdout


def test_the_point_reads_of_a_running_server_are_scans_under_other_keys(tools: DataTools) -> None:
    """Nothing else in the report says that these keys break the most frequent request."""
    rows = [entity(f"p{n % 4}", f"{n:03}", city=f"c{n % 7}") for n in range(90)]
    path = tools.write_lines("rows.jsonl", rows)
    seen = report(points=752)
    table = replace(in_day(seen.tables[0]), plans={DAY: {"point": 752}})
    day = replace(seen, queries={DAY: ()}, tables=(table,))
    keys = ("--partition-key", "{city}", "--row-key", "{PartitionKey}_{RowKey}")
    with admin_address(day.to_json()) as port:
        options = ("--admin", port, "--observed", "Flights", "--quiet")
        ran = tools.run("simulate-keys", path, *keys, *options)
    assert (
        "point reads by the present keys  (752 runs)\n"
        "  now:  point, 1 entity read\n"
        "  then: table scan, 90 entities\n"
    ) in ran.stdout


def in_day(table: TableInsight) -> TableInsight:
    return replace(table, activity={}, plans={}, rates={DAY: table.rates[HOUR]})


@pytest.mark.parametrize(
    ("text", "status", "sentence"),
    [
        (b"{}", 200, "answers, but not with insight"),
        (b"no", 500, "answers, but not with insight"),
        (b"Insight is off: start the server without --insight off.", 404, "Insight is off"),
        (replace(report(), tables=()).to_json(), 200, "has seen no request of the table rows"),
    ],
)
def test_an_admin_address_without_insight_is_refused(
    tools: DataTools, text: bytes, status: int, sentence: str
) -> None:
    path = tools.write_lines("rows.jsonl", [entity("p", "r")])
    with admin_address(text, status) as port:
        ran = tools.run("simulate-keys", path, "--quiet", "--admin", port, status=1)
    assert sentence in ran.stderr


def test_an_invalid_admin_address(tools: DataTools) -> None:
    path = tools.write_lines("rows.jsonl", [entity("p", "r")])
    refused = tools.run("simulate-keys", path, "--quiet", "--admin", "x:y", status=2)
    assert "--admin must be PORT or HOST:PORT" in refused.stderr
    refused = tools.run("simulate-keys", path, "--quiet", "--observed", "T", status=2)
    assert "--observed names a table of --admin" in refused.stderr
