"""A client of the patterns that works until it is killed: `python -m tests.stress.pattern_kills.worker`.

It writes what it begins and what was acknowledged to a journal, a line each, before and after.
"""

import json
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from azure.core.exceptions import AzureError
from azure.data.tables import TableClient

from table_patterns import (
    Conflicts,
    IndexedTable,
    LargeValues,
    Lock,
    LockLost,
    LockNotAcquired,
    OutcomeUnknown,
    ShardedCounter,
)

NEAR = ("Name",)
FAR = ("City", "Age")
TABLES = ("Indexed", "Values", "Counts", "Locks")
SIZES = (10, 70_000, 800_000, 1_800_000)
UNKNOWN = (AzureError, OSError, Conflicts, OutcomeUnknown)
"""A write that failed so may have been carried out: it was begun, and is not acknowledged."""


def value_of(seed: int) -> bytes:
    """A value that tells whether it is whole: its seed, and what follows from that."""
    chance = random.Random(seed)
    return f"{seed:010}".encode() + chance.randbytes(chance.choice(SIZES))


class Worker:
    """The steps of one client, each drawn from the seed."""

    def __init__(self, connection_string: str, seed: int, journal: Path) -> None:
        self._chance = random.Random(seed)
        self._journal = journal.open("a", encoding="utf-8")
        tables = {
            name: TableClient.from_connection_string(
                connection_string, name, retry_backoff_factor=0.05
            )
            for name in TABLES
        }
        self._indexed = IndexedTable(tables["Indexed"], NEAR, FAR)
        self._values = LargeValues(tables["Values"])
        self._counter = ShardedCounter(tables["Counts"], "visits")
        self._lock = Lock(tables["Locks"], "guard", seconds=3)

    def work(self) -> None:
        steps = [
            self.index,
            self.index,
            self.find,
            self.count,
            self.count,
            self.hold,
            self.put,
            self.get,
        ]
        while True:
            with suppress(*UNKNOWN):
                self._chance.choice(steps)()

    def note(self, what: str, **members: Any) -> None:
        self._journal.write(json.dumps({"what": what, **members}) + "\n")
        self._journal.flush()

    def index(self) -> None:
        row = str(self._chance.randrange(6))
        if self._chance.random() < 0.2:
            self._indexed.delete("p", row)
        elif self._chance.random() < 0.1:
            self._indexed.sweep()
        else:
            values = {name: self._chance.choice("abc") for name in (*NEAR, "City")}
            age = self._chance.randrange(3)
            self._indexed.put({"PartitionKey": "p", "RowKey": row, **values, "Age": age})

    def find(self) -> None:
        name = self._chance.choice((*NEAR, "City"))
        value = self._chance.choice("abc")
        for found in self._indexed.find(name, value, "p"):
            if found[name] != value:
                self.note("wrong", of="index", name=name, found=str(found))

    def count(self) -> None:
        increment = str(UUID(int=self._chance.getrandbits(128)))
        self.note("begin", id=increment)
        self._counter.increment(1, increment)
        self.note("counted", id=increment)
        if self._chance.random() < 0.3 and self._counter.increment(1, increment):
            self.note("wrong", of="counter", id=increment)

    def hold(self) -> None:
        with suppress(LockNotAcquired, LockLost):
            held = self._lock.acquire(wait_seconds=0.2)
            self.note("held", number=held.number)
            if self._chance.random() < 0.5:
                held = self._lock.renew(held)
            if self._chance.random() < 0.8:
                self._lock.release(held)

    def put(self) -> None:
        self._values.put(
            "p", str(self._chance.randrange(2)), value_of(self._chance.randrange(10**6))
        )

    def get(self) -> None:
        value: Any = self._values.get("p", str(self._chance.randrange(2)))
        if value is not None and value != value_of(int(value[:10])):
            self.note("wrong", of="value", begins=str(value[:10]))


if __name__ == "__main__":
    Worker(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])).work()
