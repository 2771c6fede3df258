"""Kill clients of the patterns while they write, then look whether what holds did hold."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from azure.data.tables import TableServiceClient

from stress.pattern_kills.worker import FAR, NEAR, TABLES, value_of
from table_patterns import IndexedTable, LargeValues, ShardedCounter

SHARDS = 3
QUIET_SECONDS = 7
"""More than the service's clocks may differ: then what was left is old enough for a sweep."""


class Run:
    """Clients of one service, which has none of the tables yet."""

    def __init__(self, connection_string: str, directory: Path, seed: int, clients: int) -> None:
        self._connection_string = connection_string
        self._directory = directory
        self._chance = random.Random(seed)
        self._clients = clients
        self._started = 0
        self.kills = 0

    def problems(self, seconds: float) -> Iterator[str]:
        """Let the clients write, and kill one after the other; returns what is wrong afterwards."""
        with TableServiceClient.from_connection_string(self._connection_string) as service:
            for name in TABLES:
                service.create_table(name)
            ShardedCounter(service.get_table_client("Counts"), "visits").create(SHARDS)
            running = [self._start() for _ in range(self._clients)]
            try:
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    time.sleep(self._chance.uniform(0.3, 1.2))
                    killed = self._chance.randrange(self._clients)
                    if running[killed].poll() is not None:
                        yield f"client {killed} ended by itself"
                    self._kill(running[killed])
                    running[killed] = self._start()
            finally:
                for each in running:
                    self._kill(each)
            time.sleep(QUIET_SECONDS)
            yield from self._wrong(service)

    def _start(self) -> subprocess.Popen[bytes]:
        self._started += 1
        journal = self._directory / f"{self._started}.jsonl"
        seed = str(self._chance.getrandbits(32))
        worker = "tests.stress.pattern_kills.worker"
        return subprocess.Popen(
            [sys.executable, "-m", worker, self._connection_string, seed, str(journal)],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONPATH": "patterns/src:tests:."},
        )

    def _kill(self, client: subprocess.Popen[bytes]) -> None:
        client.kill()
        client.wait()
        self.kills += 1

    def _wrong(self, service: TableServiceClient) -> Iterator[str]:
        notes = [
            json.loads(line)
            for journal in self._directory.glob("*.jsonl")
            for line in journal.read_text(encoding="utf-8").splitlines(keepends=True)
            if line.endswith("\n")
        ]
        self.noted = Counter(note["what"] for note in notes)
        yield from (str(note) for note in notes if note["what"] == "wrong")

        def of(what: str, member: str) -> list[Any]:
            return [note[member] for note in notes if note["what"] == what]

        counter = ShardedCounter(service.get_table_client("Counts"), "visits")
        total, least, most = (
            counter.total(),
            len(set(of("counted", "id"))),
            len(set(of("begin", "id"))),
        )
        if not least <= total <= most:
            yield f"the counter has {total}, not {least} to {most}"
        doubled = [number for number, times in Counter(of("held", "number")).items() if times > 1]
        if doubled:
            yield f"the lock was held twice with the numbers {doubled}"
        indexed = IndexedTable(service.get_table_client("Indexed"), NEAR, FAR)
        self.swept = indexed.sweep(timedelta(0))
        checked = indexed.check()
        if checked.missing or checked.wrong:
            yield f"the index differs: {checked}"
        yield from self._wrong_values(service)

    def _wrong_values(self, service: TableServiceClient) -> Iterator[str]:
        table = service.get_table_client("Values")
        values = LargeValues(table)
        stored: list[Any] = [values.get("p", row) for row in "01"]
        self.abandoned = values.sweep(older_than=timedelta(0))
        for row, value in zip("01", stored, strict=True):
            if value is not None and value != value_of(int(value[:10])):
                yield f"value {row} is not whole"
            if values.get("p", row) != value:
                yield f"the sweep has changed value {row}"
        rows = {entity["RowKey"]: entity for entity in table.list_entities()}
        parts = sum(rows[row]["Parts"] for row in "01" if row in rows)
        if len(rows) != parts + sum(row in rows for row in "01"):
            yield f"rows are left: {sorted(rows)}"

    def __str__(self) -> str:
        return (
            f"{self.kills} kills of {self._clients} clients at once; noted {dict(self.noted)}; "
            f"{self.swept} outbox rows and {self.abandoned} of values were left by the killed"
        )
