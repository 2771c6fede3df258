"""Exports entities to a file, resumably, and prints them.

An export appends pages to a file of JSON lines beside the target, with a checkpoint in the journal every few pages.
CSV and Parquet need to know all columns first, so they are converted from that file at the end.
"""

import errno
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, Protocol

import orjson

from tablestone.fsync import flush
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tools import odata
from tablestone.tools.client import ContinuationToken, Page, Query, RawEntity
from tablestone.tools.errors import TransferFailed
from tablestone.tools.formats import json_lines
from tablestone.tools.formats.compressed import (
    CompressedAppender,
    ReadPosition,
    open_for_reading,
    split_name,
)
from tablestone.tools.formats.json_lines import write_line
from tablestone.tools.formats.typed_csv import header_line, schema_beside, schema_text, write_row
from tablestone.tools.progress import Progress, Reached
from tablestone.tools.queries import Columns, Cost, Mixed, shown_value
from tablestone.tools.resume_journal import Journal

PAGES_PER_CHECKPOINT: Final = 20
SPOOL_SUFFIX: Final = ".part.jsonl.zst"


@dataclass(frozen=True)
class ExportReport:
    """The result of an export over all its runs."""

    table: str
    path: str
    entities: int
    bytes_read: int
    bytes_written: int
    resumed_after: int
    retries: int


@dataclass(frozen=True)
class Target:
    """The output: the file, its kind (jsonl, csv, parquet), and the form of its columns."""

    path: str
    kind: str
    mixed: Mixed = Mixed.FAIL
    with_timestamp: bool = False
    schema: bool = False
    """CSV: the header has only names, and a file beside it the types."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that every entity has."""
        return (PARTITION_KEY, ROW_KEY, *((TIMESTAMP,) if self.with_timestamp else ()))

    @property
    def needs_columns(self) -> bool:
        return self.kind in ("csv", "parquet")


class ReadsPages(Protocol):
    """The source of an export: a `TableReader`, or a part of what it reads."""

    cost: Cost

    def pages(self, query: Query, token: ContinuationToken | None = None, /) -> Iterator[Page]:
        """The pages from the token on; the last page has none."""


@dataclass(eq=False)
class Export:
    reader: ReadsPages
    query: Query
    target: Target
    _: KW_ONLY
    journal: Journal | None
    progress: Progress

    def __post_init__(self) -> None:
        target, journal, path = self.target, self.journal, self.target.path
        self._waiting = Path(path + (SPOOL_SUFFIX if target.needs_columns else ".part"))
        self._compression = ".zst" if target.needs_columns else split_name(path)[1]
        self._state: dict[str, Any] = dict(journal.state) if journal else {}
        if not (self.has_its_name or self._holds_what_was_read()):
            self._state = {}
        self._columns = Columns(self._state)

    @property
    def has_its_name(self) -> bool:
        """Whether an earlier run of this export completed the file, and nobody has changed it since."""
        try:
            return self._state.get("whole") == _identity(Path(self.target.path))
        except OSError:
            return False

    def run(self) -> ExportReport:
        """Write the file. After `TransferFailed` or an interrupt, a later run continues from the journal."""
        resumed = int(self._state.get("entities", 0))
        with _disk_errors(self.target.path):
            if not self.has_its_name:
                try:
                    if not self._state.get("read"):
                        self._read()
                    self._finish()
                except BaseException:
                    # Without a checkpoint, for example of a missing table, no later run needs the file.
                    if not self._state.get("length"):
                        self._waiting.unlink(missing_ok=True)
                    raise
            if self.target.needs_columns:
                self._waiting.unlink(missing_ok=True)
        return ExportReport(
            self.query.table,
            self.target.path,
            int(self._state["entities"]),
            self.reader.cost.bytes,
            Path(self.target.path).stat().st_size,
            resumed,
            self.reader.cost.retries,
        )

    def _holds_what_was_read(self) -> bool:
        """Whether the file is there, and as long as the journal says."""
        try:
            return self._waiting.stat().st_size >= int(self._state.get("length", 0))
        except OSError:
            return False

    def _read(self) -> None:
        kept = int(self._state.get("length", 0))
        stored = self._state.get("token")
        token = ContinuationToken(*stored) if stored else None
        entities = earlier = int(self._state.get("entities", 0))
        with self._waiting.open("r+b" if kept else "wb") as file:
            file.truncate(kept)
            file.seek(kept)
            appender = CompressedAppender(file, self._compression)
            for number, page in enumerate(self.reader.pages(self.query, token), start=1):
                for raw in page.entities:
                    appender.write(json_lines.write_line(raw))
                    if self.target.needs_columns:
                        self._columns.add(raw)
                entities += len(page.entities)
                self.progress.update(Reached(entities, self.reader.cost.bytes, earlier=earlier))
                if number % PAGES_PER_CHECKPOINT == 0 or page.next_token is None:
                    appender.finish()
                    self._checkpoint(file, page.next_token, entities)

    def _checkpoint(self, file: IO[bytes], token: ContinuationToken | None, entities: int) -> None:
        flush(file)
        self._state = {
            "length": file.tell(),
            "token": token,
            "entities": entities,
            "read": token is None,
            **self._columns.state(),
        }
        if self.journal:
            self.journal.save(self._state)

    def _finish(self) -> None:
        """Convert the file if it has columns, and rename it to the target."""
        done = Path(self.target.path)
        whole = self._waiting
        if self.target.needs_columns:
            try:
                self._columns.pairs(self.target.mixed)
            except TransferFailed:  # only a command with other options helps
                self._waiting.unlink(missing_ok=True)
                raise
            whole = done.with_name(done.name + ".part")
            with whole.open("wb") as file:
                convert(self._waiting, file, self.target, self._columns)
                flush(file)
        if self.target.schema:
            schema = schema_beside(self.target.path)
            fresh = schema.with_name(schema.name + ".part")
            fresh.write_text(schema_text(self._columns.pairs(self.target.mixed)), encoding="utf-8")
            fresh.replace(schema)
        self._state["whole"] = _identity(whole)
        if self.journal:
            self.journal.save(self._state)
        whole.replace(done)


def _identity(path: Path) -> list[int]:
    """What identifies a file under any name, until its content changes."""
    found = path.stat()
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]


def convert(spool: Path, file: IO[bytes], target: Target, columns: Columns) -> None:
    """Convert JSON lines of entities to CSV or Parquet."""
    if target.kind == "parquet":
        from tablestone.tools.formats import parquet  # noqa: PLC0415 - pyarrow loads slowly

        fields = [
            (title, parquet.Field(name, kind, least, greatest, bool(has_ticks)))
            for title, name, kind, (_, least, greatest, has_ticks) in columns.titles(target.mixed)
        ]
        parquet.write_parquet(file, fields, spooled(spool), with_timestamp=target.with_timestamp)
        return
    appender = CompressedAppender(file, split_name(target.path)[1])
    lines = csv_lines(
        spooled(spool), columns.pairs(target.mixed), target.keys, with_types=not target.schema
    )
    for size, text in enumerate(lines, start=1):
        appender.write(text)
        if size % 10_000 == 0:
            appender.finish()
    appender.finish()


def csv_lines(
    entities: Iterator[RawEntity],
    columns: Sequence[tuple[str, EdmType]],
    keys: Sequence[str],
    *,
    with_types: bool = True,
) -> Iterator[bytes]:
    yield header_line(columns, keys, with_types=with_types)
    for raw in entities:
        yield write_row(raw, columns, keys)


def spooled(path: Path) -> Iterator[RawEntity]:
    """The entities in a file of JSON lines."""
    with open_for_reading(str(path), ReadPosition()) as lines:
        for line in lines:
            yield orjson.loads(line)


@contextmanager
def _disk_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise TransferFailed(
                f"The disk is full while {path} is written; make room, and the same command continues."
            ) from None
        raise TransferFailed(f"{path} cannot be written: {error.strerror or error}.") from None


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
    return "table" if sys.stdout.isatty() else "jsonl"


def show(
    entities: Iterable[RawEntity],
    output: str,
    select: Sequence[str] = (),
    *,
    keys: Sequence[str] = (),
    mixed: Mixed = Mixed.COLUMNS,
) -> int:
    """Print entities and return their number. `keys` are the columns of CSV without a type, by default the keys met."""
    count = 0

    def counted() -> Iterator[RawEntity]:
        nonlocal count
        for raw in entities:
            count += 1
            yield raw

    if output == "table":
        _show_tables(counted(), select)
    elif output == "csv":
        _show_csv(counted(), select, keys, mixed)
    elif output == "yaml":
        _show_yaml(counted())
    else:
        for raw in counted():
            sys.stdout.write(write_line(raw).decode("utf-8"))
    return count


def _show_tables(entities: Iterable[RawEntity], select: Sequence[str]) -> None:
    """Print a table for every few hundred rows, so that rows appear as they arrive."""
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
            cells = [odata.property_of(raw, name) for name in names]
            table.add_row(
                *(Text(_cell(each), _COLOURS[each.type] if each else "") for each in cells)
            )
        console.print(table)


def _names(entities: Sequence[RawEntity]) -> list[str]:
    """The keys, then the properties in the order of their first occurrence."""
    found = dict.fromkeys((PARTITION_KEY, ROW_KEY))
    for raw in entities:
        found.update(dict.fromkeys(name for name in raw if odata.is_property(name)))
    return [name for name in found if any(name in raw for raw in entities)]


def _cell(value: EdmValue | None) -> str:
    text = shown_value(value).replace("\n", "⏎").replace("\r", "")
    return text if len(text) <= CELL_LENGTH_MAX else text[: CELL_LENGTH_MAX - 1] + "…"


def _show_csv(
    entities: Iterable[RawEntity], select: Sequence[str], keys: Sequence[str], mixed: Mixed
) -> None:
    """Read everything before the first line is printed: the header has all columns.

    A selected property that no entity has is a column without a type.
    """
    columns = Columns()
    met_keys = [name for name in (PARTITION_KEY, ROW_KEY) if name in select or not select]
    with tempfile.TemporaryDirectory(prefix="tablestone-") as directory:
        spool = Path(directory) / "entities.jsonl.zst"
        with spool.open("wb") as file:
            appender = CompressedAppender(file, ".zst")
            for number, raw in enumerate(entities, start=1):
                # The same for all entities: the selected keys, or both.
                met_keys = [name for name in (PARTITION_KEY, ROW_KEY) if name in raw]
                columns.add(raw)
                appender.write(write_line(raw))
                if number % ROWS_PER_FRAME == 0:
                    appender.finish()
            appender.finish()
        pairs = columns.pairs(mixed)
        met = {name for name, _ in pairs}
        absent = [name for name in select if odata.is_property(name) and name not in met]
        for line in csv_lines(spooled(spool), pairs, [*(keys or met_keys), *absent]):
            sys.stdout.write(line.decode("utf-8"))


def _show_yaml(entities: Iterable[RawEntity]) -> None:
    import yaml  # noqa: PLC0415 - only for this output

    for raw in entities:
        keys = (PARTITION_KEY, ROW_KEY, TIMESTAMP)
        names = [name for name in raw if name in keys or odata.is_property(name)]
        shown = {name: _plain(raw, name) for name in names}
        sys.stdout.write(yaml.safe_dump([shown], allow_unicode=True, sort_keys=False, width=4096))


def _plain(raw: RawEntity, name: str) -> Any:
    value = odata.property_of(raw, name)
    if value and value.type in (EdmType.DATE_TIME, EdmType.GEOGRAPHY_POINT):
        return shown_value(value)
    return value and value.value
