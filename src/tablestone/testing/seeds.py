"""Entities that a test provides, as the JSON that the service reads: dicts, files, or a directory of files.

A dict has Python's values as the SDK takes them, or members of the service's own JSON with their annotations. Knows
no storage. The reader of the JSON decides later whether an entity is valid.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from tablestone.model.edm import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, EdmType
from tablestone.model.keys import PARTITION_KEY, ROW_KEY

ANNOTATION: Final = "@odata.type"
_KEY: Final = (PARTITION_KEY, ROW_KEY)
FILES: Final = (".jsonl", ".ndjson", ".json", ".csv")
"""The kinds of files, by the suffixes of their names."""

Entities = Iterable[Mapping[str, Any]]
Seed = Mapping[str, Entities] | str | Path
"""Entities by table, or a file whose name is that of the table, or a directory of such files."""


class SeedRefused(ValueError):
    """A seed that cannot be stored; none of its entities is. The text is one sentence and names the line."""


class SeedRow(NamedTuple):
    """One entity: its table, its JSON, and its place in the seed, for messages."""

    table: str
    body: bytes
    place: str


def rows_of(seed: Seed, table: str | None) -> Iterator[SeedRow]:
    """The entities of a seed. If `table` is given, it is the table of a file, in the place of the file's name."""
    if isinstance(seed, Mapping):
        for name, entities in seed.items():
            if isinstance(entities, Mapping) or not isinstance(entities, Iterable):
                raise SeedRefused(f"{name!r} has a list of entities, each a dict.")
            for number, entity in enumerate(entities, start=1):
                place = f"entity {number} of {name}"
                yield SeedRow(name, _body(entity, place), place)
        return
    if not isinstance(seed, str | Path):
        raise SeedRefused(
            'A seed is a dict of lists by table, such as {"Orders": [...]}, a file or a directory.'
        )
    path = Path(seed)
    if path.is_dir():
        if table is not None:
            raise SeedRefused(f"{path} is a directory: the names of its files are the tables.")
        files = sorted(each for each in path.iterdir() if each.suffix in FILES)
        if not files:
            raise SeedRefused(f"{path} has no file that ends in {', '.join(FILES)}.")
        for file in files:
            yield from _rows_of_file(file, file.stem)
    elif path.suffix in FILES and path.is_file():
        yield from _rows_of_file(path, table or path.stem)
    elif path.exists():
        raise SeedRefused(f"{path} does not end in {', '.join(FILES)}.")
    else:
        raise SeedRefused(f"{path} is not there.")


def tables_of(seed: Seed, table: str | None) -> list[str]:
    """The tables of a seed that `rows_of` has read, also those without an entity."""
    if isinstance(seed, Mapping):
        return list(seed)
    path = Path(seed)
    if path.is_dir():
        return sorted(each.stem for each in path.iterdir() if each.suffix in FILES)
    return [table or path.stem]


def _rows_of_file(path: Path, table: str) -> Iterator[SeedRow]:
    # These are the readers of the data tools. The reader of CSV needs pyarrow; the test kit itself does not.
    from tablestone.tools.formats.compressed import ReadPosition  # noqa: PLC0415
    from tablestone.tools.formats.reading_file import read_rows  # noqa: PLC0415
    from tablestone.tools.formats.rows import Reading, Rejected  # noqa: PLC0415
    from tablestone.tools.refusals import TransferRefused  # noqa: PLC0415

    try:
        for row in read_rows(str(path), Reading(), None, ReadPosition()):
            place = f"{path}, {'row' if path.suffix == '.csv' else 'line'} {row.number}"
            if isinstance(row, Rejected):
                raise SeedRefused(f"{place}: {row.reason.removesuffix('.')}.")
            yield SeedRow(table, row.body, place)
    except TransferRefused as refused:
        raise SeedRefused(str(refused)) from None
    except ModuleNotFoundError as missing:
        raise SeedRefused(
            f"{path} needs {missing.name}: install Tablestone with its extra 'tools'."
        ) from None


def _body(entity: Mapping[str, Any], place: str) -> bytes:
    if not isinstance(entity, Mapping):
        raise SeedRefused(f"{place} is no dict.")
    members: dict[str, Any] = {}
    for name, value in entity.items():
        if not _is_text(name):
            raise SeedRefused(f"{place}: the name of a property is a text, not {name!r}.")
        text, kind = _typed(value, f"{place}: {name}")
        if name in _KEY and not (
            isinstance(text, str | NoneType) and kind in (None, EdmType.STRING)
        ):
            raise SeedRefused(f"{place}: {name} is a text, not {str(value)[:80]}.")
        members[name] = text
        if kind is not None and name + ANNOTATION not in entity:
            members[name + ANNOTATION] = kind.value
    return orjson.dumps(members)


def _typed(value: Any, place: str) -> tuple[Any, EdmType | None]:
    """A value as in the service's JSON, and its type where the JSON value alone does not say it."""
    if isinstance(value, tuple) and len(value) == 2:
        text, _ = _typed(value[0], place)
        try:
            kind = EdmType(getattr(value[1], "value", value[1]))
        except ValueError:
            raise SeedRefused(f"{place}: {value[1]!r} is no type, such as Edm.Int64.") from None
        if kind is EdmType.INT32 and isinstance(value[0], int):
            _require_within(value[0], kind, INT32_MIN, INT32_MAX, place)
        return (str(text) if kind is EdmType.INT64 else text), kind
    if isinstance(value, str) and not _is_text(value):
        raise SeedRefused(
            f"{place}: {value[:80]!r} has half of a surrogate pair, which is no text."
        )
    if value is None or isinstance(value, bool | str):
        return value, None
    if isinstance(value, int):
        _require_within(value, EdmType.INT64, INT64_MIN, INT64_MAX, place)
        return (value, None) if INT32_MIN <= value <= INT32_MAX else (str(value), EdmType.INT64)
    if isinstance(value, float):
        return (
            (value, EdmType.DOUBLE) if value - value == 0 else (_not_finite(value), EdmType.DOUBLE)
        )
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii"), EdmType.BINARY
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise SeedRefused(f"{place}: {value} has no time zone.")
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), EdmType.DATE_TIME
    if isinstance(value, UUID):
        return str(value), EdmType.GUID
    raise SeedRefused(f"{place}: no property has a value of the type {type(value).__name__}.")


def _require_within(value: int, kind: EdmType, first: int, last: int, place: str) -> None:
    if not first <= value <= last:
        raise SeedRefused(
            f"{place}: an {kind.value} is from {first} to {last}, not {_shown(value)}."
        )


def _shown(value: int) -> str:
    """The number, unless it is too long to be read."""
    bits = value.bit_length()
    return str(value) if bits <= 128 else f"a number of {bits} bits"


def _is_text(value: Any) -> bool:
    """Whether the value is a text that UTF-8 can write: it has no half of a surrogate pair."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_finite(value: float) -> str:
    """The name of the value in the service's JSON."""
    if value != value:  # noqa: PLR0124 - only NaN is unlike itself
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
