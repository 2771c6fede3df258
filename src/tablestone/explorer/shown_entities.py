"""The entities that the grid shows of a query, for its pieces and for an export: in another order, or the first ones.

The service has the order of keys only, so another order is made here, of the first entities that the filter finds.
Knows queries and pages; knows no row of the grid and no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from tablestone.explorer.grid_query import GridQuery
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tools.client import Page, Query, RawEntity, Token
from tablestone.tools.queries import Refinement, without
from tablestone.tools.reading import TableReader

ORDERED_MAX: Final = 10_000
"""Entities that are put in order here: the service has one order only."""


def asked_properties(query: GridQuery) -> tuple[str, ...]:
    """The properties to ask for, empty for all: also the keys, which name the entity, and the property of the order."""
    names = (PARTITION_KEY, ROW_KEY, *query.select, *(name for name, _ in query.ordered_by))
    return tuple(dict.fromkeys(names)) if query.select else ()


def in_order(reader: TableReader, table: str, query: GridQuery) -> list[RawEntity]:
    """The first `ORDERED_MAX` entities of the query in its order, at most `top` of them."""
    asked = Query(table, query.filter or None, asked_properties(query))
    read = islice(reader.entities(asked), ORDERED_MAX)
    return list(Refinement(order_by=query.ordered_by, top=query.top).apply(read))


def absent_from(entities: Sequence[RawEntity], query: GridQuery) -> tuple[str, ...]:
    """The properties of the order that no entity has; none if there is no entity."""
    return tuple(
        name
        for name, _ in query.ordered_by
        if entities and not any(raw.get(name) is not None for raw in entities)
    )


class ShownPages:
    """The pages of what the grid shows of a query, as an export reads them: in its order, at most `top`."""

    def __init__(self, reader: TableReader, query: GridQuery) -> None:
        self.cost = reader.cost
        self._reader = reader
        self._query = query

    def pages(self, query: Query, token: Token | None = None) -> Iterator[Page]:
        """All pages from the token on; one page if there is an order."""
        given = self._query
        if given.ordered_by:
            chosen = (PARTITION_KEY, ROW_KEY, *given.select)
            hidden = [name for name, _ in given.ordered_by if given.select and name not in chosen]
            entities = without(in_order(self._reader, query.table, given), hidden)
            yield Page(list(entities), None, 0)
            return
        left = given.top
        for page in self._reader.pages(query, token):
            if left is None or len(page.entities) < left:
                yield page
                left = None if left is None else left - len(page.entities)
            else:
                yield page._replace(entities=page.entities[:left], next_token=None)
                return
