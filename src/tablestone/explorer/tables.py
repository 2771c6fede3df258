"""The page with the tables of the account: find, create, delete and count them.

The protocol does not report sizes. A Tablestone server measures them in the background and reports them on its admin
address.
"""

from collections.abc import Mapping
from http import HTTPStatus
from itertools import islice
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tablestone.clock import monotonic_seconds
from tablestone.explorer.account import ExplorerSettings
from tablestone.explorer.grid_query import read_number, read_token, write_token
from tablestone.explorer.page_templates import PostedForm, account_of, page, path_to
from tablestone.insight.report import InsightReport, TableSize
from tablestone.model.keys import TABLE_NAME
from tablestone.tools.client import Query
from tablestone.tools.errors import ServiceError, TransferFailed, TransferRefused
from tablestone.tools.insight import ask_for_insight
from tablestone.tools.progress import shown_bytes
from tablestone.tools.queries import entity_bytes

TABLES_SHOWN_MAX: Final = 2000
COUNT_SECONDS_MAX: Final = 3.0
"""After so many seconds of counting, the page asks whether to go on."""
NOT_TOLD: Final = (
    "The protocol does not report the sizes of tables; the admin address of a Tablestone server "
    "does (--admin)."
)
NOT_COUNTED: Final = "not counted yet"
NOT_KNOWN: Final = "size not known"


class KnownSizes(NamedTuple):
    """The sizes by table name in lower case. `note` says why some are missing, and `instead` stands in their place."""

    sizes: Mapping[str, TableSize]
    note: str
    instead: str


def sizes_of(report: InsightReport) -> KnownSizes:
    sizes = {each.table.lower(): each.size for each in report.tables if each.size is not None}
    return KnownSizes(sizes, report.sizes_note, NOT_KNOWN if report.sizes_note else NOT_COUNTED)


def known_sizes(settings: ExplorerSettings) -> KnownSizes:
    """The sizes of the tables of an account; none without an admin address."""
    if settings.admin_url is None:
        return KnownSizes({}, NOT_TOLD, NOT_KNOWN)
    try:
        insight = ask_for_insight(settings.admin_url, account=settings.connection.account)
    except TransferFailed as failed:
        return KnownSizes({}, str(failed), NOT_KNOWN)
    return sizes_of(insight.report)


def tables(request: Request) -> Response:
    """The tables whose names contain the search text. If the connection is a signature of one table, go there.

    A caller that may not list tables may still read one: the search then opens the table of that name.
    """
    account = account_of(request)
    only = account.settings.connection.only_table
    if only:
        return RedirectResponse(path_to(request, "tables", only), 303)
    wanted = request.query_params.get("find", "").strip()
    found = (name for name in account.endpoint.table_names() if wanted.lower() in name.lower())
    refusal = ""
    shown: list[str] = []
    try:
        shown = list(islice(found, TABLES_SHOWN_MAX + 1))
    except ServiceError as error:
        # A wrong or expired signature (an authentication error) opens no table.
        if not error.code.startswith("Authorization"):
            raise
        if TABLE_NAME.fullmatch(wanted):
            return RedirectResponse(path_to(request, "tables", wanted), 303)
        refusal = str(error)
    return page(
        request,
        "tables.html",
        names=shown[:TABLES_SHOWN_MAX],
        known=known_sizes(account.settings),
        shown_bytes=shown_bytes,
        are_more=len(shown) > TABLES_SHOWN_MAX,
        shown_max=TABLES_SHOWN_MAX,
        find=wanted,
        refusal=refusal,
        status=HTTPStatus.FORBIDDEN if refusal else HTTPStatus.OK,
    )


def create(request: Request, form: PostedForm) -> Response:
    name = form.text("name").strip()
    if not name:
        raise TransferRefused("The new table needs a name.")
    if not account_of(request).endpoint.create_table(name):
        raise TransferRefused(f"The table {name} already exists.")
    return RedirectResponse(path_to(request, "tables", name), 303)


def ask_delete(request: Request) -> Response:
    return page(request, "delete_table.html")


def delete(request: Request, form: PostedForm) -> Response:
    """Delete a table if its name was typed."""
    name = request.path_params["table"]
    if form.text("typed") != name:
        problem = f"To delete the table, type its name: {name}."
        return page(request, "delete_table.html", problem=problem)
    account_of(request).endpoint.delete_table(name)
    return RedirectResponse(path_to(request), 303)


def size(request: Request) -> Response:
    """Count the entities of a table and their bytes for a few seconds, or go on with a count."""
    table = request.path_params["table"]
    reader = account_of(request).reader()
    token = read_token(request.query_params.get("after"))
    entities = read_number(request.query_params.get("entities")) or 0
    total = read_number(request.query_params.get("bytes")) or 0
    started = monotonic_seconds()
    while True:
        found = reader.page(Query(table), token)
        entities += len(found.entities)
        total += sum(map(entity_bytes, found.entities))
        token = found.next_token
        if token is None or monotonic_seconds() - started > COUNT_SECONDS_MAX:
            break
    further = None
    if token is not None:
        counted = {"after": write_token(token), "entities": entities, "bytes": total}
        further = path_to(request, "tables", table, "size", **counted)
    return page(request, "size.html", entities=entities, size=shown_bytes(total), further=further)
