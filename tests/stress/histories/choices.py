"""A client's choices: which operation it sends next, so that most of them fit the entities that exist.

A client uses the ETags that it has seen. Every write has a new value, so that a read shows which write it saw.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

from stress.histories.recording import ANY_VERSION, ROWS, UNCONDITIONAL, History, Operation, Write

TRANSACTION: Final = 0.2
GET: Final = 0.3
LIST: Final = 0.1
"""The shares of transactions, point reads and queries; the rest are single writes."""
KINDS: Final = (
    *("insert", "insert", "replace", "replace", "merge"),
    *("upsert", "insert or merge", "delete"),
)
FITTING: Final = 0.7
"""How often a write fits what the client knows of the entity, and how often a conditional one names its ETag."""


class Choices:
    """The choices of one client; every draw of any client takes a new one from `values`."""

    def __init__(
        self, client: int, random: Random, values: Iterator[int], rows: int = ROWS
    ) -> None:
        self._client = client
        self._random = random
        self._values = values
        self._rows = rows
        self._versions: dict[tuple[str, int], int] = {}

    def draw(self, history: History) -> Operation:
        """The next operation on this partition."""
        draw = self._random.random()
        if draw < GET:
            return history.begin(self._client, get=self._random.randrange(self._rows))
        if draw < GET + LIST:
            return history.begin(self._client)
        count = 1
        if draw < GET + LIST + TRANSACTION:
            count = self._random.randint(2, self._rows)
        rows = self._random.sample(range(self._rows), count)
        writes = tuple(self._write(history.name, row) for row in rows)
        return history.begin(self._client, writes=writes)

    def learn(self, partition: str, operation: Operation) -> None:
        """Learn from the answer to an operation."""
        if operation.get is not None:
            self._versions[partition, operation.get] = 0
        for found in operation.rows:
            self._versions[partition, found.row] = found.version
        for write, version in zip(operation.writes, operation.done, strict=False):
            self._versions[partition, write.row] = version
        if operation.error is not None:
            self._versions[partition, operation.writes[operation.error.index].row] = 0

    def _write(self, partition: str, row: int) -> Write:
        known = self._versions.get((partition, row), 0)
        kind = self._random.choice(KINDS)
        if self._random.random() < FITTING:
            while (kind == "insert") == bool(known) and kind not in UNCONDITIONAL[1:]:
                kind = self._random.choice(KINDS)
        value = 0 if kind == "delete" else next(self._values)
        if kind in UNCONDITIONAL:
            return Write(kind, row, value)
        names_one = known and self._random.random() < FITTING
        return Write(kind, row, value, known if names_one else ANY_VERSION)
