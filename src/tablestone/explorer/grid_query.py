"""The query of the grid as it stands in an address: filter, selected properties, order and top. Pure.

Knows texts; an address may come from another person and hold anything, so each part is checked here. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tablestone.tools.queries import parse_order
from tablestone.tools.refusals import TransferRefused

TOP_MAX: Final = 10_000_000
NAMES_MAX: Final = 252
"""Names that can be selected: the properties of an entity."""


class QueryRefused(TransferRefused):
    """A part of a query that cannot be read; `field` is the parameter of the address that holds it."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


@dataclass(frozen=True)
class GridQuery:
    """A query as a person wrote it. `order` is `NAME` or `NAME desc`; `top` is None for all."""

    filter: str = ""
    select: tuple[str, ...] = ()
    order: str = ""
    top: int | None = None

    @property
    def in_address(self) -> dict[str, object]:
        """The parameters of an address with this query; those that are empty are left out by `path_to`."""
        return {
            "filter": self.filter,
            "select": ",".join(self.select),
            "order": self.order,
            "top": self.top,
        }

    @property
    def ordered_by(self) -> tuple[tuple[str, bool], ...]:
        """The property of the order and whether it is descending; empty without an order."""
        return parse_order((self.order,)) if self.order else ()


def read_query(parameters: Mapping[str, str]) -> GridQuery:
    """The query of an address; `QueryRefused` says which part cannot be read."""
    top = parameters.get("top", "").strip()
    if top and not (
        top.isascii() and top.isdecimal() and 0 < int(top[:9]) <= TOP_MAX and len(top) < 9
    ):
        raise QueryRefused("top", f"Top must be a number from 1 to {TOP_MAX:,}, not {top[:40]!r}.")
    query = GridQuery(
        filter=parameters.get("filter", "").strip(),
        select=read_names(parameters.get("select", "")),
        order=parameters.get("order", "").strip(),
        top=int(top) if top else None,
    )
    try:
        if query.order:
            parse_order((query.order,))
    except TransferRefused:
        sentence = f"Order must be a property, or a property and desc, not {query.order[:40]!r}."
        raise QueryRefused("order", sentence) from None
    return query


def read_names(text: str) -> tuple[str, ...]:
    """Names that commas separate, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if len(names) > NAMES_MAX:
        raise QueryRefused("select", f"At most {NAMES_MAX} properties can be selected.")
    return names
