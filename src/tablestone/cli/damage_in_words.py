"""A damaged data directory in words: its tables, what can be read of each, and what cannot.

Knows sentences; `tables.salvage` knows what they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tablestone.tables.salvage import LostEntity, Salvaged, SalvagedTable

NOTHING_READABLE: Final = (
    "the database is so damaged that nothing in it can be recognized: restore a backup"
)
KEYS_SHOWN: Final = 5
"""Lost entities of a table that a line names."""
PAGES_SHOWN: Final = 10
"""Damaged pages whose numbers a summary has. The first page has the number 1, as in SQLite."""


def losses(salvaged: Salvaged) -> list[str]:
    """The losses, a sentence each: one for each table that lost entities, then the rest."""
    lines = [_table(table) for table in salvaged.tables if table.lost]
    lines += [f"{words} cannot be read" for words in salvaged.other_losses]
    lines += [
        f"the name of the table with the id {table.table_id.hex()} cannot be read, its {_entities(table.entities)} can"
        for table in salvaged.tables
        if table.name is None and table.entities
    ]
    if salvaged.lost_writes:
        lines.append(
            "the write-ahead log is damaged: acknowledged writes that follow the damage are lost"
        )
    if not salvaged.is_complete:
        lines.append("the index of the keys is damaged: lost entities may be missing in this list")
    return lines


def sentences(salvaged: Salvaged) -> list[str]:
    """The damage of a database that is known to be damaged, a sentence each."""
    return losses(salvaged) or [
        "the structure of the database is damaged, but every entity in it can be read"
    ]


def pages(salvaged: Salvaged) -> str:
    """The damaged pages, for a summary; there may be more if the index is damaged, because nothing leads to them."""
    damaged = sorted(salvaged.damaged_pages)
    summary = f"{_at_least(salvaged)}{len(damaged):,} of {salvaged.pages:,} pages damaged"
    if not damaged:
        return summary
    numbers = ", ".join(map(str, damaged[:PAGES_SHOWN]))
    more = len(damaged) - PAGES_SHOWN
    word = "page" if len(damaged) == 1 else "pages"
    return f"{summary} ({word} {numbers}{f' and {more:,} more' if more > 0 else ''})"


def lost_entities(salvaged: Salvaged) -> str:
    """The number of lost entities, for a summary, or that nothing tells it."""
    if not salvaged.is_complete and not salvaged.lost:
        return "an unknown number of entities lost"
    return f"{_at_least(salvaged)}{_entities(salvaged.lost)} lost"


def _at_least(salvaged: Salvaged) -> str:
    return "" if salvaged.is_complete else "at least "


def name_of(table: SalvagedTable) -> str:
    """A table for a person: its name and its account, or its id."""
    if table.name is None:
        return f"the table with the id {table.table_id.hex()}"
    return f"table {table.name} of account {table.account}"


def keys_of(lost: Sequence[LostEntity]) -> str:
    """The first keys of lost entities, and the number of the others."""
    shown = "; ".join(
        f"PartitionKey={each.partition_key!r}, RowKey={each.row_key!r} ({each.reason})"
        for each in lost[:KEYS_SHOWN]
    )
    more = len(lost) - KEYS_SHOWN
    return f"{shown}; and {more:,} more" if more > 0 else shown


def _table(table: SalvagedTable) -> str:
    return (
        f"{name_of(table)}: {_entities(table.entities)} can be read, {len(table.lost):,} cannot: "
        f"{keys_of(table.lost)}"
    )


def _entities(number: int) -> str:
    return "1 entity" if number == 1 else f"{number:,} entities"
