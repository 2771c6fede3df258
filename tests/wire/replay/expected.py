"""The exchanges that differ on purpose, read from `expected_differences.toml`, which may only get shorter."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

EXPECTED_DIFFERENCES = Path(__file__).with_name("expected_differences.toml")


@dataclass(frozen=True)
class ExpectedDifference:
    """An exchange by name, all the places where it differs, and why that is right."""

    exchange: str
    where: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class ExpectedDifferences:
    at_most: int
    entries: tuple[ExpectedDifference, ...]

    def of(self, exchange: str) -> ExpectedDifference | None:
        return next((entry for entry in self.entries if entry.exchange == exchange), None)


def expected_differences() -> ExpectedDifferences:
    table = tomllib.loads(EXPECTED_DIFFERENCES.read_text())
    entries = tuple(
        ExpectedDifference(row["exchange"], tuple(row["where"]), row["reason"])
        for row in table.get("difference", [])
    )
    return ExpectedDifferences(table["at_most"], entries)
