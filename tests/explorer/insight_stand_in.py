"""A stand-in for a server's admin address: it answers `/insight` with a report of known numbers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import sin
from urllib.parse import parse_qs, urlsplit

from tablestone.insight.report import (
    PERIODS,
    TARGETS,
    Activity,
    FilterTerm,
    HeatMap,
    HeatMaps,
    HeatRange,
    InsightReport,
    PartitionActivity,
    QueryShape,
    Rate,
    Series,
    TableInsight,
    TableSize,
)

AT = 1_795_000_000
BUCKETS = 60
AIRPORTS = (
    *("ATL", "AUS", "BNA", "BOS", "CLT", "DEN", "DFW", "DTW", "EWR", "FLL", "HNL", "IAD", "IAH"),
    *("JFK", "LAS", "LAX", "LGA", "MIA", "MSP", "ORD", "PHL", "PHX", "SEA", "SFO", "SLC", "TPA"),
)
HOT = AIRPORTS.index("JFK")
HOT_BUCKET = 40
"""The time with the most operations, at JFK."""
STARTS = tuple(AT - 60 * (BUCKETS - number) for number in range(BUCKETS))


def heat_map() -> HeatMap:
    """Reads of airports in waves, one airport much more than the others, and writes that move from key to key."""
    read, written = [], []
    for bucket in range(BUCKETS):
        row = [
            round(400 * (1.2 + sin(bucket / 9 + number / 2)) * (1 + number * 7 % 5))
            for number in range(len(AIRPORTS))
        ]
        row[HOT] += 42_500 if 24 <= bucket < 50 else 2_000
        row[HOT] += 101_319 if bucket == HOT_BUCKET else 0  # 2,400 a second in that minute
        read.append(tuple(row))
        written.append(
            tuple(
                15_000 if number == bucket * len(AIRPORTS) // BUCKETS else 20
                for number in range(len(AIRPORTS))
            )
        )
    ranges = tuple(HeatRange(name, name) for name in AIRPORTS)
    scanned = tuple(40_000 if bucket % 7 == 3 else 0 for bucket in range(BUCKETS))
    return HeatMap(60, STARTS, ranges, tuple(read), tuple(written), scanned)


def report(account: str, table: str | None) -> InsightReport:
    """The report of the account, or of one table with its heat maps."""
    activity = Activity(reads=5_000, writes=900, entities_read=7_400_000, conflicts=3)
    of_hot = Activity(reads=1_500, writes=900, entities_read=2_000_000, entities_returned=2_000_000)
    of_calm = replace(of_hot, reads=300, entities_read=190_000)
    plans = {"table": 40, "point": 4_960}
    rate = Rate(120.0, 4_200.0, is_throttled=True, busiest_minute=2_400.0)
    flat = Series(60, STARTS, *((0,) * BUCKETS for _ in range(6)))
    heat = heat_map()
    weather = TableInsight(
        account,
        "Weather",
        dict.fromkeys(PERIODS, activity),
        dict.fromkeys(PERIODS, plans),
        dict.fromkeys(PERIODS, rate),
        flat,
        flat,
        TableSize(AT, len(AIRPORTS), 7_942, 1_468_006, (), ()),
        None if table is None else HeatMaps(heat, heat),
    )
    few = dict.fromkeys(PERIODS, Activity(reads=120, writes=40, entities_read=4_000))
    others = [
        replace(
            weather, table=name, activity=few, size=TableSize(AT, 16, count, count * 180, (), ())
        )
        for name, count in (("Flights", 842), ("Airports", 86))
    ]
    hot = PartitionActivity(account, "Weather", "JFK", True, of_hot, 0, rate, (0,) * BUCKETS)
    slow = Rate(30.0, 410.0, is_throttled=False, busiest_minute=60.0)
    calm = replace(hot, partition_key="EWR", activity=of_calm, rate=slow)
    term = FilterTerm("temp", "gt", "Edm.Double")
    scan = QueryShape(
        *(account, "Weather", "temp gt ?", (term,), "", False, "table", 40, 160),
        *(1_000_000, 400, 3.5, 20.0, 41.5),
    )
    return InsightReport(
        at=AT,
        started=AT - 3600,
        workers=2,
        targets=TARGETS,
        accounts=(),
        tables=(weather, *others) if table is None else (weather,),
        partitions=dict.fromkeys(PERIODS, (hot, calm)),
        unlisted=dict.fromkeys(PERIODS, 0),
        queries=dict.fromkeys(PERIODS, (scan,)),
        other_tables=Activity(),
        sizes_note="",
    )


@contextmanager
def insight_address() -> Iterator[str]:
    """The URL of a running stand-in."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = parse_qs(urlsplit(self.path).query)
            table = given.get("table", [None])[0]
            body = report(given["account"][0], table).to_json()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
