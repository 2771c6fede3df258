"""The properties of a table with their types. CSV and Parquet need them before their first row.

Collected while entities are read; can be kept in a journal. Knows typed values; does not know files.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from tablestone.model.edm import EdmType
from tablestone.transfer import odata
from tablestone.transfer.formats.rows import TYPE_NAMES
from tablestone.transfer.refusals import TransferFailed


class Mixed(enum.Enum):
    """The column for a property that has values of several types."""

    FAIL = "fail"
    COLUMNS = "columns"


class Columns:
    """The (property, type) pairs seen so far, with how often, and of times the range and the finest digit."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._seen: dict[tuple[str, EdmType], list[int]] = {
            (name, EdmType(kind)): list(numbers)
            for name, kind, numbers in (state or {}).get("columns", [])
        }

    def state(self) -> dict[str, Any]:
        """The columns as a journal stores them."""
        return {"columns": [(name, kind.value, seen) for (name, kind), seen in self._seen.items()]}

    def add(self, raw: Mapping[str, Any]) -> None:
        """Look at an entity as the service sent it."""
        for name in raw:
            if not odata.is_property(name):
                continue
            value = odata.property_of(raw, name)
            if value is None:
                continue
            seen = self._seen.get((name, value.type))
            if seen is None:
                seen = self._seen[name, value.type] = [0, 0, 0, 0]
            if value.type is EdmType.DATE_TIME:
                assert isinstance(value.value, int)
                seen[1] = min(seen[1], value.value) if seen[0] else value.value
                seen[2] = max(seen[2], value.value)
                seen[3] = max(seen[3], int(value.value % 10 != 0))
            seen[0] += 1

    def pairs(self, mixed: Mixed) -> list[tuple[str, EdmType]]:
        """The columns by name; `TransferFailed` for a property of several types, unless each gets a column."""
        pairs = sorted(self._seen, key=lambda pair: (pair[0], pair[1].value))
        by_name: dict[str, list[EdmType]] = {}
        for name, kind in pairs:
            by_name.setdefault(name, []).append(kind)
        for name, kinds in by_name.items():
            if len(kinds) > 1 and mixed is Mixed.FAIL:
                told = " and ".join(
                    f"{self._seen[name, kind][0]:,} of {kind.value}" for kind in kinds
                )
                raise TransferFailed(
                    f"{name} has values of several types: {told}. --mixed columns gives each type a column of its own."
                )
        return pairs

    def titles(self, mixed: Mixed) -> list[tuple[str, str, EdmType, list[int]]]:
        """Title, property, type and numbers of each column, for a format whose columns need different names."""
        pairs = self.pairs(mixed)
        names = [name for name, _ in pairs]
        return [
            (
                f"{name}:{_short(kind)}" if names.count(name) > 1 else name,
                name,
                kind,
                self._seen[name, kind],
            )
            for name, kind in pairs
        ]


def _short(kind: EdmType) -> str:
    return next(name for name, each in TYPE_NAMES.items() if each is kind)
