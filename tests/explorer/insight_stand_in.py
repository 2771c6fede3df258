"""A stand-in for the admin address of a server: it answers `/insight` with a report of known numbers.

Knows the form of the report, and nothing of how a server counts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tablestone.telemetry.insight_report import (
    PERIODS,
    TARGETS,
    Activity,
    FilterTerm,
    HeatMap,
    HeatMaps,
    InsightReport,
    KeyRange,
    PartitionActivity,
    QueryShape,
    Rate,
    Series,
    TableInsight,
)

AT = 1_795_000_000
BUCKETS = 60
AIRPORTS = ("ATL", "BOS", "EWR", "JFK", "LGA", "ORD", "SFO")
HOT, HOT_BUCKET = 3, 40
"""The range and the bucket with most operations: JFK."""
STARTS = tuple(AT - 60 * (BUCKETS - number) for number in range(BUCKETS))


def heat_map() -> HeatMap:
    """Airports that are read more towards noon, and one of them much more than the others."""
    read, written = [], []
    for bucket in range(BUCKETS):
        wave = BUCKETS // 2 - abs(bucket - HOT_BUCKET)
        row = [max(0, wave * (number + 1) * 3) for number in range(len(AIRPORTS))]
        row[HOT] = row[HOT] * 40 + (100_000 if bucket == HOT_BUCKET else 0)
        read.append(tuple(row))
        written.append(tuple(number % 3 * (bucket % 10) for number in range(len(AIRPORTS))))
    ranges = tuple(KeyRange(name, name) for name in AIRPORTS)
    return HeatMap(60, STARTS, ranges, tuple(read), tuple(written))


def report(account: str, table: str | None) -> InsightReport:
    """The report of the account, with heat maps if it is of one table."""
    activity = Activity(reads=5_000, writes=900, entities_read=2_000_000, conflicts=3)
    plans = {"table": 40, "point": 4_960}
    rate = Rate(120.0, 4_200.0, is_throttled=True)
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
        None,
        None if table is None else HeatMaps(heat, heat),
    )
    hot = PartitionActivity(account, "Weather", "JFK", True, activity, 0, rate, (0,) * BUCKETS)
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
        tables=(weather,),
        partitions=dict.fromkeys(PERIODS, (hot,)),
        unlisted=dict.fromkeys(PERIODS, 0),
        queries=dict.fromkeys(PERIODS, (scan,)),
        other_tables=Activity(),
        sizes_note="",
    )


@contextmanager
def insight_address() -> Iterator[str]:
    """The URL of a stand-in that runs."""

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
