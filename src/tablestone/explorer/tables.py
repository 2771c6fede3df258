"""The page that lists the tables of the account: find, create, delete and count them."""

from http import HTTPStatus
from itertools import islice
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tablestone.clock import monotonic_seconds
from tablestone.explorer.account import TABLES_SHOWN_MAX, ExploredAccount
from tablestone.explorer.grid_query import read_number, read_token, write_token
from tablestone.explorer.page_templates import PostedForm, account_of, page, path_to
from tablestone.model.keys import TABLE_NAME
from tablestone.tools.client import Query
from tablestone.tools.errors import FieldRefused, ServiceError
from tablestone.tools.queries import entity_bytes

NO_TABLE_NAME: Final = (
    "A table has a name of 3 to 63 letters and digits that begins with a letter, and is not Tables."
)
COUNT_SECONDS_MAX: Final = 3.0
"""After this many seconds of counting, the page asks whether to go on."""


def tables(request: Request) -> Response:
    """The tables whose names contain the search text. With a signature of one table, open that table.

    A caller that may not list tables may still read one, so the search then opens the table of that name.
    """
    account = account_of(request)
    only = account.settings.connection.only_table
    if only:
        return RedirectResponse(path_to(request, "tables", only), 303)
    wanted = request.query_params.get("find", "").strip()
    refusal = ""
    shown: list[str] = []
    try:
        shown = account.overview(is_asked=True).names
        if wanted:
            names = account.endpoint.table_names() if len(shown) > TABLES_SHOWN_MAX else shown
            found = (name for name in names if wanted.lower() in name.lower())
            shown = list(islice(found, TABLES_SHOWN_MAX + 1))
            if exact := next((name for name in shown if name.lower() == wanted.lower()), None):
                return RedirectResponse(path_to(request, "tables", exact), 303)
    except ServiceError as error:
        # With a wrong or expired signature, which is an error of authentication, no table can be read either.
        if not error.code.startswith("Authorization"):
            raise
        if TABLE_NAME.fullmatch(wanted):
            return RedirectResponse(path_to(request, "tables", wanted), 303)
        refusal = str(error)
    known = [account.known_overview.of(name) for name in shown]
    return page(
        request,
        "tables.html",
        names=shown[:TABLES_SHOWN_MAX],
        are_more=len(shown) > TABLES_SHOWN_MAX,
        shown_max=TABLES_SHOWN_MAX,
        find=wanted,
        overview=account.known_overview,
        refusal=refusal,
        ways=_ways(account, shown[0]) if shown else "",
        sizes=[each.size for each in known if each.size],
        most=max((each.requests or 0 for each in known), default=0) or 1,
        status=HTTPStatus.FORBIDDEN if refusal else HTTPStatus.OK,
    )


def _ways(account: ExploredAccount, table: str) -> str:
    """What a newcomer would not look for on a table's tabs, which have it if this service does."""
    writes, parts = not account.settings.read_only, account.own_parts(table)
    ways = []
    if account.has_changes(table):
        ways.append(f"show every change{', put an old version back' * writes}")
    if parts and parts.indexes is not None:
        ways.append("make indexes" if writes else "list indexes")
    if parts and parts.expiry is not None:
        ways.append("let entities expire" if writes else "say when entities expire")
    if account.settings.admin and ways:
        ways.append("show what is hot")
    if not ways:
        return ""
    *others, last = ways
    said = f"Its tabs {', '.join(others)}{' and ' * bool(others)}{last}."
    if parts and parts.can_keep_changes and not account.has_changes(table):
        said += (
            " With `serve --keep-changes 7d`, the server keeps every change, and a tab shows them."
        )
    return said


def create(request: Request, form: PostedForm) -> Response:
    name = form.text("name").strip()
    if TABLE_NAME.fullmatch(name) is None or name.lower() == "tables":
        raise FieldRefused("name", NO_TABLE_NAME)
    if not account_of(request).endpoint.create_table(name):
        raise FieldRefused("name", f"The table {name} exists already.")
    return RedirectResponse(path_to(request, "tables", name), 303)


def ask_delete(request: Request) -> Response:
    return page(request, "delete_table.html", typed="")


def delete(request: Request, form: PostedForm) -> Response:
    """Delete a table if its name was typed."""
    name = request.path_params["table"]
    if form.text("typed") != name:
        problem = f"To delete the table, type its name: {name}."
        return page(request, "delete_table.html", problem=problem, typed=form.text("typed"))
    account_of(request).endpoint.delete_table(name)
    return RedirectResponse(path_to(request), 303)


def size(request: Request) -> Response:
    """Count the entities of a table and their bytes for a few seconds, or continue a count."""
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
    counted = {"after": write_token(token), "entities": entities, "bytes": total}
    further = path_to(request, "tables", table, "size", **counted) if token else None
    return page(request, "size.html", entities=entities, bytes=total, further=further)
