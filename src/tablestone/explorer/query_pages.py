"""The query bar: completions, the builder for filters, and saved queries. Knows filters; knows no entity."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from tablestone.explorer.filter_input import completions
from tablestone.explorer.grid_query import read_query
from tablestone.explorer.page_templates import account_of, path_to
from tablestone.explorer.posted_forms import PostedForm
from tablestone.explorer.property_forms import read_value
from tablestone.explorer.saved_queries import forget_query, save_query
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import is_identifier
from tablestone.model.filter_tree import print_literal
from tablestone.tools.formats.rows import TYPE_NAMES
from tablestone.tools.queries import prefix_filter
from tablestone.tools.refusals import TransferRefused

COMPARISONS: Final = (
    ("eq", "equal to"),
    ("ne", "not equal to"),
    ("gt", "greater than"),
    ("ge", "at least"),
    ("lt", "less than"),
    ("le", "at most"),
    ("prefix", "beginning with"),
)
"""The comparisons of the builder, in words."""
COMPLETED_LENGTH_MAX: Final = 32_768


def complete(request: Request) -> Response:
    """The completions at the caret, as JSON."""
    text = request.query_params.get("text", "")[:COMPLETED_LENGTH_MAX]
    caret = request.query_params.get("caret", "")
    position = int(caret) if caret.isascii() and caret.isdecimal() and len(caret) < 9 else len(text)
    # The browser counts UTF-16 units.
    units = text.encode("utf-16-le", "surrogatepass")[: 2 * position]
    at = len(units.decode("utf-16-le", "ignore"))
    seen = account_of(request).seen.of(request.path_params["table"])
    found = [
        {"text": each.text, "start": _units(text[: each.start]), "what": each.what}
        for each in completions(text, at, seen)
    ]
    return JSONResponse(found)


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def condition_of(name: str, comparison: str, kind: str, value: str) -> str:
    """A condition as OData; `TransferRefused` says which part of it is wrong."""
    if not is_identifier(name):
        raise TransferRefused(f"{name[:60]!r} is not the name of a property.")
    edm_type = TYPE_NAMES.get(kind)
    if edm_type is None or comparison not in dict(COMPARISONS):
        raise TransferRefused("The condition is not known.")
    if comparison == "prefix":
        if edm_type is not EdmType.STRING:
            raise TransferRefused("Only a String can begin with a text.")
        return prefix_filter(name, value)
    try:
        literal = read_value(name, value, edm_type)
    except ValueError as error:
        raise TransferRefused(f"{error}.") from None
    return f"{name} {comparison} {print_literal(EdmValue(*literal))}"


def save(request: Request, form: PostedForm) -> Response:
    """Keep the query of the address under a name."""
    table = request.path_params["table"]
    query = read_query(request.query_params)
    save_query(account_of(request).settings, table, form.text("name"), query)
    return RedirectResponse(path_to(request, "tables", table, **query.in_address), 303)


def forget(request: Request, form: PostedForm) -> Response:
    """Forget a saved query."""
    table = request.path_params["table"]
    forget_query(account_of(request).settings, table, form.text("name"))
    return RedirectResponse(path_to(request, "tables", table), 303)


SHOWN: Final = {"/tables/{table}/complete": complete}
POSTED: Final = {"/tables/{table}/save": save, "/tables/{table}/forget": forget}
