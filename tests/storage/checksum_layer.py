"""A program for `test_checksum_layer`: flips bits below SQLite's own checksum layer, and prints what it notices.

Loading the layer makes it the default for the whole process, so this runs in a process of its own.
"""

import json
import os
import random
from contextlib import suppress
from pathlib import Path

import apsw
import apsw.sqlite_extra

PAGE_BYTES = 8192
ROWS = 300
VALUES = {b"%06d" % n: b"v%06d" % n * (60 if n % 20 else 4_000) for n in range(ROWS)}
KEY = b"000150"
READ = "SELECT b FROM t WHERE k = ?"
DATABASE = Path("x.db")


def made() -> apsw.Connection:
    """A new database with checksums, whose pages are all in its log."""
    for path in (DATABASE, Path("x.db-wal"), Path("x.db-shm")):
        path.unlink(missing_ok=True)
    connection = apsw.Connection(os.fspath(DATABASE))
    connection.pragma("page_size", PAGE_BYTES)
    connection.reserve_bytes(reserve=8)
    connection.pragma("journal_mode", "wal")
    connection.wal_autocheckpoint(0)
    connection.execute("CREATE TABLE t (k BLOB PRIMARY KEY, b BLOB)")
    with connection:
        connection.executemany("INSERT INTO t VALUES (?, ?)", VALUES.items())
    return connection


def copied(connection: apsw.Connection) -> None:
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()


def judged(keys: list[bytes]) -> dict[str, object]:
    """Whether a check finds damage, and how many reads of these keys are wrong."""
    found, wrong = True, 0
    connection = apsw.Connection(os.fspath(DATABASE))
    with suppress(apsw.Error):
        found = connection.execute("PRAGMA integrity_check").get != "ok"
    for key in keys:
        try:
            wrong += connection.execute(READ, (key,)).get != VALUES[key]
        except apsw.Error:
            continue
    connection.close()
    return {"found": found, "wrong": wrong}


def flip(path: Path, place: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def main() -> None:
    loader = apsw.Connection(":memory:")
    loader.enable_load_extension(True)
    apsw.sqlite_extra.load(loader, "cksumvfs")
    draw = random.Random(19)
    copied(made())
    whole = DATABASE.read_bytes()
    pages = []
    for page in range(0, len(whole), PAGE_BYTES):
        DATABASE.write_bytes(whole)
        flip(DATABASE, page + draw.randrange(PAGE_BYTES), draw.randrange(8))
        pages.append(judged(list(VALUES)))
    told: dict[str, object] = {"pages": pages}

    connection = made()
    log = Path("x.db-wal").read_bytes()
    with Path("x.db-wal").open("r+b") as file:
        file.seek(log.index(VALUES[KEY]) + 20)
        file.write(bytes([log[log.index(VALUES[KEY]) + 20] ^ 1]))
    told["log"] = judged([KEY])
    copied(connection)
    told["copied log"] = judged([KEY])

    copied(made())
    flip(DATABASE, 20, 3)  # the byte that says that there are checksums
    flip(DATABASE, DATABASE.read_bytes().index(VALUES[KEY]) + 20)
    told["turned off"] = judged([KEY])["wrong"]
    print(json.dumps(told))


if __name__ == "__main__":
    main()
