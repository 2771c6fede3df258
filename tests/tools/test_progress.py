"""The progress of a transfer as a person sees it, and how Ctrl-C ends it."""

import io
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from server_process import ServerProcess
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.reading_file import read_rows
from tablestone.tools.formats.rows import Reading
from tablestone.tools.importing import Import, RejectFile
from tablestone.tools.progress import PlainLines, Progress, Reached, shown_bytes, shown_seconds
from tablestone.tools.writing import OnConflict
from tools.data_tools import DataTools, entity
from tools.faulty_service import BUSY, faulty_service


def test_a_line_every_few_seconds() -> None:
    moments: Iterator[float] = iter([0.0, 1.0, 6.0, 7.0, 12.0])
    stream = io.StringIO()
    lines = PlainLines("import Weather", stream, lambda: next(moments))
    lines.update(Reached(100, 2048))
    lines.update(Reached(600, 5 * 1024 * 1024, errors=2, position=25, length=100))
    lines.update(Reached(700, 0))
    lines.update(Reached(1300, 6 * 1024 * 1024, earlier=100))
    assert stream.getvalue().splitlines() == [
        "import Weather: 600 entities, 5.0 MiB, 100/s, 18 s left, 2 rejected",
        "import Weather: 1,300 entities, 6.0 MiB, 100/s",
    ]


def test_a_line_of_bytes() -> None:
    moments: Iterator[float] = iter([0.0, 10.0])
    stream = io.StringIO()
    lines = PlainLines("backup", stream, lambda: next(moments), counted="")
    lines.update(Reached(0, 1024, position=1024, length=4096))
    assert stream.getvalue() == "backup: 1.0 KiB of 4.0 KiB, 30 s left\n"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**40 * 3, "3.0 TiB")]
)
def test_a_size(size: int, text: str) -> None:
    assert shown_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_a_time(seconds: float, text: str) -> None:
    assert shown_seconds(seconds) == text


def test_the_position_is_that_of_the_rows_that_were_handed_on(tmp_path: Path) -> None:
    """A file of this size is read at once; half of its rows later, half of it is done."""
    csv, document = tmp_path / "x.csv", tmp_path / "x.json"
    csv.write_text("PartitionKey,RowKey\n" + "".join(f"p,{n:05}\n" for n in range(20_000)))
    document.write_bytes(orjson.dumps([entity("p", f"{n:05}") for n in range(20_000)]))
    for path in (csv, document):
        position = ReadPosition()
        rows = read_rows(str(path), Reading(), None, position)
        for _ in range(10_000):
            next(rows)
        assert position.size == path.stat().st_size
        assert 0.4 < position.position / position.size < 0.55
        assert sum(1 for _ in rows) == 10_000
        assert position.position == position.size


class Told(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.reached: list[Reached] = []

    def update(self, reached: Reached) -> None:
        self.reached.append(reached)


def test_an_import_of_many_partitions_is_as_far_as_its_rows_are_stored(
    tools: DataTools, table: str, tmp_path: Path
) -> None:
    """The file is read long before: each partition has one row, so no group of rows is full."""
    path = tmp_path / "x.csv"
    path.write_text("PartitionKey,RowKey\n" + "".join(f"{n:04},r\n" for n in range(500)))
    told, position = Told(), ReadPosition()
    with TableEndpoint(parse_connection_string(tools.connection_string)) as endpoint:
        run = Import(
            endpoint,
            table,
            OnConflict.FAIL,
            parallel=2,
            journal=None,
            rejects=RejectFile(tmp_path / "rejects", 0),
            progress=told,
        )
        run.run(read_rows(str(path), Reading(), None, position), position)
    assert len({each.entities for each in told.reached}) > 250
    for each in told.reached:
        assert each.position / path.stat().st_size <= each.entities / 500 + 0.01
    assert told.reached[-1].entities == 500
    assert told.reached[-1].position == path.stat().st_size


def test_ctrl_c_says_how_to_go_on(
    tools: DataTools, table: str, tablestone_server: ServerProcess
) -> None:
    """A service that is busy from the third transaction on keeps the import from ending."""
    entities = [entity("p", f"{number:05}") for number in range(1000)]
    path = tools.write_lines("a.jsonl", entities)
    tools.run("tables", "--create", table)
    direct = tools.connection_string
    transactions: list[str] = []
    is_well: list[bool] = []

    def busy_later(_number: int, _method: str, target: str) -> str | None:
        transactions.extend([target] if "$batch" in target else [])
        is_busy = "$batch" in target and len(transactions) > 2 and not is_well
        return BUSY if is_busy else None

    with faulty_service(tablestone_server.address, busy_later) as service:
        tools.connection_string = direct.replace(
            f":{tablestone_server.address[1]}/", f":{service.port}/"
        )
        process = tools.start("import", path, table, "--quiet")
        deadline = time.monotonic() + 30
        while service.done == [] and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 130
        assert stderr.strip() == "tablestone: Stopped. The same command continues after row 0."
        is_well.append(True)
        told = tools.run("import", path, table, "--quiet").stdout
    tools.connection_string = direct
    assert told.startswith("1,000 entities stored in ")
    assert tools.all_of(table) == entities
