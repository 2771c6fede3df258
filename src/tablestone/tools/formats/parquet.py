"""Reads and writes Parquet, each EDM type as the matching logical type.

A column of times is in nanoseconds if all fit (1677 to 2262), else in microseconds if none is finer, else text. The
metadata of a field has its EDM type, so that our own files are read back unchanged; files of other tools are read by
their Parquet types.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import IO, Any, Final, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tablestone.clock import UNIX_EPOCH_TICKS
from tablestone.model import edm
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import TIMESTAMP
from tablestone.model.entity_json import geography_json
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tools import odata
from tablestone.tools.errors import TransferFailed, TransferRefused, first_line
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.rows import Reading, Rejected, Row, RowMaker, key_text, without_absent

ROWS_PER_BATCH: Final = 5_000
_TYPE: Final = b"edm.type"
_NAME: Final = b"edm.name"
_NANOSECOND_TICKS: Final = (
    UNIX_EPOCH_TICKS - 2**63 // 100 + 1,
    UNIX_EPOCH_TICKS + 2**63 // 100 - 1,
)
"""The first and last tick that 64 bits of nanoseconds since 1970 can hold."""


class Field(NamedTuple):
    """A column to write: the property and its type; for times also the range, and whether one is finer than 1 µs."""

    name: str
    kind: EdmType
    least: int = 0
    greatest: int = 0
    has_ticks: bool = False


def write_parquet(
    file: IO[bytes],
    fields: Sequence[tuple[str, Field]],
    rows: Iterator[Mapping[str, Any]],
    *,
    with_timestamp: bool,
) -> None:
    """Write entities as the service sent them. `fields` are the titles and columns after the keys and Timestamp."""
    writers: list[Writer] = [itemgetter(PARTITION_KEY), itemgetter(ROW_KEY)]
    columns = [pa.field(PARTITION_KEY, pa.string()), pa.field(ROW_KEY, pa.string())]
    stamp = Field(TIMESTAMP, EdmType.DATE_TIME, UNIX_EPOCH_TICKS, UNIX_EPOCH_TICKS)
    for title, field in (*([(TIMESTAMP, stamp)] if with_timestamp else ()), *fields):
        kind, write = _arrow(field)
        named = {_TYPE: field.kind.value.encode(), _NAME: field.name.encode()}
        metadata = None if field is stamp else named
        columns.append(pa.field(title, kind, metadata=metadata))
        writers.append(_member(field, write))
    schema = pa.schema(columns)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        batch: list[list[Any]] = [[] for _ in columns]
        for raw in rows:
            for cells, write in zip(batch, writers, strict=True):
                cells.append(write(raw))
            if len(batch[0]) >= ROWS_PER_BATCH * 4:
                _flush(writer, schema, batch)
        _flush(writer, schema, batch)


def _flush(writer: pq.ParquetWriter, schema: pa.Schema, batch: list[list[Any]]) -> None:
    arrays = [_array(cells, field.type) for cells, field in zip(batch, schema, strict=True)]
    writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    for cells in batch:
        cells.clear()


def _array(cells: list[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.UuidType):
        return pa.ExtensionArray.from_storage(kind, pa.array(cells, pa.binary(16)))
    if pa.types.is_timestamp(kind):
        return pa.array(cells, pa.int64()).cast(kind)
    return pa.array(cells, kind)


Writer = Callable[[Any], Any]


def _arrow(field: Field) -> tuple[pa.DataType, Writer]:
    """The logical type of a column, and the function that converts an EDM value to it."""
    if field.kind is EdmType.DATE_TIME:
        first, last = _NANOSECOND_TICKS
        if first <= field.least and field.greatest <= last:
            return pa.timestamp("ns", "UTC"), lambda ticks: (ticks - UNIX_EPOCH_TICKS) * 100
        if not field.has_ticks:
            return pa.timestamp("us", "UTC"), lambda ticks: (ticks - UNIX_EPOCH_TICKS) // 10
        return pa.string(), edm.format_date_time
    return _SIMPLE[field.kind]


def _same(value: Any) -> Any:
    return value


_SIMPLE: Final[dict[EdmType, tuple[pa.DataType, Writer]]] = {
    EdmType.STRING: (pa.string(), _same),
    EdmType.INT32: (pa.int32(), _same),
    EdmType.INT64: (pa.int64(), _same),
    EdmType.DOUBLE: (pa.float64(), _same),
    EdmType.BOOLEAN: (pa.bool_(), _same),
    EdmType.BINARY: (pa.binary(), _same),
    EdmType.GUID: (pa.uuid(), lambda text: uuid.UUID(text).bytes),
    EdmType.GEOGRAPHY_POINT: (pa.string(), geography_json),
}


def _member(field: Field, write: Writer) -> Writer:
    def cell(raw: Mapping[str, Any]) -> Any:
        value = odata.property_of(raw, field.name)
        return write(value.value) if value is not None and value.type is field.kind else None

    return cell


def read_parquet(path: str, reading: Reading, position: ReadPosition) -> Iterator[Row | Rejected]:
    """The rows of a Parquet file, which must be on disk: its schema is at its end."""
    maker = RowMaker(reading)
    try:
        file = pq.ParquetFile(path)
    except FileNotFoundError:
        raise TransferRefused(f"{path} is not there.") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise TransferRefused(
            f"{path} cannot be read as Parquet: {first_line(error).rstrip('.')}."
        ) from None
    with file:
        schema = file.schema_arrow
        columns = [_reader(path, field, reading) for field in schema]
        names = {name for name, _, _ in columns}
        maker.require_columns(path, names, schema.names)
        number = 0
        position.size = file.metadata.num_rows
        try:
            for batch in file.iter_batches(batch_size=ROWS_PER_BATCH):
                position.read = number
                cells = [_cells(column) for column in batch.columns]
                for values in zip(*cells, strict=True):
                    number += 1
                    yield _row(number, values, columns, maker)
        except (pa.ArrowInvalid, OSError) as error:
            raise TransferFailed(f"{path} is damaged: {first_line(error).rstrip('.')}.") from None


def _cells(column: pa.Array) -> list[Any]:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type) or pa.types.is_date64(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    found: list[Any] = column.to_pylist()
    return found


_Reader = tuple[str, EdmType, Callable[[Any], EdmValue]]


def _reader(path: str, field: pa.Field, reading: Reading) -> _Reader:
    """The property of a column, its type, and the function that converts a cell to a value."""
    metadata = field.metadata or {}
    name = metadata.get(_NAME, field.name.encode()).decode()
    kind, read = _of_arrow(path, field)
    told = metadata.get(_TYPE, b"").decode()
    if told in ("Edm.DateTime", "Edm.GeographyPoint") and kind is EdmType.STRING:
        wanted = EdmType(told)
        return name, wanted, lambda cell: odata.typed_value(name, cell, wanted)
    wanted = reading.types.get(name, kind)
    if wanted is kind:
        return name, kind, lambda cell: EdmValue(kind, read(cell))
    return name, wanted, lambda cell: _as_asked(name, EdmValue(kind, read(cell)), wanted)


def _as_asked(name: str, value: EdmValue, wanted: EdmType) -> EdmValue:
    """Convert to a type of `--types`, such as an integer to Double, a string to Guid, anything to String."""
    if wanted is EdmType.DOUBLE and isinstance(value.value, int):
        return odata.typed_value(name, value.value, wanted)
    return odata.typed_value(name, key_text(value), wanted)


def _of_arrow(path: str, field: pa.Field) -> tuple[EdmType, Callable[[Any], Any]]:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if isinstance(kind, pa.UuidType):
        return EdmType.GUID, lambda cell: str(uuid.UUID(bytes=cell))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return EdmType.STRING, _same
    if pa.types.is_boolean(kind):
        return EdmType.BOOLEAN, _same
    if pa.types.is_integer(kind):
        is_small = kind.bit_width < 32 or kind == pa.int32()
        return (EdmType.INT32 if is_small else EdmType.INT64), _integer
    if pa.types.is_floating(kind):
        return EdmType.DOUBLE, lambda cell: float(cell) or 0.0
    if pa.types.is_timestamp(kind):
        per_tick = {"s": 10_000_000, "ms": 10_000, "us": 10}.get(kind.unit)
        if per_tick is None:
            return EdmType.DATE_TIME, lambda cell: UNIX_EPOCH_TICKS + cell // 100
        return EdmType.DATE_TIME, lambda cell: UNIX_EPOCH_TICKS + cell * per_tick
    if pa.types.is_date32(kind):
        return EdmType.DATE_TIME, lambda days: UNIX_EPOCH_TICKS + days * 864_000_000_000
    if pa.types.is_date64(kind):
        return EdmType.DATE_TIME, lambda cell: UNIX_EPOCH_TICKS + cell * 10_000
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if is_binary or pa.types.is_fixed_size_binary(kind):
        return EdmType.BINARY, _same
    raise TransferRefused(
        f"{path}: the column {field.name!r} is {field.type}, which no property can hold; leave it out before."
    )


def _integer(cell: int) -> int:
    if cell > edm.INT64_MAX:
        raise ValueError(f"{cell} does not fit into Int64")
    return cell


def _row(
    number: int, cells: Sequence[Any], columns: Sequence[_Reader], maker: RowMaker
) -> Row | Rejected:
    try:
        named = zip(columns, cells, strict=True)
        values = ((name, _value(name, read, cell)) for (name, _, read), cell in named)
        return maker.make(number, without_absent(values))
    except ValueError as error:
        named = zip(columns, cells, strict=True)
        shown = {field[0]: str(cell) for field, cell in named if cell is not None}
        return Rejected(number, str(error), orjson.dumps(shown).decode())


def _value(name: str, read: Callable[[Any], EdmValue], cell: Any) -> EdmValue | None:
    value = None if cell is None else read(cell)
    if value and value.type is EdmType.DATE_TIME:
        assert isinstance(value.value, int)
        if not edm.DATE_TIME_MIN <= value.value <= edm.DATE_TIME_MAX:
            raise ValueError(f"{name} is before 1601 or after 9999")
    return value
