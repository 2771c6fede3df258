"""An export: a table, or the entities that a filter finds, into a file. It can be resumed; the file is whole or absent.

JSON lines are written as pages come. CSV and Parquet need all columns first: entities wait in a compressed file of
JSON lines beside the target, and are converted when all have come. A journal keeps the continuation token and the
length of what is written; a run that goes on cuts the file there. Knows formats and journal; does not know options.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import orjson

from tablestone.model.edm import EdmType
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.transfer.columns import Columns, Mixed
from tablestone.transfer.formats import json_lines
from tablestone.transfer.formats.compressed import (
    CompressedAppender,
    ReadPosition,
    open_for_reading,
    split_name,
)
from tablestone.transfer.journal import Journal
from tablestone.transfer.progress import Progress
from tablestone.transfer.reading import TableReader
from tablestone.transfer.refusals import TransferFailed
from tablestone.transfer.wire import Query, RawEntity

PAGES_PER_CHECKPOINT: Final = 20
SPOOL_SUFFIX: Final = ".part.jsonl.zst"


@dataclass(frozen=True)
class ExportReport:
    """The result of an export, over all of its runs."""

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

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that every entity has."""
        return (PARTITION_KEY, ROW_KEY, *((TIMESTAMP,) if self.with_timestamp else ()))

    @property
    def needs_columns(self) -> bool:
        return self.kind in ("csv", "parquet")


class Export:
    """One export into one file."""

    def __init__(
        self,
        reader: TableReader,
        query: Query,
        target: Target,
        *,
        journal: Journal | None,
        progress: Progress,
    ) -> None:
        self._reader, self._query, self._target = reader, query, target
        self._journal, self._progress = journal, progress
        path = target.path
        self._waiting = Path(path + (SPOOL_SUFFIX if target.needs_columns else ".part"))
        self._compression = ".zst" if target.needs_columns else split_name(path)[1]
        self._state = self._trusted(journal.state if journal else {})
        self._columns = Columns(self._state)

    def run(self) -> ExportReport:
        """Write the file; `TransferFailed` or an interrupt leaves a journal to go on with."""
        resumed = int(self._state.get("entities", 0))
        with _disk_errors(self._target.path):
            if not self._state.get("read"):
                self._read()
            self._finish()
        if self._journal:
            self._journal.finish()
        return ExportReport(
            self._query.table,
            self._target.path,
            int(self._state["entities"]),
            self._reader.cost.bytes,
            Path(self._target.path).stat().st_size,
            resumed,
            self._reader.cost.retries,
        )

    def _trusted(self, state: dict[str, Any]) -> dict[str, Any]:
        """The journal's state, if the file that it speaks of is there and long enough."""
        try:
            length = self._waiting.stat().st_size
        except OSError:
            length = -1
        return dict(state) if length >= int(state.get("length", 0)) else {}

    def _read(self) -> None:
        kept = int(self._state.get("length", 0))
        token = self._state.get("token")
        entities = int(self._state.get("entities", 0))
        with self._waiting.open("r+b" if kept else "wb") as file:
            file.truncate(kept)
            file.seek(kept)
            appender = CompressedAppender(file, self._compression)
            pages = self._reader.pages(self._query, tuple(token) if token else None)
            for number, page in enumerate(pages, start=1):
                for raw in page.entities:
                    appender.write(json_lines.write_line(raw))
                    if self._target.needs_columns:
                        self._columns.add(raw)
                entities += len(page.entities)
                self._progress.update(entities, self._reader.cost.bytes)
                if number % PAGES_PER_CHECKPOINT == 0 or page.next_token is None:
                    appender.finish()
                    self._checkpoint(file, page.next_token, entities)

    def _checkpoint(self, file: IO[bytes], token: tuple[str, str] | None, entities: int) -> None:
        os.fsync(file.fileno())
        self._state = {
            "length": file.tell(),
            "token": token,
            "entities": entities,
            "read": token is None,
            **self._columns.state(),
        }
        if self._journal:
            self._journal.save(self._state)

    def _finish(self) -> None:
        """Give the file its name, converted first where it is of columns."""
        done = Path(self._target.path)
        if not self._target.needs_columns:
            self._waiting.replace(done)
            return
        converted = done.with_name(done.name + ".part")
        with converted.open("wb") as file:
            convert(self._waiting, file, self._target, self._columns)
            file.flush()
            os.fsync(file.fileno())
        converted.replace(done)
        self._waiting.unlink()


def convert(spool: Path, file: IO[bytes], target: Target, columns: Columns) -> None:
    """JSON lines of entities as CSV or Parquet."""
    if target.kind == "parquet":
        from tablestone.transfer.formats import parquet  # noqa: PLC0415 - pyarrow loads slowly

        fields = [
            (title, parquet.Field(name, kind, least, greatest, bool(has_ticks)))
            for title, name, kind, (_, least, greatest, has_ticks) in columns.titles(target.mixed)
        ]
        parquet.write_parquet(file, fields, spooled(spool), with_timestamp=target.with_timestamp)
        return
    appender = CompressedAppender(file, split_name(target.path)[1])
    for size, text in enumerate(
        csv_lines(spooled(spool), columns.pairs(target.mixed), target.keys), start=1
    ):
        appender.write(text)
        if size % 10_000 == 0:
            appender.finish()
    appender.finish()


def csv_lines(
    entities: Iterator[RawEntity], columns: Sequence[tuple[str, EdmType]], keys: Sequence[str]
) -> Iterator[bytes]:
    """The lines of a CSV file, the header first."""
    from tablestone.transfer.formats import csv_typed  # noqa: PLC0415 - pyarrow loads slowly

    yield csv_typed.header_line(columns, keys)
    for raw in entities:
        yield csv_typed.write_row(raw, columns, keys)


def spooled(path: Path) -> Iterator[RawEntity]:
    """The entities that wait in a file."""
    with open_for_reading(str(path), ReadPosition()) as lines:
        for line in lines:
            yield orjson.loads(line)


def export_to_stream(
    reader: TableReader,
    query: Query,
    target: Target,
    write: Callable[[bytes], object],
    spool: Path,
    progress: Progress,
) -> int:
    """The same to standard output: nothing to go on with. `spool` is a file for what needs columns first."""
    entities = 0
    columns = Columns()
    with spool.open("wb") as waiting:
        appender = CompressedAppender(waiting, ".zst")
        for page in reader.pages(query):
            for raw in page.entities:
                line = json_lines.write_line(raw)
                if target.needs_columns:
                    columns.add(raw)
                    appender.write(line)
                else:
                    write(line)
            entities += len(page.entities)
            progress.update(entities, reader.cost.bytes)
            appender.finish()
    if target.kind == "csv":
        for text in csv_lines(spooled(spool), columns.pairs(target.mixed), target.keys):
            write(text)
    return entities


@contextmanager
def _disk_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise TransferFailed(
                f"The disk is full while {path} is written; make room, and the same command goes on."
            ) from None
        raise TransferFailed(f"{path} cannot be written: {error.strerror or error}.") from None
