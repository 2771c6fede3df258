"""Reads and writes CSV with types: in the header, in a schema beside the file, or in columns of their own.

A type is `temp:Double` in the header, a line of `weather.schema.csv` for `weather.csv`, or Storage Explorer's column
`temp@type` beside `temp`. AzCopy 7 wrote schemas without documenting them; both known forms are read. An empty cell is
an absent property, and `""` an empty string. Text is never taken for a formula.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, cast

from tablestone.model.edm import EdmType, EdmValue, GeographyPoint
from tablestone.model.entity import TIMESTAMP, is_identifier
from tablestone.model.entity_json import geography_json
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tools import odata
from tablestone.tools.errors import TransferFailed, TransferRefused
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
HEADER_BYTES_MAX: Final = 1024 * 1024
LINE_LENGTH_MAX: Final = HEADER_BYTES_MAX // 4
"""Of the first line, in characters, each of at most 4 bytes."""
ROW_LENGTH_MAX: Final = 16 * 1024 * 1024
"""In characters. Ends the reading of a file whose quote is never closed before it is all in memory."""
LENGTH_AHEAD: Final = 2 * 1024 * 1024
"""Characters that are parsed before their rows are handed on: of a file that is broken there, nothing is stored."""
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
    csv.field_size_limit(2 * ROW_LENGTH_MAX)
    maker = RowMaker(reading)
    buffered = io.BufferedReader(cast("io.RawIOBase", file), HEADER_BYTES_MAX)
    encoding, text = _start(buffered, path, reading)
    header, delimiter = _header(text, path, reading)
    columns = _columns(header, reading, maker, path)
    position.has_header = True
    parser = Parser(io.TextIOWrapper(buffered, encoding, newline=""), delimiter, reading.nulls)
    last_types: dict[int, EdmType] = {}
    number = 0
    try:
        for rows in _ahead(parser, len(header)):
            for cells in position.hand_on(rows):
                number += 1
                if isinstance(cells, _Ragged):
                    reason = f"the row has {shown_count(cells.cell_count, 'cell')} and the header {len(header)}"
                    yield Rejected(number, reason, cells.text)
                elif cells and number > 1:
                    yield _row(number, cells, columns, maker, last_types)
            rows.clear()  # before the next ones are made
    except UnicodeError as error:
        where = f"{_reason(error)} after row {parser.row_number:,}"
        raise TransferFailed(_not_in(path, reading.encoding, where)) from None
    except NotClosed as error:
        # Earlier rows may be stored already: then the import failed, and was not refused.
        raise (TransferFailed if number else TransferRefused)(f"{path}{error}") from None


class _Ragged(NamedTuple):
    """A row whose number of cells is not that of the header."""

    cell_count: int
    text: str


def _ahead(parser: Parser, width: int) -> Iterator[list[Cells | _Ragged]]:
    """The rows in lists, each of so many characters."""
    rows: list[Cells | _Ragged] = []
    length = 0
    for cells in parser.rows():
        rows.append(
            cells
            if len(cells) in (0, width)
            else _Ragged(len(cells), parser.row_text.rstrip("\r\n"))
        )
        length += len(parser.row_text)
        if length >= LENGTH_AHEAD:
            yield rows
            rows, length = [], 0
    yield rows


class NotClosed(Exception):
    """A quote is never closed, or not soon. The argument is the rest of the sentence."""


_WITHIN_QUOTES: Final = '[^"]*+(?:""[^"]*+)*+'
_REST: Final = re.compile(_WITHIN_QUOTES + '"?')
Cells = list[str | None]


class Parser:
    """The cells of each row, by Python's csv; an empty line has none.

    A cell that is empty or one of `nulls` is None. With quotes it is a text, but csv does not say which cells had
    quotes: so a mark goes before the text of such a cell, and comes off again.
    """

    def __init__(self, file: TextIO, delimiter: str, nulls: Iterable[str]) -> None:
        self._file = file
        self._parsed = csv.reader(self._lines(), delimiter=delimiter)
        self.row_number = 0
        """Of the last row that was read whole, from 1."""
        self.row_text = ""
        """The lines of this row so far. When a line begins and there are others, it begins within quotes."""
        self._is_open = False
        self._absent = {"", *nulls}
        self._absent_as_written = {text.replace('"', '""') for text in self._absent}
        self._mark = secrets.token_hex(16)
        opening = f'"(?<![^{re.escape(delimiter)}]")'
        texts = "|".join(map(re.escape, self._absent_as_written))
        self._maybe_marked = re.compile(f'{opening}(?:{texts})"')
        self._quoted = re.compile(f'{opening}({_WITHIN_QUOTES})"?')

    def rows(self) -> Iterator[Cells]:
        absent, mark = self._absent, self._mark
        for row in self._parsed:
            if self._is_open:
                ends = len(re.findall(r"\r\n?|\n", row[-1])) - row[-1].endswith(("\r", "\n"))
                line = self._parsed.line_num - ends
                raise NotClosed(f": the quote that opens in line {line:,} is never closed.")
            self.row_number += 1
            yield [None if cell in absent else cell.removeprefix(mark) for cell in row]
            self.row_text = ""

    def _lines(self) -> Iterator[str]:
        while line := self._file.readline(ROW_LENGTH_MAX):
            is_within_quotes = bool(self.row_text)
            self.row_text += line
            if len(self.row_text) >= ROW_LENGTH_MAX:
                raise NotClosed(
                    f" has a row of more than {ROW_LENGTH_MAX // 1024**2} MiB: perhaps a quote is never closed."
                )
            if self._maybe_marked.search(line):  # or a part of a longer cell
                tail = _REST.sub("", line, count=1) if is_within_quotes else line
                line = line[: len(line) - len(tail)] + self._quoted.sub(self._with_mark, tail)
            yield line
        self._is_open = bool(self.row_text)

    def _with_mark(self, cell: re.Match[str]) -> str:
        return f'"{self._mark}{cell[0][1:]}' if cell[1] in self._absent_as_written else cell[0]


_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""The byte order marks of other encodings than UTF-8; those of UTF-32 begin with those of UTF-16."""


def _start(file: io.BufferedReader[Any], path: str, reading: Reading) -> tuple[str, str]:
    """The encoding, and the text in which the header has to be."""
    start = file.peek(HEADER_BYTES_MAX)[:HEADER_BYTES_MAX]
    encoding = reading.encoding
    try:
        "".encode(encoding)  # refuses also what encodes no text, such as hex
        if codecs.lookup(encoding).name == "utf-8":
            marked = next((name for mark, name in _MARKS if start.startswith(mark)), None)
            if marked:
                raise TransferRefused(f"{path} is {marked.upper()}: say --encoding {marked}.")
            encoding = "utf-8-sig"
        return encoding, codecs.getincrementaldecoder(encoding)().decode(start)
    except LookupError:
        raise TransferRefused(f"--encoding {reading.encoding!r} is not known.") from None
    except UnicodeError as error:
        raise TransferRefused(_not_in(path, reading.encoding, _reason(error))) from None


def _header(text: str, path: str, reading: Reading) -> tuple[list[str], str]:
    """The column names in the first row, and the delimiter: the one that gives the most columns."""
    first_line = io.StringIO(text, newline="").readline()
    if not first_line.strip():
        raise TransferRefused(f"{path} is empty: its first line must name the columns.")
    if first_line.startswith("\ufeff"):
        raise TransferRefused(f"{path} begins with a byte order mark: say --encoding utf-16.")
    if len(first_line) > LINE_LENGTH_MAX:
        raise TransferRefused(f"{path} has a first line that is too long to name the columns.")
    found: list[tuple[int, list[str] | NotClosed, str]] = []
    for delimiter in [reading.delimiter] if reading.delimiter else DELIMITERS:
        parser = Parser(io.StringIO(text, newline=""), delimiter, ())
        try:
            titles = [cell or "" for cell in next(parser.rows())]
            found.append((len(titles), titles, delimiter))
        except NotClosed as error:
            found.append((first_line.count(delimiter) + 1, error, delimiter))
    _, header, delimiter = max(found, key=lambda each: each[0])
    if isinstance(header, NotClosed):
        raise TransferRefused(f"{path}{header}")
    return header, delimiter


def _reason(error: UnicodeError) -> str:
    return error.reason if isinstance(error, UnicodeDecodeError) else str(error)


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
        return Rejected(number, str(error), _line(cells))


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


def header_line(
    columns: Iterable[tuple[str, EdmType]], keys: Sequence[str], *, with_types: bool = True
) -> bytes:
    """The header: `keys`, which have no type, then the properties."""
    titles = (
        f"{name}:{kind.value.removeprefix('Edm.')}" if with_types else name
        for name, kind in columns
    )
    return _line((*keys, *titles)).encode() + b"\n"


def write_row(
    raw: Mapping[str, Any], columns: Sequence[tuple[str, EdmType]], keys: Sequence[str]
) -> bytes:
    """An entity that the service sent, as a line of CSV."""
    cells: list[str | None] = [raw.get(name) for name in keys]
    for name, kind in columns:
        value = odata.property_of(raw, name)
        cells.append(_cell(value) if value is not None and value.type is kind else None)
    return _line(cells).encode() + b"\n"


def _cell(value: EdmValue) -> str:
    if isinstance(value.value, GeographyPoint):
        return geography_json(value.value)
    return key_text(value)


def _line(cells: Iterable[str | None]) -> str:
    return ",".join(map(_quoted, cells))


def _quoted(cell: str | None) -> str:
    if cell is None:
        return ""
    return '"' + cell.replace('"', '""') + '"' if _NEEDS_QUOTES.search(cell) else cell
