"""Import a file and export what the grid shows, with the data tools and temporary files."""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response

from tablestone.explorer.grid import ORDERED_MAX, cell_of, columns_of, in_order
from tablestone.explorer.grid_query import GridQuery, read_query
from tablestone.explorer.page_templates import PostedForm, account_of, page, path_to
from tablestone.explorer.tables import NO_TABLE_NAME
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, TABLE_NAME, EntityKey
from tablestone.tools.client import ContinuationToken, Page, Query
from tablestone.tools.errors import FieldRefused, ServiceError, TransferFailed, TransferRefused
from tablestone.tools.exporting import Export, Target
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.reading_file import kind_of, read_rows
from tablestone.tools.formats.rows import Reading, Rejected, Row, parse_types
from tablestone.tools.importing import Import, ImportReport, RejectFile
from tablestone.tools.progress import Progress
from tablestone.tools.queries import Mixed, TableReader, checked_filter, without
from tablestone.tools.sample_data import load_sample_data
from tablestone.tools.writing import OnConflict

EXPORTED: Final = ("jsonl", "jsonl.gz", "csv", "parquet")
"""The formats of an export, by file name extension."""
REJECTS_SHOWN_MAX: Final = 20
REJECT_LENGTH_MAX: Final = 400
ROWS_LOOKED_AT: Final = 5
"""Rows of a file that are shown before it is imported."""
_PARALLEL: Final = 4
_PREFIX: Final = "tablestone-explorer-"


class ShownPages:
    """The entities of a query as the grid shows them, as pages for an export: in its order, at most `top`."""

    def __init__(self, reader: TableReader, query: GridQuery) -> None:
        self.cost = reader.cost
        self._reader = reader
        self._query = query

    def pages(self, query: Query, token: ContinuationToken | None = None) -> Iterator[Page]:
        """All pages from the token on; a sorted result is one page."""
        shown = self._query
        if not shown.ordered_by:
            yield from self._reader.pages(query._replace(top=shown.top), token)
            return
        entities, _ = in_order(self._reader, query.table, shown)
        chosen = (PARTITION_KEY, ROW_KEY, *shown.select)
        hidden = [name for name, _ in shown.ordered_by if shown.select and name not in chosen]
        yield Page(list(without(entities, hidden)), None, 0)


def ask_export(request: Request) -> Response:
    query = read_query(request.query_params)
    checked_filter(query.filter)
    return page(request, "export.html", query=query, ordered_max=ORDERED_MAX)


def download(request: Request) -> Response:
    """The entities of the query as a file, in the order of the grid and at most `top`."""
    query = read_query(request.query_params)
    table = request.path_params["table"]
    ending = request.query_params.get("kind", "jsonl")
    if ending not in EXPORTED:
        raise TransferRefused(f"Unknown export format {ending[:40]}.")
    select = tuple(dict.fromkeys((PARTITION_KEY, ROW_KEY, *query.select)))
    asked = Query(table, checked_filter(query.filter), select if query.select else ())
    with ExitStack() as files:
        directory = files.enter_context(
            tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
        )
        path = Path(directory) / f"entities.{ending}"
        target = Target(str(path), ending.partition(".")[0], Mixed.COLUMNS)
        shown = ShownPages(account_of(request).reader(), query)
        Export(shown, asked, target, journal=None, progress=Progress()).run()
        leave = BackgroundTask(files.pop_all().close)
    return FileResponse(path, filename=f"{table}.{ending}", background=leave)


def import_form(
    request: Request, problem: object = "", field: Callable[[str], str] = lambda _: "", **shown: Any
) -> Response:
    """The form; `field` returns the text of a field as it was typed. It asks for a table if the address has none."""
    conflicts = [each.value for each in OnConflict]
    shown = {"table": "", "problem": problem, "field": field, "done": (), **shown}
    return page(request, "import.html", conflicts=conflicts, **(shown | request.path_params))


def import_file(request: Request, form: PostedForm) -> Response:
    """Import a file, and report what was stored and what was rejected; with `look`, only show its first rows."""
    table = request.path_params.get("table", form.text("table").strip())
    file = form.file("file")
    if file is None or file.filename is None:
        return import_form(request, FieldRefused("file", "Choose a file first."), form.text)
    try:
        on_conflict = OnConflict(form.text("conflict", OnConflict.FAIL.value))
    except ValueError:
        raise TransferRefused("The action on a conflict is unknown.") from None
    name, wrong = Path(file.filename).name, "types"
    if TABLE_NAME.fullmatch(table) is None and not form.text("look"):
        return import_form(request, FieldRefused("table", NO_TABLE_NAME), form.text)
    try:
        reading = Reading(
            partition_key=form.text("partition_key").strip() or PARTITION_KEY,
            row_key=form.text("row_key").strip() or ROW_KEY,
            types=parse_types((form.text("types"),)),
        )
        wrong = "file"
        kind_of(name, None)
    except TransferRefused as refused:
        # The page has no field for the format.
        of_command = "^--types |, or name its format with --format| with --[a-z-]+"
        return _refused(request, form, re.sub(of_command, "", str(refused)), wrong)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as directory:
        path = Path(directory) / f"file{''.join(Path(name).suffixes[-2:])}"
        with path.open("wb") as copy:
            shutil.copyfileobj(file.file, copy)
        position = ReadPosition()
        rows = read_rows(str(path), reading, None, position)
        job = None
        try:
            if form.text("look"):
                first = list(islice(rows, ROWS_LOOKED_AT))
                return _first_rows(request, first, has_header=position.has_header)
            with closing(RejectFile(Path(directory) / "rejects.jsonl", 0)) as rejects:
                job = Import(
                    account_of(request).endpoint,
                    table,
                    on_conflict,
                    parallel=_PARALLEL,
                    journal=None,
                    rejects=rejects,
                    progress=Progress(),
                )
                report = job.run(rows, position)
        except (TransferRefused, TransferFailed, ServiceError) as error:
            # The sentence may name an option of the command, for which this page has a field.
            sentence = str(error).replace(str(path), name).partition(" --on-conflict")[0]
            sentence = re.sub(" with --[a-z-]+", "", sentence)
            if job is None:
                return _refused(request, form, sentence, "file")
            if job.report is None or not (job.report.rows or job.report.created):
                return import_form(request, f"{sentence} Nothing is stored.", form.text, status=409)
            done = list(_told(name, job.report))
            return import_form(request, sentence, form.text, status=409, done=done, changed=True)
        sentences = list(_told(name, report))
    return page(request, "done.html", changed=True, sentences=sentences, table=table)


def _refused(request: Request, form: PostedForm, sentence: str, wrong: str) -> Response:
    """The form with the reason; for a look at the first rows, the reason alone."""
    if form.text("look"):
        return page(request, "looked.html", told={"problems": [sentence]}, rows=[], columns={})
    return import_form(request, FieldRefused(wrong, sentence), form.text)


def _first_rows(request: Request, rows: list[Row | Rejected], *, has_header: bool) -> Response:
    """The first rows of a file with the types that would be stored, and why some cannot be stored."""
    raws = [orjson.loads(row.body) for row in rows if isinstance(row, Row)]
    numbers: dict[EntityKey, int] = {}
    problems = []
    for row in rows:
        if isinstance(row, Rejected):
            problems.append(f"Row {row.number} cannot be stored: {row.reason.rstrip('.')}.")
        elif (first := numbers.setdefault(row.key, row.number)) != row.number:
            problems.append(f"Row {row.number} has the keys of row {first}.")
    names = columns_of(raws, (), ())
    shown = [[cell_of(raw, name) for name in names] for raw in raws]
    kinds = [next((row[at].kind for row in shown if row[at].kind), "") for at in range(len(names))]
    columns = dict(zip(names, kinds, strict=True))
    told = {"problems": problems, "has_header": has_header}
    return page(request, "looked.html", rows=shown, columns=columns, told=told)


def load_sample(request: Request, _form: PostedForm) -> Response:
    """Fill an account without tables with the sample data of `tablestone demo`."""
    load_sample_data(account_of(request).endpoint)
    return RedirectResponse(path_to(request), 303)


def _told(name: str, report: ImportReport) -> Iterator[str]:
    """What an import did, and the first rows that it rejected: the page keeps no file of them."""
    stored, *others = replace(report, rejects="these lines").sentences
    yield f"{name}: {stored}"
    yield from others
    if report.rejects is not None:
        with Path(report.rejects).open(encoding="utf-8") as file:
            yield from (
                line.strip()[:REJECT_LENGTH_MAX] for line in islice(file, REJECTS_SHOWN_MAX)
            )
