"""Imports a file into a table, resumably, and writes the rows that cannot be stored to a file of rejects.

A rejected row is a JSON line with its number, the reason and its text. The journal keeps the length of that file, so a
resumed run writes no row twice.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Final

import orjson

from tablestone.clock import monotonic_seconds
from tablestone.tools.client import TableEndpoint
from tablestone.tools.errors import TransferFailed
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.rows import Rejected, Row
from tablestone.tools.progress import Progress, Reached, shown_bytes, shown_count, shown_entities
from tablestone.tools.resume_journal import Journal
from tablestone.tools.writing import OnConflict, TableWriter, Tally


class RejectFile:
    """The file of rejected rows. `kept` is its length by the journal of an earlier run; what is after it goes."""

    def __init__(self, path: Path, kept: int) -> None:
        self.path = path
        self.count = 0
        self._file: IO[bytes] | None = None
        with _failures_of(path):
            if kept and path.exists():
                self._file = path.open("r+b")
                self._file.truncate(min(kept, self._file.seek(0, os.SEEK_END)))
                self._file.seek(0, os.SEEK_END)
            elif not kept:
                path.unlink(missing_ok=True)

    def add(self, number: int, reason: str, text: str) -> None:
        with _failures_of(self.path):
            if self._file is None:
                self._file = self.path.open("wb")
            line = {"row": number, "reason": reason, "text": text}
            self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        self.count += 1

    def flush(self) -> int:
        if self._file is None:
            return 0
        with _failures_of(self.path):
            self._file.flush()
            return self._file.tell()

    def close(self) -> None:
        if self._file is not None:
            # The journal does not count rows that were not flushed: the next run writes them again.
            with suppress(OSError):
                self._file.close()


@contextmanager
def _failures_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TransferFailed(
            f"Rejected rows cannot be written to {path}: {error.strerror}. --rejects names another file."
        ) from None


WINDOW_ROWS: Final = 50_000
WINDOW_BYTES: Final = 64 * 1024 * 1024
WINDOW_SECONDS: Final = 2.0
"""A window ends at the first of these three. Then the import drains its requests and saves the journal."""
_LOOK_ROWS: Final = 100


@dataclass(frozen=True)
class ImportReport:
    """The result of an import over all its runs."""

    table: str
    created: bool
    rows: int
    stored: int
    skipped: int
    rejected: int
    bytes: int
    rejects: str | None
    resumed_after_row: int
    retries: int
    is_page: bool

    @property
    def sentences(self) -> list[str]:
        stored = shown_entities(self.stored)
        found = [f"{stored} stored in {self.table}, {shown_bytes(self.bytes)}."]
        if self.created:
            found.append(f"The table {self.table} was made.")
        if self.is_page:
            found.append(ONE_PAGE)
        if self.resumed_after_row:
            found.append(f"An earlier run had stored the rows up to {self.resumed_after_row:,}.")
        if self.skipped:
            taken = "its key was" if self.skipped == 1 else "their keys were"
            found.append(f"{shown_count(self.skipped, 'row')} skipped: {taken} taken.")
        if self.rejected:
            rows, reason = shown_count(self.rejected, "row"), "reason" + "s" * (self.rejected != 1)
            found.append(f"{rows} rejected, with the {reason} in {self.rejects}.")
        return found


ONE_PAGE: Final = "The file is one page of a longer list: its nextMarker names the next page."


@dataclass(eq=False)
class Import:
    endpoint: TableEndpoint
    table: str
    on_conflict: OnConflict
    _: KW_ONLY
    parallel: int
    journal: Journal | None
    rejects: RejectFile
    progress: Progress

    def __post_init__(self) -> None:
        state = self.journal.state if self.journal else {}
        self.after = int(state.get("after", 0))
        """The number of the last row that is stored, skipped or rejected."""
        self._resumed = self.after
        self.report: ImportReport | None = None
        """What was done, even by a run that failed; None if nothing was written."""
        self._taken = 0
        # Earlier runs may have sent rows up to this one. Not `after` plus a window: windows also end by the clock, so
        # those of two runs end at different rows.
        self._sent_earlier = int(state.get("sent", 0))
        # The earlier run stored everything, but was killed before its report.
        self._is_done = bool(state.get("done"))
        self._earlier = Tally(**state.get("tally", {}))

    def run(self, rows: Iterator[Row | Rejected], position: ReadPosition) -> ImportReport:
        """Store the rows. After `TransferFailed` or an interrupt, a later run continues from the journal."""
        if self._is_done:
            return self._report(self._earlier, position, created=False, retries=0)
        # Reading the first row checks header and schema, so that a refused file makes no table.
        rows = chain(list(islice(rows, 1)), rows)
        name, endpoint = self.table, self.endpoint
        created = not endpoint.table_exists(name) and endpoint.create_table(name)
        writer = TableWriter(
            endpoint,
            name,
            self.on_conflict,
            parallel=self.parallel,
            reject=lambda row, reason: self.rejects.add(row.number, reason, row.body.decode()),
            resumed=self.journal is not None and bool(self.journal.state),
            tell=lambda: self._tell(writer, position),
            has_header=position.has_header,
        )
        try:
            self._write(rows, writer)
        finally:
            writer.close()
            total, retries = self._earlier + writer.tally, writer.retry.retries
            self.report = self._report(total, position, created=created, retries=retries)
        return self.report

    def _report(
        self, total: Tally, position: ReadPosition, *, created: bool, retries: int
    ) -> ImportReport:
        return ImportReport(
            table=self.table,
            created=created,
            rows=total.rows,
            stored=total.stored + total.already,
            skipped=total.skipped,
            rejected=total.rejected,
            bytes=total.bytes,
            rejects=str(self.rejects.path) if total.rejected else None,
            resumed_after_row=self._resumed,
            retries=retries,
            is_page=position.is_page,
        )

    def _write(self, rows: Iterator[Row | Rejected], writer: TableWriter) -> None:
        in_window = window_bytes = 0
        until = monotonic_seconds() + WINDOW_SECONDS
        self._save(writer)
        number = self.after
        for row in rows:
            self._taken += 1
            number = row.number
            if row.number <= self._resumed:
                continue
            if isinstance(row, Rejected):
                self.rejects.add(*row)
                writer.count_rejected()
            else:
                writer.add(row)
                window_bytes += len(row.body)
            in_window += 1
            if (
                in_window >= WINDOW_ROWS
                or window_bytes >= WINDOW_BYTES
                or (in_window % _LOOK_ROWS == 0 and monotonic_seconds() >= until)
            ):
                writer.drain()
                self.after = row.number
                in_window = window_bytes = 0
                until = monotonic_seconds() + WINDOW_SECONDS
                if self._taken >= self._sent_earlier:
                    writer.resumed = False
                self._save(writer)
        writer.drain()
        self.after = number
        self._save(writer, done=True)

    def _save(self, writer: TableWriter, *, done: bool = False) -> None:
        if self.journal:
            self.journal.save(
                {
                    "after": self.after,
                    "sent": max(self._sent_earlier, self._taken + WINDOW_ROWS),
                    "tally": asdict(self._earlier + writer.tally),
                    "reject_bytes": self.rejects.flush(),
                    "done": done,
                }
            )

    def _tell(self, writer: TableWriter, position: ReadPosition) -> None:
        """Show the rows that are stored, skipped or rejected; the reader is ahead of them."""
        total = self._earlier + writer.tally
        self.progress.update(
            Reached(
                total.rows,
                total.bytes,
                total.rejected,
                position.position * total.rows // max(1, self._taken),
                position.size,
                self._earlier.rows,
            )
        )
