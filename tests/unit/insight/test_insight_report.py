"""The report of insight as JSON: what is written is read again, and another object is refused."""

import json
from dataclasses import replace

import pytest

from tablestone.insight.report import (
    TARGETS,
    AccountInsight,
    Activity,
    FilterTerm,
    HeatMap,
    HeatMaps,
    HeatRange,
    InsightReport,
    PartitionActivity,
    PartitionSize,
    QueryShape,
    Rate,
    Series,
    SizeSample,
    TableInsight,
    TableSize,
)

RATE = Rate(0.5, 2500.0, is_throttled=True)
SERIES = Series(60, (0, 60), (1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (11, 12))
HEAT = HeatMap(60, (0, 60), (HeatRange("a", "b"), HeatRange("c", "c")), ((1, 2), (3, 4)), ((0, 0),))
SIZE = TableSize(
    7.5,
    2,
    9,
    900,
    (SizeSample(1.5, 8, 800),),
    (PartitionSize("a", is_key_whole=True, entities=5, bytes=5),),
    indexes={"customer": False},
)
TABLE = TableInsight(
    "weather",
    "Readings",
    {"now": Activity(reads=1)},
    {"now": {"point": 3}},
    {"now": RATE},
    SERIES,
    SERIES,
    SIZE,
    HeatMaps(HEAT, HEAT),
)
PARTITION = PartitionActivity(
    "weather",
    "Readings",
    "日本",
    is_key_whole=True,
    activity=Activity(writes=2),
    missed=1,
    rate=RATE,
    over_time=(0, 2),
)
TERM = FilterTerm("Temperature", "gt", "Edm.Double")
SHAPE = QueryShape(
    *(
        "weather",
        "Readings",
        "Temperature gt ?",
        (TERM,),
        "",
        False,
        "table",
        2,
        3,
        900,
        5,
        0.25,
        1.5,
        99.0,
    )
)
REPORT = InsightReport(
    100.5,
    1.0,
    2,
    TARGETS,
    (AccountInsight("weather", {"now": RATE}),),
    (TABLE, replace(TABLE, size=None, heat=None)),
    {"now": (PARTITION,)},
    {"now": 0},
    {"now": (SHAPE,)},
    Activity(),
    "",
)


def test_the_report_is_read_again() -> None:
    assert InsightReport.from_json(REPORT.to_json()) == REPORT


def test_members_of_a_newer_server_are_ignored() -> None:
    newer = json.loads(REPORT.to_json()) | {"weather": "fine"}
    assert InsightReport.from_json(json.dumps(newer).encode()) == REPORT


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"[]",
        b"{}",
        b'"a page of another server"',
        REPORT.to_json().replace(b'"reads":1', b'"reads":"1"'),
        REPORT.to_json().replace(b'"starts":[0,60]', b'"starts":0'),
    ],
)
def test_another_object_is_refused(other: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        InsightReport.from_json(other)
