"""The client's CPU per entity in each step of an import of JSON lines.

    python -m bench.import_steps

Each step is timed on 100 entities, many times, by the CPU of its thread; the least is shown. Such a slice takes
milliseconds, so the figures are much the same on a busy machine. They say nothing about the server.
"""

import io
import shutil
import time
from collections.abc import Callable
from itertools import islice
from typing import Final

from bench import paths, servers
from bench.data_tools import lines
from tablestone.tools.client import Operation, TableEndpoint
from tablestone.tools.connection import Connection, Scheme
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.json_lines import read_json
from tablestone.tools.formats.rows import Reading, Row
from tablestone.tools.writing import OnConflict, TableWriter

SLICE: Final = 100
TIMES: Final = 300
TABLE: Final = "steps"


class WriterWithoutRequests(TableWriter):
    """Groups rows as an import does, and sends nothing."""

    def _submit(self, partition: str) -> None:
        self._groups.pop(partition)
        self._sizes.pop(partition)
        self._keys.clear()


def add_all(writer: TableWriter, rows: list[Row]) -> None:
    for row in rows:
        writer.add(row)


def least(step: Callable[[], object]) -> float:
    """The least CPU of a step for one entity, in microseconds."""
    found = []
    for _ in range(TIMES):
        started = time.thread_time()
        step()
        found.append(time.thread_time() - started)
    return min(found) / SLICE * 1e6


def main() -> None:
    paths.WORK.mkdir(exist_ok=True)
    with lines(100_000).open("rb") as file:
        text = b"".join(islice(file, SLICE))
    rows = [
        row
        for row in read_json(io.BytesIO(text), "x.jsonl", Reading(), ReadPosition())
        if isinstance(row, Row)
    ]
    operations = [Operation("PUT", row.key, row.body) for row in rows]
    data = paths.WORK / "import-steps"
    server = servers.start(servers.TABLESTONE, data)
    url = f"http://{server.address}{server.base_path}"
    connection = Connection(url, servers.ACCOUNT, Scheme.ACCOUNT_KEY, servers.KEY)
    try:
        with TableEndpoint(connection) as endpoint:
            endpoint.create_table(TABLE)
            writer = WriterWithoutRequests(
                endpoint, TABLE, OnConflict.FAIL, parallel=1, reject=lambda *_: None
            )
            steps: dict[str, Callable[[], object]] = {
                "a line to a row": lambda: list(
                    read_json(io.BytesIO(text), "x", Reading(), ReadPosition())
                ),
                "a row to its group": lambda: add_all(writer, rows),
                "a transaction, sent and read": lambda: endpoint.transact(TABLE, operations),
            }
            print("step                            µs of CPU for an entity")
            for name, step in steps.items():
                print(f"{name:<32}{least(step):>23.1f}", flush=True)
            writer.close()
    finally:
        server.stop()
        shutil.rmtree(data)


if __name__ == "__main__":
    main()
