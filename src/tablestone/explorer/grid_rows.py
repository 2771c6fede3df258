"""The rows of the grid: each value as the text and the kind that the grid shows. Pure.

Knows entities as the service sends them, and any of their values: a value that our types refuse is shown as it came.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import orjson

from tablestone.explorer.explored_account import property_names
from tablestone.model.edm import EdmValue, GeographyPoint
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.model.typed_json import geography_json
from tablestone.tools import odata
from tablestone.tools.client import RawEntity
from tablestone.tools.queries import shown_value

CELL_LENGTH_MAX: Final = 120
"""Characters of a value in the grid; the whole value is in the panel of the entity."""
COLUMNS_MAX: Final = 24
"""Columns that are shown unless `select` names others: a grid of 252 columns is of no help."""
_UNSEEN: Final = str.maketrans({"\n": "⏎", "\r": "␍", "\t": "⇥", "\0": "␀"})


class Cell(NamedTuple):
    """A value in the grid. `kind` is the type without `Edm.`, and empty if the property is absent."""

    text: str
    kind: str


class GridRow(NamedTuple):
    """An entity in the grid. `key` is JSON of its two keys."""

    key: str
    partition_key: str
    row_key: str
    cells: list[Cell]


ABSENT: Final = Cell("", "")


def columns_of(
    entities: Iterable[RawEntity], known: Sequence[str], selected: Sequence[str]
) -> list[str]:
    """The columns: those that are selected, or those known before and then the properties that come new."""
    if selected:
        return list(selected)
    found = dict.fromkeys(known or (PARTITION_KEY, ROW_KEY))
    most = max(COLUMNS_MAX, len(known))
    for raw in entities:
        if len(found) >= most:
            break
        found.update(dict.fromkeys(property_names(raw)))
    names = list(found)[:most]
    return names if known or not any(TIMESTAMP in raw for raw in entities) else [*names, TIMESTAMP]


def rows_of(entities: Iterable[RawEntity], columns: Sequence[str]) -> list[GridRow]:
    """The entities as rows."""
    found = []
    for raw in entities:
        partition_key, row_key = str(raw.get(PARTITION_KEY, "")), str(raw.get(ROW_KEY, ""))
        key = orjson.dumps([partition_key, row_key]).decode()
        cells = [cell_of(raw, name) for name in columns]
        found.append(GridRow(key, partition_key, row_key, cells))
    return found


def cell_of(raw: RawEntity, name: str) -> Cell:
    """A property of an entity as a cell."""
    if raw.get(name) is None:
        return ABSENT
    try:
        value = odata.property_of(raw, name)
    except ValueError:
        return Cell(_short(str(raw[name])), "Unknown")
    if value is None:
        return ABSENT
    return Cell(_short(value_as_text(value)), value.type.value.removeprefix("Edm."))


def value_as_text(value: EdmValue) -> str:
    """A value as text; a point in the form that GeoJSON gives it."""
    if isinstance(value.value, GeographyPoint):
        return geography_json(value.value)
    if isinstance(value.value, float) and math.isfinite(value.value):
        return repr(value.value)  # the shortest text of this number, as the other tools show it
    return shown_value(value)


def _short(text: str) -> str:
    if len(text) > CELL_LENGTH_MAX:
        text = text[: CELL_LENGTH_MAX - 1] + "…"
    return text.translate(_UNSEEN)
