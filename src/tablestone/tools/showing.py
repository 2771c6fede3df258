"""Entities for a person or a program: a table on a terminal, JSON lines, CSV with types, or YAML.

Knows values and how each type looks; does not know where entities come from.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tools import odata
from tablestone.tools.client import RawEntity
from tablestone.tools.exporting import csv_lines, spooled
from tablestone.tools.formats.compressed import CompressedAppender
from tablestone.tools.formats.json_lines import write_line
from tablestone.tools.queries import shown_value
from tablestone.tools.reading import Columns, Mixed

OUTPUTS: Final = ("table", "jsonl", "csv", "yaml")
ROWS_PER_TABLE: Final = 200
CELL_LENGTH_MAX: Final = 60
ROWS_PER_FRAME: Final = 1000
_COLOURS: Final = {
    EdmType.STRING: "",
    EdmType.INT32: "cyan",
    EdmType.INT64: "cyan",
    EdmType.DOUBLE: "blue",
    EdmType.BOOLEAN: "magenta",
    EdmType.DATE_TIME: "green",
    EdmType.GUID: "yellow",
    EdmType.BINARY: "dim",
    EdmType.GEOGRAPHY_POINT: "yellow",
}


def default_output() -> str:
    """A table on a terminal, JSON lines into a pipe or a file."""
    return "table" if sys.stdout.isatty() else "jsonl"


def show(entities: Iterable[RawEntity], output: str, select: Sequence[str]) -> int:
    """Print entities; answers how many."""
    counted = _Counted(entities)
    if output == "table":
        _show_tables(counted, select)
    elif output == "csv":
        _show_csv(counted, select)
    elif output == "yaml":
        _show_yaml(counted)
    else:
        for raw in counted:
            sys.stdout.write(write_line(raw).decode("utf-8"))
    return counted.count


class _Counted:
    def __init__(self, entities: Iterable[RawEntity]) -> None:
        self._entities = entities
        self.count = 0

    def __iter__(self) -> Iterator[RawEntity]:
        for raw in self._entities:
            self.count += 1
            yield raw


def _show_tables(entities: Iterable[RawEntity], select: Sequence[str]) -> None:
    """A table for every few hundred rows: nothing waits for the end of a long answer."""
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    rows = iter(entities)
    console = Console(file=sys.stdout)
    while chunk := list(islice(rows, ROWS_PER_TABLE)):
        names = list(select) or _names(chunk)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in names:
            table.add_column(name, overflow="ellipsis", no_wrap=True)
        for raw in chunk:
            values = [odata.property_of(raw, name) for name in names]
            table.add_row(*(Text(_cell(value), _colour(value)) for value in values))
        console.print(table)


def _names(entities: Sequence[RawEntity]) -> list[str]:
    """Keys first, then the properties in the order in which they are met."""
    found = dict.fromkeys((PARTITION_KEY, ROW_KEY))
    for raw in entities:
        found.update(dict.fromkeys(name for name in raw if odata.is_property(name)))
    return [name for name in found if any(name in raw for raw in entities)]


def _cell(value: EdmValue | None) -> str:
    text = shown_value(value).replace("\n", "⏎").replace("\r", "")
    return text if len(text) <= CELL_LENGTH_MAX else text[: CELL_LENGTH_MAX - 1] + "…"


def _colour(value: EdmValue | None) -> str:
    return "" if value is None else _COLOURS[value.type]


def _show_csv(entities: Iterable[RawEntity], select: Sequence[str]) -> None:
    """The header has all columns, so that everything is read before the first line is printed.

    A selected property that no entity has is a column without a type.
    """
    columns = Columns()
    keys = [name for name in (PARTITION_KEY, ROW_KEY) if name in select or not select]
    with tempfile.TemporaryDirectory(prefix="tablestone-") as directory:
        spool = Path(directory) / "entities.jsonl.zst"
        with spool.open("wb") as file:
            appender = CompressedAppender(file, ".zst")
            for number, raw in enumerate(entities, start=1):
                # The same for each entity: the selected keys, or both.
                keys = [name for name in (PARTITION_KEY, ROW_KEY) if name in raw]
                columns.add(raw)
                appender.write(write_line(raw))
                if number % ROWS_PER_FRAME == 0:
                    appender.finish()
            appender.finish()
        pairs = columns.pairs(Mixed.COLUMNS)
        met = {name for name, _ in pairs}
        absent = [name for name in select if odata.is_property(name) and name not in met]
        for line in csv_lines(spooled(spool), pairs, [*keys, *absent]):
            sys.stdout.write(line.decode("utf-8"))


def _show_yaml(entities: Iterable[RawEntity]) -> None:
    import yaml  # noqa: PLC0415 - only for this output

    for raw in entities:
        shown: dict[str, Any] = {
            name: _plain(raw, name)
            for name in raw
            if odata.is_property(name) or name in (PARTITION_KEY, ROW_KEY, TIMESTAMP)
        }
        sys.stdout.write(yaml.safe_dump([shown], allow_unicode=True, sort_keys=False, width=4096))


def _plain(raw: RawEntity, name: str) -> Any:
    value = odata.property_of(raw, name)
    if value is None or value.type in (EdmType.DATE_TIME, EdmType.GEOGRAPHY_POINT):
        return None if value is None else shown_value(value)
    return value.value
