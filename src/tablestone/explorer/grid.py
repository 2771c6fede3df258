"""The page of a table: the query bar, and the grid, which loads piece by piece as a person scrolls.

A piece begins at a continuation token, so neither the browser nor the explorer holds a whole table. The service sorts
by keys only: for another order, the explorer sorts the first `ORDERED_MAX` entities of the query and keeps the result.
"""

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from threading import Lock
from typing import Any, Final, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tablestone.advice.workload import TableUse
from tablestone.clock import monotonic_seconds
from tablestone.explorer import grid_query
from tablestone.explorer.account import (
    PROPERTIES_KEPT_MAX,
    TABLES_KEPT_MAX,
    ExploredAccount,
    SeenTypes,
    property_names,
)
from tablestone.explorer.page_templates import PostedForm, account_of, page, path_to, wants_part
from tablestone.explorer.property_fields import value_as_text
from tablestone.explorer.query_bar import (
    FilterProblem,
    advice_on,
    condition_of,
    filter_problem,
    plan_of,
    refused_filter,
)
from tablestone.explorer.selection import LANGUAGES
from tablestone.model import filter_tree
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.query.filter_parser import parse_filter
from tablestone.tools import odata
from tablestone.tools.client import ContinuationToken, Query, RawEntity
from tablestone.tools.errors import FieldRefused, TransferFailed, TransferRefused
from tablestone.tools.formats.rows import TYPE_NAMES
from tablestone.tools.queries import (
    LOOKED_AT,
    Cost,
    Met,
    Refinement,
    TableReader,
    all_of,
    checked_filter,
    mistyped,
)

CELL_LENGTH_MAX: Final = 120
"""Characters of a value in the grid. The panel of the entity shows the whole value."""
COLUMNS_MAX: Final = 24
"""Columns of a grid whose query selects none."""
ORDERED_MAX: Final = 10_000
ORDERS_KEPT: Final = 8
PIECE_ROWS: Final = 100
"""About three screens."""
PIECE_SECONDS_MAX: Final = 2.0
"""After this many seconds without an entity, the page asks whether to look further."""
PARAMETERS: Final = ("filter", "select", "order", "top", "after", "from", "kept", "columns")
"""The parameters of a piece; any others in an address are dropped."""
ASKED: Final = ("filter", "select", "order", "top")
"""The parameters of the query, which stay in the form even if they are wrong."""
BUILT: Final = ("property", "comparison", "value", "kind")
"""The fields of the builder, which stay in it likewise."""
_CONTROL_PICTURES: Final = str.maketrans({"\n": "⏎", "\r": "␍", "\t": "⇥", "\0": "␀"})


class Cell(NamedTuple):
    """A value in the grid. `kind` is its type without `Edm.`; both are empty if the property is absent."""

    text: str
    kind: str


class GridRow(NamedTuple):
    """An entity in the grid. `key` has both keys as JSON."""

    key: str
    partition_key: str
    row_key: str
    cells: list[Cell]


ABSENT: Final = Cell("", "")


def columns_of(
    entities: Iterable[RawEntity], known: Sequence[str], selected: Sequence[str]
) -> list[str]:
    """The columns: the selected ones; else those of earlier pieces, followed by new properties."""
    if selected:
        return list(selected)
    found = dict.fromkeys(known or (PARTITION_KEY, ROW_KEY))
    most = max(COLUMNS_MAX, len(known))
    for raw in entities:
        if len(found) >= most:
            break
        found.update(dict.fromkeys(property_names(raw)))
    names = list(found)[:most]
    return names if known or not any(TIMESTAMP in raw for raw in entities) else [*names, TIMESTAMP]


def rows_of(entities: Iterable[RawEntity], columns: Sequence[str]) -> list[GridRow]:
    found = []
    for raw in entities:
        keys = str(raw.get(PARTITION_KEY, "")), str(raw.get(ROW_KEY, ""))
        cells = [cell_of(raw, name) for name in columns]
        found.append(GridRow(orjson.dumps(keys).decode(), *keys, cells))
    return found


def cell_of(raw: RawEntity, name: str) -> Cell:
    """A property of an entity as a cell. A value that cannot be read is shown as it is."""
    try:
        value = odata.property_of(raw, name)
    except ValueError:
        return Cell(_short(str(raw[name])), "Unknown")
    if value is None:
        return ABSENT
    return Cell(_short(value_as_text(value)), value.type.value.removeprefix("Edm."))


def _short(text: str) -> str:
    if len(text) > CELL_LENGTH_MAX:
        text = text[: CELL_LENGTH_MAX - 1] + "…"
    return text.translate(_CONTROL_PICTURES)


class Piece(NamedTuple):
    """A piece of the grid: its entities, the parameters of the next piece, and its cost."""

    entities: Sequence[RawEntity]
    next_piece: dict[str, object] | None
    cost: Cost
    unordered: Sequence[str] = ()
    """The properties of the order that no entity has."""


class _Orders:
    """The last few sorted results, each under a random name."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, list[RawEntity]] = OrderedDict()
        self._lock = Lock()

    def keep(self, entities: list[RawEntity]) -> str:
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._kept[name] = entities
            while len(self._kept) > ORDERS_KEPT:
                self._kept.popitem(last=False)
        return name

    def of(self, name: str) -> list[RawEntity]:
        with self._lock:
            entities = self._kept.get(name)
        if entities is None:
            raise TransferRefused("This sorted result is gone: load the page again.")
        return entities


_orders: Final = _Orders()


def build(request: Request) -> Response:
    """Add a condition to the filter. A wrong condition stays in its form."""
    given = request.query_params
    name, value = given.get("property", "").strip(), given.get("value", "")
    comparison, kind = given.get("comparison", "eq"), given.get("kind", "String")
    try:
        condition = condition_of(name, comparison, kind, value)
    except FieldRefused as refused:
        return table(request, refused)
    together = all_of([given.get("filter", "").strip() or None, condition])
    return RedirectResponse(
        path_to(request, "tables", request.path_params["table"], filter=together), 303
    )


def save(request: Request, form: PostedForm) -> Response:
    """Save the query under a name. A wrong name stays in its form."""
    query = grid_query.read_query(request.query_params)
    name, settings = request.path_params["table"], account_of(request).settings
    try:
        grid_query.save_query(settings, name, form.text("name"), query)
    except TransferRefused as refused:
        return table(request, save_problem=str(refused), save_name=form.text("name"))
    return RedirectResponse(path_to(request, "tables", name, **query.in_address), 303)


def table(
    request: Request, build_problem: Any = None, *, save_problem: str = "", save_name: str = ""
) -> Response:
    """The page. `build_problem` is the error in a field of the builder, `save_problem` that of the name to save."""
    account = account_of(request)
    name = request.path_params["table"]
    field = "filter"
    try:
        query = grid_query.read_query(request.query_params)
        problem = filter_problem(query.filter)
    except FieldRefused as refused:
        field, query = refused.field, grid_query.GridQuery()
        problem = FilterProblem(str(refused))
    first: dict[str, Any] = {}
    try:
        first = {} if problem else _piece_values(request, account, name, query)
    except TransferFailed as failed:
        problem = refused_filter(query.filter, failed.__cause__)
        if problem is None:
            raise
    tree = None if problem or not query.filter else parse_filter(query.filter, extended=True)
    nothing = not problem and not first["rows"]
    if nothing and not filter_tree.property_names(tree) <= account.seen.of(name).keys():
        looked_at = account.reader().page(Query(name, top=LOOKED_AT), None)
        account.seen.note(name, looked_at.entities)
    seen = account.seen.of(name)
    overview = account.overview()
    # The advice depends on whether other requests, as the server counted them, need the present keys.
    use = overview.of(name).use or TableUse(name)
    indexes = account.endpoint.indexes(name)
    if indexes is not None and query.filter:
        use = replace(use, index_place=_index_place(account, name, use.storage))
    return page(
        request,
        "table.html",
        table=name,
        query=query,
        asked={each: request.query_params.get(each, "").strip() for each in ASKED},
        problem=problem,
        problem_in=field if problem else "",
        status=400 if build_problem or save_problem else None,
        plan=None if problem else plan_of(query.filter, indexes),
        indexes=indexes,
        advice=[] if problem else advice_on(use, query.filter, seen, _known(query, seen), indexes),
        typed={each: request.query_params.get(each, "") for each in BUILT},
        build_problem=build_problem,
        save_problem=save_problem,
        save_name=save_name,
        kinds=tuple(TYPE_NAMES),
        languages=LANGUAGES,
        saved=grid_query.queries_of(account.settings, name),
        seen=seen,
        ordered_max=ORDERED_MAX,
        overview=overview,
        expiry=account.expiry(name),
        first=first,
        unordered=first.get("unordered", ()),
        mistyped=list(mistyped(tree, seen, found=not nothing)),
        last_columns=account.columns.get(name.lower(), [PARTITION_KEY, ROW_KEY]),
    )


def _index_place(account: ExploredAccount, table: str, storage: str | None) -> str:
    """Where a person makes an index of the table; empty if a command does, which is known with its options."""
    parts = account.own_parts(table)
    if parts and parts.gate in ("ready", "first") and not account.settings.read_only:
        return f"on the tab {parts.tab}"
    return "" if storage is not None else "on the machine of the server"


def _known(query: grid_query.GridQuery, seen: Mapping[str, SeenTypes]) -> frozenset[str]:
    """All properties of the entities shown so far; empty if only part of them may have been seen."""
    is_part = bool(query.select) or len(seen) >= PROPERTIES_KEPT_MAX
    own = frozenset(seen) - {PARTITION_KEY, ROW_KEY, TIMESTAMP}
    return frozenset() if is_part or not own else own


def rows(request: Request) -> Response:
    """A piece of the grid. Opened as a page, its address redirects to the page of the table."""
    query = grid_query.read_query(request.query_params)
    checked_filter(query.filter)
    name = request.path_params["table"]
    values = _piece_values(request, account_of(request), name, query)
    if not wants_part(request):
        return RedirectResponse(path_to(request, "tables", name, **query.in_address), 303)
    return page(request, "rows.html", **values)


def _piece_values(
    request: Request, account: ExploredAccount, name: str, query: grid_query.GridQuery
) -> dict[str, Any]:
    started = monotonic_seconds()
    parameters = request.query_params
    start = grid_query.read_number(parameters.get("from")) or 0
    if query.ordered_by:
        piece = _ordered_piece(account, name, query, parameters.get("kept"), start)
    else:
        piece = _read_piece(
            account, name, query, grid_query.read_token(parameters.get("after")), start
        )
    account.seen.note(name, piece.entities)
    known = grid_query.read_names(parameters.get("columns", "")) or _first_columns(query)
    columns = columns_of(piece.entities, known, query.select)
    found = rows_of(piece.entities, columns)
    if len(account.columns) > TABLES_KEPT_MAX:
        account.columns.clear()
    account.columns[name.lower()] = columns
    following = None
    if piece.next_piece is not None:
        given = {**query.in_address, **piece.next_piece, "columns": ",".join(columns)}
        following = path_to(request, "tables", name, "rows", **given)
    given = {name: text for name, text in parameters.items() if name in PARAMETERS}
    return {
        "table": name,
        "columns": columns,
        "rows": found,
        "source": path_to(request, "tables", name, "rows", **given),
        "following": following,
        "cost": piece.cost,
        "unordered": piece.unordered,
        "milliseconds": round((monotonic_seconds() - started) * 1000),
    }


def _first_columns(query: grid_query.GridQuery) -> tuple[str, ...]:
    """The columns that come first in a sorted grid: the keys and the property of the order."""
    names = (PARTITION_KEY, ROW_KEY, *(name for name, _ in query.ordered_by))
    return tuple(dict.fromkeys(names)) if query.ordered_by else ()


def _asked(table: str, query: grid_query.GridQuery, top: int | None = None) -> Query:
    """The query for the service. It selects the keys and the property of the order too."""
    names = (PARTITION_KEY, ROW_KEY, *query.select, *(name for name, _ in query.ordered_by))
    select = tuple(dict.fromkeys(names)) if query.select else ()
    return Query(table, query.filter or None, select, top, counts_examined=True)


def _read_piece(
    account: ExploredAccount,
    name: str,
    query: grid_query.GridQuery,
    token: ContinuationToken | None,
    shown: int,
) -> Piece:
    """The entities from a token on, after `shown` others; none if a scan finds none within `PIECE_SECONDS_MAX`."""
    reader = account.reader()
    left = PIECE_ROWS if query.top is None else max(query.top - shown, 0)
    asked = _asked(name, query, min(PIECE_ROWS, left))
    started = monotonic_seconds()
    found = reader.page(asked, token)
    while (
        not found.entities
        and found.next_token is not None
        and monotonic_seconds() - started < PIECE_SECONDS_MAX
    ):
        found = reader.page(asked, found.next_token)
    shown += len(found.entities)
    next_piece: dict[str, object] | None = None
    if found.next_token is not None and (query.top is None or shown < query.top):
        next_piece = {"after": grid_query.write_token(found.next_token)}
        if query.top is not None:
            next_piece["from"] = shown
    return Piece(found.entities, next_piece, reader.cost)


def _ordered_piece(
    account: ExploredAccount, name: str, query: grid_query.GridQuery, kept: str | None, start: int
) -> Piece:
    cost = Cost()
    unordered: Sequence[str] = ()
    if kept is None:
        reader = account.reader()
        entities, unordered = in_order(reader, name, query)
        kept = _orders.keep(entities)
        cost = reader.cost
    else:
        entities = _orders.of(kept)
    end = start + PIECE_ROWS
    next_piece = {"kept": kept, "from": end} if end < len(entities) else None
    return Piece(entities[start:end], next_piece, cost, unordered)


def in_order(
    reader: TableReader, table: str, query: grid_query.GridQuery
) -> tuple[list[RawEntity], Sequence[str]]:
    """The first `ORDERED_MAX` entities of the query, sorted and cut to `top`; and ordering properties that none has."""
    met = Met(name for name, _ in query.ordered_by)
    read = met.watch(islice(reader.entities(_asked(table, query)), ORDERED_MAX))
    entities = list(Refinement(order_by=query.ordered_by, top=query.top).apply(read))
    return entities, met.missing
