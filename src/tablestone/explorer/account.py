"""The account that the explorer shows: its endpoint, what may be done, and the properties seen in its tables.

The connection has a secret, so no template gets these objects, only values of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
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

SeenTypes = dict[EdmType, EdmValue | None]
"""The types that a property was seen to have, each with a short value, or None if no value was short."""


@dataclass(frozen=True)
class ExplorerSettings:
    """The settings of an explorer. `admin_url` is the admin address of the server, if it has one.

    `read_only` refuses every change. `saved_queries` is the file of the saved queries; without it none are saved.
    """

    connection: Connection
    read_only: bool = False
    admin_url: str | None = None
    saved_queries: Path | None = None


class SeenProperties:
    """The properties of the tables that were shown, for completion. Safe to use from several threads."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, dict[str, SeenTypes]] = OrderedDict()
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
                        _note_value(seen.setdefault(name, {}), raw, name)

    def of(self, table: str) -> dict[str, SeenTypes]:
        """The properties that were seen in a table, the keys and Timestamp first."""
        found: dict[str, SeenTypes] = {
            PARTITION_KEY: {EdmType.STRING: None},
            ROW_KEY: {EdmType.STRING: None},
            TIMESTAMP: {EdmType.DATE_TIME: None},
        }
        with self._lock:
            seen = self._tables.get(table.lower(), {})
            return found | {name: dict(types) for name, types in seen.items()}


class ExploredAccount:
    """An open account."""

    def __init__(self, settings: ExplorerSettings) -> None:
        self.settings = settings
        self.endpoint = TableEndpoint(
            settings.connection, is_asked_once=True, agent="tablestone-explorer"
        )
        self.seen = SeenProperties()

    def reader(self) -> TableReader:
        """A reader of tables that counts what it costs, and gives up soon: a person waits for it."""
        return TableReader(self.endpoint, attempts=ATTEMPTS_MAX, patience_seconds=PATIENCE_SECONDS)


def property_names(raw: RawEntity) -> list[str]:
    """The names of an entity's properties, without keys, Timestamp and annotations; names may break the rules."""
    return [
        name
        for name in raw
        if name not in (PARTITION_KEY, ROW_KEY, TIMESTAMP)
        and "@" not in name
        and not name.startswith("odata.")
    ]


def _note_value(types: SeenTypes, raw: RawEntity, name: str) -> None:
    try:
        value = odata.property_of(raw, name)
    except ValueError:
        return
    if value is None or types.get(value.type) is not None:
        return
    is_short = not isinstance(value.value, (str, bytes)) or len(value.value) <= EXAMPLE_LENGTH_MAX
    types[value.type] = value if is_short else None
