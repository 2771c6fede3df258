"""How should SQLite lay rows out? Prints, for each layout and page size, what reads and durable inserts cost.

    python bench/engine_layout.py [--rows 40000] [--directory DIR]

Costs are processor time (other users of the machine count little) and bytes sent to the log (the disk's share, whatever
the disk). Values are of 1.4 KiB, as an entity of ten properties is; inserts are in random key order, 16 a commit.
docs/decisions/0002-sqlite-layout.md says what was chosen from these figures.
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
CACHE_KIB: Final = 16 * 1024
CHECKPOINT_BYTES: Final = 8 * 1024 * 1024

COLUMNS: Final = """
    partition BLOB NOT NULL, row BLOB NOT NULL, version INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (partition, row)
"""
LAYOUTS: Final = {
    "clustered": f"CREATE TABLE stored_rows ({COLUMNS}) STRICT, WITHOUT ROWID",
    "rowid+index": f"CREATE TABLE stored_rows ({COLUMNS}) STRICT",
}
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


def cpu_us(times: int, action: Callable[[], object]) -> float:
    """Processor time of one call, all threads and the kernel's share for this process included."""
    start = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - start) / times * 1e6


def random_keys(rows: int) -> list[StoredKey]:
    draw = random.Random(1)
    keys = [(b"account/table/%d" % (i % 4), b"%032x" % draw.getrandbits(128)) for i in range(rows)]
    draw.shuffle(keys)
    return keys


def open_database(path: Path, schema: str, page_size: int) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.pragma("page_size", page_size)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL")
    connection.pragma("cache_size", -CACHE_KIB)
    connection.wal_autocheckpoint(CHECKPOINT_BYTES // page_size)
    connection.execute(schema)
    return connection


def measure(path: Path, schema: str, page_size: int, rows: int) -> Costs:
    writer = open_database(path, schema, page_size)
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
    keys = random_keys(rows)
    groups = iter([keys[start : start + GROUP] for start in range(0, rows, GROUP)])

    def insert_group() -> None:
        writer.execute("BEGIN IMMEDIATE")
        for key in next(groups):
            writer.execute(INSERT, (*key, VALUE))
        writer.execute("COMMIT")

    insert_us = cpu_us(rows // GROUP, insert_group) / GROUP
    reader = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    reader.pragma("cache_size", -CACHE_KIB)
    cursor = reader.cursor()

    def read_page() -> None:
        partition = b"account/table/%d" % random.randrange(4)
        found = cursor.execute(PAGE, (partition, b"%x" % random.randrange(8), PAGE_ROWS)).fetchall()
        assert len(found) == PAGE_ROWS

    point_us = cpu_us(20_000, lambda: cursor.execute(POINT, random.choice(keys)).get)
    page_us = cpu_us(300, read_page)
    reader.close()
    writer.close()
    return Costs(
        point_us, page_us, insert_us, log_pages * page_size / rows, path.stat().st_size / rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Costs of SQLite's layouts.")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--directory", type=Path, help="where to make the databases")
    arguments = parser.parse_args()
    print(f"SQLite {apsw.sqlite_lib_version()}, {arguments.rows} rows of {len(VALUE)} bytes")
    print("layout       page   point us   page us   insert us   log bytes/row   file bytes/row")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        for name, schema in LAYOUTS.items():
            for page_size in (4096, 8192, 16384, 32768):
                path = Path(directory) / f"{name}-{page_size}.db"
                costs = measure(path, schema, page_size, arguments.rows)
                print(
                    f"{name:11} {page_size:5} {costs.point_us:10.1f} {costs.page_us:9.0f} "
                    f"{costs.insert_us:11.1f} {costs.log_bytes:15.0f} {costs.file_bytes:16.0f}",
                    flush=True,
                )
                path.unlink()


if __name__ == "__main__":
    main()
