"""Reads and writes CSV with types: in the header, in a schema beside the file, or in columns of their own.

A type is `temp:Double` in the header, a line of `weather.schema.csv` for `weather.csv`, or Storage Explorer's column
`temp@type` beside `temp`. AzCopy 7 wrote schemas without documenting them; both known forms are read. pyarrow parses
the cells. An empty cell is an absent property, and `""` an empty string. Text is never taken for a formula.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from tablestone.model.edm import EdmType, EdmValue, GeographyPoint
from tablestone.model.entity import TIMESTAMP, is_identifier
from tablestone.model.entity_json import geography_json
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tools import odata
from tablestone.tools.errors import TransferFailed, TransferRefused, first_line
from tablestone.tools.formats.compressed import (
    COMPRESSIONS,
    STANDARD_STREAM,
    BinaryFile,
    ReadPosition,
)
from tablestone.tools.formats.rows import (
    Reading,
    Rejected,
    Row,
    RowMaker,
    find_type,
    key_text,
    type_named,
    without_absent,
)
from tablestone.tools.progress import shown_count

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX: Final = ".schema.csv"
_HEADER: Final = "name,type\n"


def schema_beside(path: str) -> Path:
    """The path of the schema of a CSV file, compressed or not."""
    plain = Path(path)
    if plain.suffix.lower() in COMPRESSIONS:
        plain = plain.with_suffix("")
    return plain.with_suffix(SUFFIX)


def read_schema(path: str) -> dict[str, EdmType]:
    """The types in the schema beside a CSV file; none if there is no schema.

    Reads both known forms: a line of names and one of types, or a line for each column, perhaps after a header.
    """
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
    is_two_lines = len(rows) == 2 and len(rows[0]) == len(rows[1])
    of_two_lines = _typed(zip(*rows, strict=True) if is_two_lines else ())
    of_lines = [(row[0], row[1] if len(row) > 1 else "") for row in rows]
    found = of_two_lines or _typed(of_lines) or _typed(of_lines[1:])
    if not found:
        raise TransferRefused(
            f"{beside} is no schema: a line for each column with its name and its type is needed, such as temp,Double."
        )
    return found


def schema_text(columns: Iterable[tuple[str, EdmType]]) -> str:
    """The text of a schema. Names of properties need no quotes."""
    lines = (f"{name},{kind.value.removeprefix('Edm.')}\n" for name, kind in columns)
    return _HEADER + "".join(lines)


def _typed(pairs: Iterable[tuple[str, ...]]) -> dict[str, EdmType]:
    """Types by name; empty if one of the texts is no type."""
    found = {}
    for name, text in pairs:
        kind = find_type(text.strip())
        if kind is None:
            return {}
        found[name] = kind
    return found


DELIMITERS: Final = (",", ";", "\t", "|")
_WIDE: Final = ("utf-16", "utf-32")


class UnclosedQuote(Exception):
    """A quote is never closed. The argument is the line where it opens, from 1."""


class MarkedEnd(io.RawIOBase):
    """Finds a quote that is never closed: it swallows the row with a mark that follows the file.

    pyarrow would take the rest of the file for one cell. `width` is the number of cells in a row.
    """

    def __init__(
        self, file: io.BufferedReader[Any], encoding: str, delimiter: str, width: int
    ) -> None:
        self._file = file
        self._delimiter = delimiter
        self._mark = secrets.token_hex(16)
        self._swallowed: str | None = None
        name = codecs.lookup(encoding).name.removesuffix("-sig")
        if name in _WIDE:
            # The byte order mark at the start of the file gives the order.
            is_big = file.peek(4)[:4].startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE))
            name += "-be" if is_big else "-le"
        self._newline = "\n".encode(name)
        self._rest = f"\n{self._mark}{delimiter * (width - 1)}\n".encode(name)
        self._lines = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        read = self._file.read1(len(buffer))
        if read:
            self._lines += read.count(self._newline)
        else:
            read, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(read)] = read
        return len(read)

    def saw_ragged(self, text: str) -> None:
        """Look for the mark in a row with the wrong number of cells."""
        if self._mark in text:
            self._swallowed = _last_cell(text, self._delimiter)

    def without_mark(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows before the mark. Raises `UnclosedQuote` before the rows of the batch that has the open quote."""
        for batch in batches:
            rows = batch.num_rows
            if rows:
                last = [column[rows - 1].as_py() or "" for column in batch.columns]
                if last[0] == self._mark:
                    yield batch.slice(0, rows - 1)
                    return
                for cell in last:
                    if self._mark in cell:
                        self._swallowed = cell
            if self._swallowed is not None:
                break
            yield batch
        if self._swallowed is not None:
            # The newline right before the mark is not of the file.
            within = self._swallowed.partition(self._mark)[0].count("\n") - 1
            raise UnclosedQuote(1 + self._lines - within)


def _last_cell(text: str, delimiter: str) -> str:
    """The last cell of a row: with an open quote, the rest of the file."""
    try:
        return next(csv.reader([text], delimiter=delimiter))[-1]
    except (csv.Error, StopIteration):
        return text  # too long for the csv module


HEADER_BYTES_MAX: Final = 1024 * 1024
BLOCK_BYTES: Final = 16 * 1024 * 1024
"""A row may span two blocks at most, so this also limits the length of a row."""
ROWS_PER_SLICE: Final = 1_000
"""Rows whose cells become Python strings at once."""
TYPE_SUFFIX: Final = re.compile(r"(.*?)\s?@(?:odata\.)?type")
_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$|^$')
_ETAG_NAMES: Final = frozenset(("etag", "ETag"))
_ETAG: Final = re.compile(r'W/"[^"]*"')
"""The service's ETag, which other tools export as a column without a type."""
_UNTYPED_NAMES: Final = frozenset((PARTITION_KEY, ROW_KEY, TIMESTAMP))


class _Column(NamedTuple):
    """A column of values: its index, the property, its type if known, and the index of its column of types."""

    cell_index: int
    name: str
    kind: EdmType | None
    type_index: int | None


def read_csv(
    file: BinaryFile, path: str, reading: Reading, position: ReadPosition
) -> Iterator[Row | Rejected]:
    import pyarrow as pa  # noqa: PLC0415, F401 - report a missing package before faults of the file

    maker = RowMaker(reading)
    ragged: dict[int, Any] = {}

    buffered = io.BufferedReader(cast("io.RawIOBase", file), HEADER_BYTES_MAX)
    header, delimiter = _header(buffered, path, reading)
    columns = _columns(header, reading, maker, path)
    marked = MarkedEnd(buffered, reading.encoding, delimiter, len(header))

    def note(row: Any) -> str:
        ragged[row.number] = row
        marked.saw_ragged(row.text)
        return "skip"

    last_types: dict[int, EdmType] = {}
    number = 1  # the header
    position.has_header = True
    source = io.BufferedReader(marked, HEADER_BYTES_MAX)
    batches = _batches(source, path, reading, delimiter, len(header), note)
    try:
        for batch in _slices(marked.without_mark(batches), position):
            for cells in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                number += 1
                while number in ragged:
                    yield _ragged(ragged.pop(number))
                    number += 1
                yield _row(number, cells, columns, maker, last_types)
    except UnclosedQuote as unclosed:
        # Rows of earlier blocks may be stored already: then the import failed, and was not refused.
        failure = TransferRefused if number == 1 else TransferFailed
        raise failure(
            f"{path}: the quote that opens in line {unclosed.args[0]} is never closed."
        ) from None
    for row_number in sorted(ragged):
        yield _ragged(ragged[row_number])


def _slices(batches: Iterator[pa.RecordBatch], position: ReadPosition) -> Iterator[pa.RecordBatch]:
    """The same rows, a few at a time: as Python strings a block would need many times its memory."""
    for batch in batches:
        starts = range(0, batch.num_rows, ROWS_PER_SLICE)
        yield from position.hand_on([batch.slice(start, ROWS_PER_SLICE) for start in starts])


def _header(file: io.BufferedReader[Any], path: str, reading: Reading) -> tuple[list[str], str]:
    """The column names in the first record, and the delimiter: the one that gives the most columns."""
    start = file.peek(HEADER_BYTES_MAX)[:HEADER_BYTES_MAX]
    encoding = reading.encoding
    try:
        if codecs.lookup(encoding).name == "utf-8":
            if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                raise TransferRefused(f"{path} is UTF-16: say --encoding utf-16.")
            encoding = "utf-8-sig"
        text = codecs.getincrementaldecoder(encoding)().decode(start)
    except LookupError:
        raise TransferRefused(f"--encoding {reading.encoding!r} is not known.") from None
    except UnicodeDecodeError as error:
        raise TransferRefused(_not_in(path, reading.encoding, error.reason)) from None
    lines = text.splitlines(keepends=True)
    if not lines or not lines[0].strip():
        raise TransferRefused(f"{path} is empty: its first line must name the columns.")
    tried = [reading.delimiter] if reading.delimiter else DELIMITERS
    headers = [(next(csv.reader(lines, delimiter=each)), each) for each in tried]
    return max(headers, key=lambda header: len(header[0]))


def _batches(
    file: BinaryFile,
    path: str,
    reading: Reading,
    delimiter: str,
    width: int,
    note: Callable[[Any], str],
) -> Iterator[pa.RecordBatch]:
    """Parse the cells as text, a block at a time."""
    import pyarrow as pa  # noqa: PLC0415 - loads slowly, and a schema needs only this module
    from pyarrow import csv as arrow_csv  # noqa: PLC0415 - as above

    names = [str(index) for index in range(width)]
    try:
        yield from arrow_csv.open_csv(
            file,
            read_options=arrow_csv.ReadOptions(
                use_threads=False,
                block_size=BLOCK_BYTES,
                encoding=reading.encoding,
                column_names=names,
                skip_rows_after_names=1,
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                null_values=["", *reading.nulls],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        text, wide = str(error), f"a row of more than {BLOCK_BYTES // 1024**2} MiB"
        reason = f"{path} cannot be read as CSV: {first_line(error)}."
        if "invalid UTF8" in text:
            where = re.search(r"Row #\d+", text)
            reason = _not_in(path, reading.encoding, where[0].lower() if where else "a row")
        elif "straddling object" in text:
            reason = f"{path} has {wide}: perhaps a quote is never closed."
        raise TransferFailed(reason) from None
    except UnicodeDecodeError as error:
        raise TransferFailed(_not_in(path, reading.encoding, error.reason)) from None


def _not_in(path: str, encoding: str, where: str) -> str:
    return f"{path} is not {encoding} ({where}): say which it is with --encoding, such as cp1252."


def _columns(header: Sequence[str], reading: Reading, maker: RowMaker, path: str) -> list[_Column]:
    """The columns of values. A column of types belongs to the column after which it is named."""
    schema = read_schema(path)
    type_columns: dict[str, int] = {}
    values: list[tuple[int, str, EdmType | None]] = []
    for index, title in enumerate(header):
        of_type = TYPE_SUFFIX.fullmatch(title)
        name, colon, type_name = title.rpartition(":")
        if of_type:
            type_columns[of_type[1]] = index
        elif colon:
            values.append((index, name, type_named(type_name, f"{path}, column {title!r}")))
        else:
            values.append((index, title, schema.get(title)))
    columns, seen = [], set()
    for index, name, own_kind in values:
        kind = reading.types.get(name, own_kind)
        if (name, kind) in seen:
            raise TransferRefused(f"{path} has two columns {header[index]!r}.")
        seen.add((name, kind))
        if name not in _UNTYPED_NAMES and name not in maker.drop and not is_identifier(name):
            raise TransferRefused(
                f"{path}: the column {name!r} cannot name a property. Rename it, or leave it out: --drop {name!r}."
            )
        columns.append(_Column(index, name, kind, type_columns.get(name)))
    names = {name for name, _ in seen}
    maker.require_columns(path, names, header)
    return columns


def _row(
    number: int,
    cells: Sequence[str | None],
    columns: Iterable[_Column],
    maker: RowMaker,
    last_types: dict[int, EdmType],
) -> Row | Rejected:
    try:
        values = ((column.name, _value(cells, column, last_types)) for column in columns)
        return maker.make(number, without_absent(values))
    except ValueError as error:
        return Rejected(number, str(error), ",".join(_quoted(cell) for cell in cells))


def _value(
    cells: Sequence[str | None], column: _Column, last_types: dict[int, EdmType]
) -> EdmValue | None:
    """A cell's value. Its type may be in a row above only: Storage Explorer 1.40 writes types in the first row."""
    cell = cells[column.cell_index]
    kind = column.kind
    if kind is None and column.type_index is not None:
        named = cells[column.type_index]
        if named:
            if named.removeprefix("Edm.") == "Null":
                return None
            kind = find_type(named)
            if kind is None:
                raise ValueError(
                    f"{column.name} has the type {named!r}, which the service does not have"
                )
            last_types[column.cell_index] = kind
            if cell is None and kind is EdmType.STRING:
                return EdmValue(EdmType.STRING, "")
        else:
            kind = last_types.get(column.cell_index)
    if cell is None:
        return None
    if kind is None and column.name in _ETAG_NAMES and _ETAG.fullmatch(cell):
        return None  # the service's own: no property
    if kind is None or kind is EdmType.STRING:
        return EdmValue(EdmType.STRING, cell)
    return odata.typed_value(column.name, cell, kind)


def _ragged(row: Any) -> Rejected:
    cells = shown_count(row.actual_columns, "cell")
    reason = f"the row has {cells} and the header {row.expected_columns}"
    return Rejected(row.number, reason, row.text)


def header_line(
    columns: Iterable[tuple[str, EdmType]], keys: Sequence[str], *, with_types: bool = True
) -> bytes:
    """The header: `keys`, which have no type, then the properties."""
    titles = (
        f"{name}:{kind.value.removeprefix('Edm.')}" if with_types else name
        for name, kind in columns
    )
    return ",".join(map(_quoted, (*keys, *titles))).encode() + b"\n"


def write_row(
    raw: Mapping[str, Any], columns: Sequence[tuple[str, EdmType]], keys: Sequence[str]
) -> bytes:
    """An entity that the service sent, as a line of CSV."""
    cells: list[str | None] = [raw.get(name) for name in keys]
    for name, kind in columns:
        value = odata.property_of(raw, name)
        cells.append(_cell(value) if value is not None and value.type is kind else None)
    return ",".join(map(_quoted, cells)).encode() + b"\n"


def _cell(value: EdmValue) -> str:
    if isinstance(value.value, GeographyPoint):
        return geography_json(value.value)
    return key_text(value)


def _quoted(cell: str | None) -> str:
    if cell is None:
        return ""
    return '"' + cell.replace('"', '""') + '"' if _NEEDS_QUOTES.search(cell) else cell
