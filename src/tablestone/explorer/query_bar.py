"""The query bar: errors as the service's own parser finds them, plan, advice, completions, builder, saved queries."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from tablestone.advice.advising import advise_on_query
from tablestone.advice.filter_shape import with_stored_types
from tablestone.advice.rule import Advice
from tablestone.advice.workload import QueryUse, TableUse
from tablestone.explorer.account import SeenTypes
from tablestone.explorer.grid_query import forget_query, read_number
from tablestone.explorer.page_templates import PostedForm, account_of, ask, path_to
from tablestone.explorer.property_fields import read_value
from tablestone.model.edm import EdmType, utf16_length
from tablestone.model.entity import is_identifier
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import print_literal
from tablestone.model.operations import IndexFound
from tablestone.query.filter_lexer import CLOSE, END, INVALID, LITERAL, NAME, OPEN, tokens
from tablestone.query.filter_parser import parse_filter
from tablestone.query.plan import PlanKind
from tablestone.tools import queries
from tablestone.tools.errors import FieldRefused, ServiceError
from tablestone.tools.formats.rows import TYPE_NAMES

AROUND_LENGTH: Final = 60
"""Characters shown on each side of an error."""
COMPLETIONS_MAX: Final = 12
COMPLETED_LENGTH_MAX: Final = 32_768
NO_FUNCTIONS: Final = (
    "Only a Tablestone server that was started with --query-extensions true has startswith, endswith, contains and "
    "substringof. For the beginning of a text, every service has a range: Build a filter, “beginning with”."
)
_POSITION: Final = re.compile(r"position (\d+) in '|at '(\d+)' in '")
_JOINS: Final = ("and", "or")
_EXAMPLES: Final = {
    EdmType.STRING: "''",
    EdmType.INT32: "0",
    EdmType.INT64: "0L",
    EdmType.DOUBLE: "0.0",
    EdmType.BOOLEAN: "true",
    EdmType.DATE_TIME: "datetime'2026-01-01T00:00:00Z'",
    EdmType.GUID: "guid'00000000-0000-0000-0000-000000000000'",
    EdmType.BINARY: "X'00'",
    EdmType.GEOGRAPHY_POINT: "geography'SRID=4326;Point(0.0 0.0)'",
}
"""A literal of each type, for a property without a short example."""


class FilterProblem(NamedTuple):
    """An error in a filter: a sentence, the text on both sides of the position, and a hint."""

    sentence: str
    before: str = ""
    after: str = ""
    position: int | None = None
    hint: str = ""


class ShownPlan(NamedTuple):
    name: str
    is_scan: bool
    lines: list[str]


class Completion(NamedTuple):
    """A text that replaces what stands between `start` and the caret; `what` says what it is."""

    text: str
    start: int
    what: str


def filter_problem(text: str) -> FilterProblem | None:
    try:
        parse_filter(text, extended=True)
    except StorageError as error:
        return _located(text, error)
    return None


def _located(text: str, error: StorageError) -> FilterProblem:
    found = _POSITION.search(error.text)
    bare = queries.value_without_quotes(text)
    if found is not None:
        # The position counts UTF-16 units, as .NET does.
        position = int(found[1] or found[2])
    elif bare is not None:
        position = utf16_length(text[: bare.start])
    else:
        return FilterProblem(f"{error.code}: {error.text}")
    units = text.encode("utf-16-le", "surrogatepass")
    before = units[: 2 * position].decode("utf-16-le", "replace")
    after = units[2 * position :].decode("utf-16-le", "replace")
    sentence = error.text.partition(" in '")[0].rstrip(".")
    return FilterProblem(
        f"{error.code}: {sentence}.",
        f"…{before[-AROUND_LENGTH:]}" if len(before) > AROUND_LENGTH else before,
        f"{after[:AROUND_LENGTH]}…" if len(after) > AROUND_LENGTH else after,
        position,
        queries.filter_hint(text, error),
    )


def refused_filter(text: str, error: BaseException | None) -> FilterProblem | None:
    """The service's own error about a filter that the explorer can read; None for any other failure."""
    if not text or not isinstance(error, ServiceError) or error.status not in (400, 501):
        return None
    try:
        parse_filter(text)
    except StorageError:
        return FilterProblem(str(error), hint=NO_FUNCTIONS)
    return FilterProblem(str(error))


def plan_of(text: str, indexes: Sequence[IndexFound] | None = None) -> ShownPlan:
    plan, by_index = queries.planned(parse_filter(text, extended=True), indexes)
    is_scan = plan.kind in (PlanKind.TABLE, PlanKind.PARTITION_RANGE) or (
        plan.kind is PlanKind.PARTITION and plan.residual is not None
    )
    return ShownPlan(
        queries.plan_name(plan.kind), is_scan and bool(text), queries.plan_lines(plan, by_index)
    )


def advice_on(
    table: TableUse,
    text: str,
    seen: Mapping[str, SeenTypes],
    known: frozenset[str] = frozenset(),
    indexes: Sequence[IndexFound] | None = None,
) -> list[Advice]:
    """Advice on the keys of a table for a valid filter; empty if the filter uses the present keys well.

    `known` are all properties of the entities, and `indexes` those of the table, if known. A number in the filter takes
    the type seen in the property: in `total gt 50`, 50 may be a Double.
    """
    stored = {name: next(iter(types)) for name, types in seen.items() if types}
    tree = parse_filter(text, extended=True)
    plan, _ = queries.planned(tree, indexes)
    use = QueryUse(None if tree is None else with_stored_types(tree, stored), plan=plan.kind)
    known_table = replace(table, known_properties=known, indexes=queries.within_partitions(indexes))
    return advise_on_query(use, known_table)


def completions(text: str, caret: int, seen: Mapping[str, SeenTypes]) -> list[Completion]:
    """The texts that fit at the caret: properties, operators, a value of the property, `and` and `or`."""
    before = text[:caret]
    word = re.search(r"[\w.':-]*$", before)
    start = word.start() if word else len(before)
    typed = before[start:].lower()
    found = [
        Completion(each, start, what)
        for each, what in _expected(before[:start], seen)
        if each.lower().startswith(typed) and each.lower() != typed
    ]
    return found[:COMPLETIONS_MAX]


def _expected(before: str, seen: Mapping[str, SeenTypes]) -> Iterator[tuple[str, str]]:
    """The texts that can follow, each with what it is."""
    read = [token for token in tokens(before) if token.kind != END]
    if any(token.kind == INVALID for token in read):
        return
    kind, value = read[-1][:2] if read else (OPEN, "")
    if kind == NAME and value in queries.OPERATORS:
        name = str(read[-2].value) if len(read) > 1 else ""
        for edm_type, example in seen.get(name, {}).items():
            literal = _EXAMPLES[edm_type] if example is None else print_literal(example)
            yield literal, edm_type.value.removeprefix("Edm.")
    elif kind in (LITERAL, CLOSE):
        yield from ((join, "join") for join in _JOINS)
    elif kind == OPEN or (kind == NAME and value in (*_JOINS, "not")):
        for name, types in seen.items():
            yield name, ", ".join(each.value.removeprefix("Edm.") for each in types)
        yield "not", "negation"
    elif kind == NAME:
        yield from ((operator, "comparison") for operator in queries.OPERATORS)


def complete(request: Request) -> Response:
    """The completions at the caret, as JSON. The browser counts UTF-16 units."""
    text = request.query_params.get("text", "")[:COMPLETED_LENGTH_MAX]
    caret = read_number(request.query_params.get("caret"))
    units = text.encode("utf-16-le", "surrogatepass")
    at = len(text) if caret is None else len(units[: 2 * caret].decode("utf-16-le", "ignore"))
    seen = account_of(request).seen.of(request.path_params["table"])
    return JSONResponse(
        [
            {"text": each.text, "start": utf16_length(text[: each.start]), "what": each.what}
            for each in completions(text, at, seen)
        ]
    )


def condition_of(name: str, comparison: str, kind: str, value: str) -> str:
    """A condition of the builder in OData. Raises `FieldRefused` if a part is wrong."""
    if not is_identifier(name):
        raise FieldRefused("property", f"{name[:60]!r} is not the name of a property.")
    edm_type = TYPE_NAMES.get(kind)
    if edm_type is None or comparison not in (*queries.OPERATORS, "prefix"):
        raise FieldRefused("comparison", "The condition is not known.")
    if comparison == "prefix":
        if edm_type is not EdmType.STRING:
            raise FieldRefused("kind", "Only a String can begin with a text.")
        return queries.prefix_filter(name, value)
    try:
        literal = read_value(name, value, edm_type)
    except ValueError as error:
        raise FieldRefused("value", f"{error}.") from None
    return f"{name} {comparison} {print_literal(literal)}"


def ask_forget(request: Request) -> Response:
    table, name = request.path_params["table"], request.query_params.get("name", "")
    back = path_to(request, "tables", table)
    return ask(request, f"Forget {name}", f"The query is saved for {table}.", "Forget it", back)


def forget(request: Request, form: PostedForm) -> Response:
    table = request.path_params["table"]
    forget_query(account_of(request).settings, table, form.text("name"))
    return RedirectResponse(path_to(request, "tables", table), 303)
