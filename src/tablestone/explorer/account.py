"""The account that the explorer shows: its endpoint, what may be done, and what was seen of its tables.

The connection has a secret, so no page is given this object: a page gets values of it. Knows the data tools; knows no
HTTP of the page.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final

from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tools import odata
from tablestone.tools.client import RawEntity, TableEndpoint
from tablestone.tools.connection import Connection
from tablestone.tools.queries import TableReader

TABLES_KEPT_MAX: Final = 200
"""Tables whose properties are remembered for completion."""
PROPERTIES_KEPT_MAX: Final = 1000
"""Properties of a table that are remembered."""
ATTEMPTS_MAX: Final = 3
"""Attempts of a request to a service that is busy or does not answer."""
PATIENCE_SECONDS: Final = 3.0
"""Seconds after which no further attempt begins: with the time of one request, a person waits for 18 s at most."""
EXAMPLE_LENGTH_MAX: Final = 60


@dataclass(frozen=True)
class ExplorerSettings:
    """The settings of an explorer. `admin_url` is the admin address of the server, if it has one.

    `read_only` refuses every change. `saved_queries` is the file of the saved queries.
    """

    connection: Connection
    read_only: bool = False
    admin_url: str | None = None
    saved_queries: Path | None = None


@dataclass
class SeenProperty:
    """A property that was seen in a table: its types, each with a short value of it, if there was one."""

    types: dict[EdmType, EdmValue | None] = field(default_factory=dict)


class SeenProperties:
    """The properties of the tables that were shown, for completion. Safe to use from several threads."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, dict[str, SeenProperty]] = OrderedDict()
        self._lock = Lock()

    def note(self, table: str, entities: Iterable[RawEntity]) -> None:
        """Remember the properties of entities."""
        with self._lock:
            seen = self._tables.setdefault(table.lower(), {})
            self._tables.move_to_end(table.lower())
            while len(self._tables) > TABLES_KEPT_MAX:
                self._tables.popitem(last=False)
            for raw in entities:
                for name in property_names(raw):
                    if raw[name] is None:
                        continue  # a name that an address selects, and that no entity has
                    if name in seen or len(seen) < PROPERTIES_KEPT_MAX:
                        _note_value(seen.setdefault(name, SeenProperty()), raw, name)

    def of(self, table: str) -> dict[str, SeenProperty]:
        """The properties that were seen in a table, the keys and Timestamp first."""
        found = {
            PARTITION_KEY: SeenProperty({EdmType.STRING: None}),
            ROW_KEY: SeenProperty({EdmType.STRING: None}),
            TIMESTAMP: SeenProperty({EdmType.DATE_TIME: None}),
        }
        with self._lock:
            seen = self._tables.get(table.lower(), {})
            return found | {name: SeenProperty(dict(each.types)) for name, each in seen.items()}


class ExploredAccount:
    """The open account. `close` releases the connections."""

    def __init__(self, settings: ExplorerSettings) -> None:
        self.settings = settings
        self.endpoint = TableEndpoint(
            settings.connection, is_asked_once=True, agent="tablestone-explorer"
        )
        self.seen = SeenProperties()

    def reader(self) -> TableReader:
        """A reader of tables that counts what it costs, and gives up soon: a person waits for it."""
        return TableReader(self.endpoint, attempts=ATTEMPTS_MAX, patience_seconds=PATIENCE_SECONDS)

    def close(self) -> None:
        """Release the connections."""
        self.endpoint.__exit__()


def property_names(raw: RawEntity) -> list[str]:
    """The names of an entity's properties, without keys, Timestamp and annotations. Any name passes, even a bad one."""
    return [
        name
        for name in raw
        if name not in (PARTITION_KEY, ROW_KEY, TIMESTAMP)
        and "@" not in name
        and not name.startswith("odata.")
    ]


def _note_value(seen: SeenProperty, raw: RawEntity, name: str) -> None:
    try:
        value = odata.property_of(raw, name)
    except ValueError:
        return
    if value is None or seen.types.get(value.type) is not None:
        return
    is_short = not isinstance(value.value, (str, bytes)) or len(value.value) <= EXAMPLE_LENGTH_MAX
    seen.types[value.type] = value if is_short else None
