"""The rows of a damaged database: each row outside the damaged pages is recovered, and lost ones are named."""

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tablestone.engines.contract import Key, StoredRow
from tablestone.engines.kind import Opening
from tablestone.engines.sqlite import salvage
from tablestone.engines.sqlite.data_directory import PAGE_SIZE_BYTES, DataDirectory
from tablestone.engines.sqlite.salvage import SalvagedRows, StoredPages, damaged_storage

ROWS = 3_000
SEEDS = range(25)
INSERT = "INSERT INTO stored_rows VALUES (?, ?, ?, ?)"


def rows_to_store() -> list[StoredRow]:
    """Rows of many lengths: some values, and some keys, need overflow pages."""
    draw = random.Random(7)
    rows = []
    for number in range(ROWS):
        length = draw.choice((20, 300, 1_000, 1_400, 9_000, 30_000 if number % 50 == 0 else 100))
        key = b"%06d" % (number * 7919 % ROWS) + b"k" * (3_000 if number % 200 == 0 else 0)
        rows.append(StoredRow(b"p%d" % (number % 5), key, number + 1, draw.randbytes(length)))
    return rows


STORED = rows_to_store()


@pytest.fixture(scope="module", params=["closed", "with a log"])
def healthy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the rows, and with free pages that still hold deleted rows."""
    data = tmp_path_factory.mktemp("healthy") / "data"
    directory = DataDirectory(data, Opening.SHARED)
    with closing(directory.connect_writer()) as writer:
        with writer:
            writer.execute("SELECT 1")
            for each in STORED:
                writer.execute(INSERT, each)
                if each.version % 2:
                    writer.execute(INSERT, (b"deleted", b"%d" % each.version, 1, b"x" * 1_000))
        with writer:
            writer.execute("DELETE FROM stored_rows WHERE partition = ?", (b"deleted",))
        if request.param == "with a log":
            copy = tmp_path_factory.mktemp("copied")
            for path in data.iterdir():
                (copy / path.name).write_bytes(path.read_bytes())
            assert (copy / "tablestone.db-wal").stat().st_size > 100 * PAGE_SIZE_BYTES
            data = copy
    directory.close()
    return data


def pages_of_rows(data: Path) -> dict[int, set[Key]]:
    """The keys of the rows on each page, from a walk over the healthy pages."""
    found: dict[int, set[Key]] = {}
    pages = StoredPages(data)
    salvaged = SalvagedRows(pages)
    take_apart = salvage.take_apart
    last = 0

    def note(number: int, content: bytes | None, usable: int) -> salvage.TreePage:
        nonlocal last
        last = number
        return take_apart(number, content, usable)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(salvage, "take_apart", note)
        before: set[int] = set()
        for _place, row in salvaged.rows():
            key = Key(row.partition, row.row)
            continued = salvaged._seen - before - {last}
            before = set(salvaged._seen)
            for number in {last, *(each for each in continued if len(row.value) > 4_000)}:
                found.setdefault(number, set()).add(key)
    pages.close()
    return found


@pytest.fixture(scope="module")
def keys_on_page(healthy: Path) -> dict[int, set[Key]]:
    return pages_of_rows(healthy)


@pytest.fixture
def data(healthy: Path, tmp_path: Path) -> Path:
    for path in healthy.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def read(data: Path) -> tuple[dict[Key, StoredRow], set[Key], SalvagedRows]:
    with damaged_storage(data) as storage:
        found: dict[Key, StoredRow] = {}
        for _place, row in storage.rows():
            key = Key(row.partition, row.row)
            assert key not in found, "each row comes once"
            found[key] = row
        return found, set(storage.lost_keys()), storage


def places_of(data: Path) -> Callable[[int], tuple[Path, int]]:
    """The byte offsets of a page."""
    pages = StoredPages(data)
    pages.close()

    def place(number: int) -> tuple[Path, int]:
        in_log = pages.log.offsets.get(number)
        if in_log is not None:
            return data / "tablestone.db-wal", in_log
        return data / "tablestone.db", (number - 1) * PAGE_SIZE_BYTES

    return place


WHOLE = {Key(row.partition, row.row): row for row in STORED}


def test_healthy_pages_give_every_row_and_no_other(data: Path) -> None:
    found, lost, storage = read(data)
    assert found == WHOLE
    assert lost == set()
    assert (storage.damaged_pages, storage.is_complete, storage.uncertain_rows) == (set(), True, 0)


def flip(path: Path, at: int, count: int, draw: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        content = bytearray(file.read(count))
        for place in range(count):
            content[place] ^= draw.randrange(1, 256)
        file.seek(at)
        file.write(content)


@pytest.mark.slow
@pytest.mark.parametrize("healthy", ["closed"], indirect=True)
@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_bytes_in_random_pages_cost_only_the_rows_on_them(
    data: Path, keys_on_page: dict[int, set[Key]], seed: int
) -> None:
    draw = random.Random(seed)
    place = places_of(data)
    pages = (data / "tablestone.db").stat().st_size // PAGE_SIZE_BYTES
    damaged = draw.sample(range(2, pages + 1), draw.choice((1, 3, 10)))
    on_them: set[Key] = set()
    for number in damaged:
        path, at = place(number)
        count = draw.choice((1, 20, 500, PAGE_SIZE_BYTES))
        flip(path, at + draw.randrange(PAGE_SIZE_BYTES - count + 1), count, draw)
        on_them |= keys_on_page.get(number, set())
    found, lost, storage = read(data)
    for key in WHOLE.keys() - on_them:
        assert found.get(key) == WHOLE[key], (seed, damaged)
    if keys_on_page.keys() >= set(damaged):  # the index is intact
        assert storage.is_complete
        assert lost <= on_them
        # Each row was read, or is named, or its key is damaged, which its value may reveal.
        assert len(WHOLE.keys() - found.keys() - lost) == len(found.keys() - WHOLE.keys())


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("healthy", ["closed"], indirect=True)
def test_without_a_first_page_nothing_else_is_lost(data: Path, number: int) -> None:
    """The header and the schema, the pointer map, and the roots of the table and of the index."""
    flip(data / "tablestone.db", (number - 1) * PAGE_SIZE_BYTES, PAGE_SIZE_BYTES, random.Random(1))
    found, lost, storage = read(data)
    assert {key: found.get(key) for key in WHOLE} == WHOLE
    assert lost == set()
    if number < 4:
        assert set(found) == set(WHOLE), "deleted rows stay deleted, because the index tells"
    assert storage.is_complete is (number != 4)


@pytest.mark.parametrize("healthy", ["with a log"], indirect=True)
def test_a_log_counts_up_to_its_first_damaged_byte(data: Path) -> None:
    """As SQLite does: the commits before the damage are complete."""
    connection = apsw.Connection(str(data / "tablestone.db"), apsw.SQLITE_OPEN_READONLY)
    before = connection.execute("SELECT count(*) FROM stored_rows").get
    connection.close()
    assert before == ROWS
    log = data / "tablestone.db-wal"
    flip(log, log.stat().st_size - 4_000, 1, random.Random(1))  # in the last commit, the deletions
    found, _lost, _storage = read(data)
    assert len(found) > ROWS
    assert {key: found[key] for key in WHOLE} == WHOLE
    (data / "tablestone.db-shm").unlink()
    connection = apsw.Connection(str(data / "tablestone.db"))
    assert connection.execute("SELECT count(*) FROM stored_rows").get == len(found)
    connection.close()


@pytest.mark.parametrize("healthy", ["closed"], indirect=True)
def test_a_file_that_was_cut_gives_the_rows_that_are_left(
    data: Path, keys_on_page: dict[int, set[Key]]
) -> None:
    database = data / "tablestone.db"
    pages = database.stat().st_size // PAGE_SIZE_BYTES
    left = pages // 2
    with database.open("r+b") as file:
        file.truncate(left * PAGE_SIZE_BYTES)
    gone = {key for number, keys in keys_on_page.items() if number > left for key in keys}
    found, _lost, _storage = read(data)
    assert set(found) >= set(WHOLE) - gone
    assert gone


@pytest.mark.slow
@pytest.mark.parametrize("healthy", ["closed"], indirect=True)
def test_random_bytes_never_raise_anything_else(data: Path) -> None:
    draw = random.Random(3)
    database = data / "tablestone.db"
    size = database.stat().st_size
    for _ in range(30):
        for _ in range(20):
            flip(database, draw.randrange(size - 4), 4, draw)
        read(data)
    database.write_bytes(draw.randbytes(size))
    assert read(data)[0] == {}
