"""The types of a CSV file's columns in a file beside it: `weather.schema.csv` for `weather.csv`.

Two forms are read: a line for each column with its name and its type, with or without a header, and a line of names
above a line of types. AzCopy 7 wrote such a file beside each CSV; its form is not documented. The first form is
written. Knows names and types; does not know the rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tablestone.model.edm import EdmType
from tablestone.tools.formats.compressed import COMPRESSIONS, STANDARD_STREAM
from tablestone.tools.formats.rows import TYPE_NAMES
from tablestone.tools.refusals import TransferRefused

SUFFIX: Final = ".schema.csv"
_HEADER: Final = "name,type\n"
_TYPES: Final = {name.lower(): kind for name, kind in TYPE_NAMES.items()}


def schema_beside(path: str) -> Path:
    """The name of the schema of a CSV file, compressed or not."""
    plain = Path(path)
    if plain.suffix.lower() in COMPRESSIONS:
        plain = plain.with_suffix("")
    return plain.with_suffix(SUFFIX)


def read_schema(path: str) -> dict[str, EdmType]:
    """The types that the schema beside a CSV file names; none where there is no schema."""
    if path == STANDARD_STREAM:
        return {}
    beside = schema_beside(path)
    try:
        with beside.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TransferRefused(f"{beside} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error):
        rows = []
    found = _of_two_lines(rows) or _of_lines(rows) or _of_lines(rows[1:])
    if not found:
        raise TransferRefused(
            f"{beside} is no schema: a line for each column with its name and its type is needed, such as temp,Double."
        )
    return found


def schema_text(columns: Iterable[tuple[str, EdmType]]) -> str:
    """The schema of these columns. The name of a property never needs quotes."""
    lines = (f"{name},{kind.value.removeprefix('Edm.')}\n" for name, kind in columns)
    return _HEADER + "".join(lines)


def _of_two_lines(rows: list[list[str]]) -> dict[str, EdmType]:
    if len(rows) != 2 or len(rows[0]) != len(rows[1]):
        return {}
    return _typed(zip(*rows, strict=True))


def _of_lines(rows: list[list[str]]) -> dict[str, EdmType]:
    return _typed((row[0], row[1] if len(row) > 1 else "") for row in rows)


def _typed(pairs: Iterable[tuple[str, ...]]) -> dict[str, EdmType]:
    """The table of names and types; empty if one of the types is none."""
    found = {}
    for name, text in pairs:
        kind = _TYPES.get(text.strip().removeprefix("Edm.").lower())
        if kind is None:
            return {}
        found[name] = kind
    return found
