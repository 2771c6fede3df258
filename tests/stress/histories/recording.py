"""Records histories: each operation of each client with its call, its answer, and the time of both.

A history is of one partition. Threads add to it concurrently. `historychecker/history.go` reads its lines.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

ROWS: Final = 5
"""The rows of a partition; the checker supports up to eight."""
ANY_VERSION: Final = -1
UNCONDITIONAL: Final = ("insert", "upsert", "insert or merge")
"""The kinds of writes without a condition on a version. The others are replace, merge and delete."""


class Write(NamedTuple):
    """A write of one row, alone or in a transaction; `version` is the one in If-Match, `ANY_VERSION` for *."""

    kind: str
    row: int
    value: int = 0
    version: int = 0


class Found(NamedTuple):
    """An entity as a read saw it; 0 for a property that it lacks."""

    row: int
    n: int
    m: int
    version: int


@dataclass(frozen=True)
class Refusal:
    """The first write that was refused, and why: exists, missing or condition."""

    index: int
    why: str


@dataclass
class Operation:
    """One operation of one client. `returned` is None until there is an answer."""

    client: int
    called: int
    get: int | None = None
    writes: tuple[Write, ...] = ()
    returned: int | None = None
    rows: list[Found] = field(default_factory=list)
    until: int | None = None
    done: list[int] = field(default_factory=list)
    error: Refusal | None = None

    @property
    def is_list(self) -> bool:
        return self.get is None and not self.writes

    def document(self) -> dict[str, Any]:
        """The operation as the checker reads it."""
        told: dict[str, Any] = {"client": self.client, "call": self.called, "return": self.returned}
        if self.writes:
            told["writes"] = [
                {"kind": kind, "row": row, "value": value, "if": version}
                for kind, row, value, version in self.writes
            ]
            told["done"] = self.done
            told["error"] = self.error and asdict(self.error)
        else:
            told |= {"list": True} if self.is_list else {"get": self.get}
            told["rows"] = [found._asdict() for found in self.rows]
            told["until"] = self.until
        return told


class History:
    """The operations on one partition, without those that can have changed nothing and saw nothing."""

    def __init__(self, name: str, now: Callable[[], int] = time.monotonic_ns) -> None:
        self.name = name
        self._now = now
        self.operations: list[Operation] = []
        self.begun = 0

    def begin(
        self, client: int, *, get: int | None = None, writes: tuple[Write, ...] = ()
    ) -> Operation:
        """Add an operation that is about to be sent."""
        self.begun += 1
        return Operation(client, self._now(), get, writes)

    def answered(self, operation: Operation) -> None:
        """The answer is there, and is in the operation."""
        operation.returned = self._now()
        self.operations.append(operation)

    def unanswered(self, operation: Operation) -> None:
        """There is no answer, or one that leaves the outcome open. A read is forgotten."""
        if operation.writes:
            self.operations.append(operation)

    def line(self) -> str:
        """The history as the checker reads it."""
        operations = [operation.document() for operation in self.operations]
        return json.dumps({"name": self.name, "operations": operations})
