"""How should SQLite lay rows out? Prints the cost of reads and durable inserts for each layout and page size.

    python bench/engine_layout.py [--rows 40000] [--directory DIR] [--layouts NAME …] [--page-sizes BYTES …]

Values have 1.4 KiB, like an entity of ten properties; 16 inserts are one commit, in random or in key order.
Times are processor time, of reads the least of many (other users of the machine count little); bytes sent to the
log and the database are the disk's share, whatever the disk: use --directory to name one that is not slow.
docs/decisions/0002-sqlite-layout.md says which layout was chosen from these figures.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable

VALUE: Final = b"x" * 1400
GROUP: Final = 16
PAGE_ROWS: Final = 1000
CACHE_KIB: Final = 32 * 1024
CHECKPOINT_BYTES: Final = 8 * 1024 * 1024

COLUMNS: Final = """
    partition BLOB NOT NULL, row BLOB NOT NULL, version INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (partition, row)
"""
LAYOUTS: Final = {
    "clustered": f"CREATE TABLE stored_rows ({COLUMNS}) STRICT, WITHOUT ROWID",
    "rowid+index": f"CREATE TABLE stored_rows ({COLUMNS}) STRICT",
    "rowid+index, vacuum": f"CREATE TABLE stored_rows ({COLUMNS}) STRICT",
}
"""The last has incremental auto-vacuum: the file can shrink."""
POINT: Final = "SELECT value FROM stored_rows WHERE partition = ? AND row = ?"
PAGE: Final = """
SELECT partition, row, value FROM stored_rows
WHERE partition = ? AND row >= ? ORDER BY row LIMIT ?
"""
INSERT: Final = "INSERT INTO stored_rows VALUES (?, ?, 1, ?)"

StoredKey = tuple[bytes, bytes]


class Costs(NamedTuple):
    point_us: float
    page_us: float
    insert_us: float
    log_bytes: float
    file_bytes: float


def cpu_us(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return (time.process_time() - start) * 1e6


def least_us(times: int, action: Callable[[], object]) -> float:
    least = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        action()
        least = min(least, time.perf_counter() - start)
    return least * 1e6


def keys_to_insert(rows: int, order: str) -> list[StoredKey]:
    draw = random.Random(1)
    keys = [(b"account/table/%d" % (i % 4), b"%032x" % draw.getrandbits(128)) for i in range(rows)]
    return sorted(keys) if order == "ordered" else keys


def open_database(path: Path, layout: str, page_size: int) -> apsw.Connection:
    has_vacuum = layout.endswith("vacuum")
    connection = apsw.Connection(str(path))
    connection.pragma("page_size", page_size)
    connection.pragma("auto_vacuum", 2 if has_vacuum else 0)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL")
    connection.pragma("cache_size", -CACHE_KIB)
    connection.wal_autocheckpoint(CHECKPOINT_BYTES // page_size)
    connection.execute(LAYOUTS[layout])
    return connection


def measure(path: Path, layout: str, page_size: int, keys: list[StoredKey]) -> Costs:
    writer = open_database(path, layout, page_size)
    log_pages = 0
    log_pages_seen = 0

    def count_log_pages(connection: apsw.Connection, database: str, pages: int) -> int:
        nonlocal log_pages, log_pages_seen
        log_pages += pages - log_pages_seen
        log_pages_seen = pages
        if pages >= CHECKPOINT_BYTES // page_size:
            connection.wal_checkpoint(database, apsw.SQLITE_CHECKPOINT_PASSIVE)
            log_pages_seen = 0
        return apsw.SQLITE_OK

    writer.set_wal_hook(count_log_pages)
    rows = len(keys)

    def insert() -> None:
        for start in range(0, rows, GROUP):
            writer.execute("BEGIN IMMEDIATE")
            for key in keys[start : start + GROUP]:
                writer.execute(INSERT, (*key, VALUE))
            writer.execute("COMMIT")

    insert_us = cpu_us(insert) / rows
    reader = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    reader.pragma("cache_size", -CACHE_KIB)
    cursor = reader.cursor()

    def read_page() -> None:
        partition = b"account/table/%d" % random.randrange(4)
        found = cursor.execute(PAGE, (partition, b"%x" % random.randrange(8), PAGE_ROWS)).fetchall()
        assert len(found) == PAGE_ROWS

    point_us = least_us(20_000, lambda: cursor.execute(POINT, random.choice(keys)).get)
    page_us = least_us(300, read_page)
    reader.close()
    writer.close()
    return Costs(
        point_us, page_us, insert_us, log_pages * page_size / rows, path.stat().st_size / rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Costs of SQLite's layouts.")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--page-sizes", nargs="+", type=int, default=[4096, 8192, 16384, 32768])
    parser.add_argument("--directory", type=Path, help="where to make the databases")
    arguments = parser.parse_args()
    print(f"SQLite {apsw.sqlite_lib_version()}, {arguments.rows} rows of {len(VALUE)} bytes")
    print(
        "inserts  layout               page   point us   page us   insert us   log B/row   file B/row"
    )
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        for order in ("random", "ordered"):
            keys = keys_to_insert(arguments.rows, order)
            for name in arguments.layouts:
                for page_size in arguments.page_sizes:
                    path = Path(directory) / f"{name}-{page_size}.db"
                    costs = measure(path, name, page_size, keys)
                    print(
                        f"{order:8} {name:19} {page_size:5} {costs.point_us:10.1f} "
                        f"{costs.page_us:9.0f} {costs.insert_us:11.1f} {costs.log_bytes:11.0f} "
                        f"{costs.file_bytes:12.0f}",
                        flush=True,
                    )
                    path.unlink()


if __name__ == "__main__":
    main()
