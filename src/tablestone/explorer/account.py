"""The account on display. Its connection holds a secret, so templates get single values and never these objects."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from tablestone.advice.workload import TableUse
from tablestone.clock import TICKS_PER_SECOND, monotonic_seconds, system_clock
from tablestone.insight.report import HOUR, TableInsight, TableSize
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import TIMESTAMP
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey
from tablestone.tools import odata
from tablestone.tools.changes import pages_of_changes
from tablestone.tools.client import OwnAnswer, RawEntity, TableEndpoint
from tablestone.tools.connection import Connection, Scheme
from tablestone.tools.errors import (
    ServiceError,
    TransferFailed,
    TransferRefused,
    Unreachable,
    read_json,
)
from tablestone.tools.insight import SCAN_RATIO, ask_for_insight, takes_large_share, workload_of
from tablestone.tools.queries import PAGES_AHEAD, TableReader
from tablestone.tools.retrying import InFlight, Retry

TABLES_KEPT_MAX: Final = 200
"""Tables whose properties completion remembers."""
PROPERTIES_KEPT_MAX: Final = 1000
"""Properties remembered for each table."""
ATTEMPTS_MAX: Final = 3
"""Attempts of a request while the service is busy or does not answer."""
PATIENCE_SECONDS: Final = 3.0
"""Seconds after which no further attempt begins. With one more request, a person waits 18 s at most."""
ASKED_AGAIN_SECONDS: Final = 60.0
"""How long to wait before asking again an endpoint that had no feed of changes."""
EXAMPLE_LENGTH_MAX: Final = 60
TABLES_SHOWN_MAX: Final = 2000
SCANNED_MIN: Final = 1000
"""A query that has read fewer entities is not worth a remark on its table."""
SHARE_REMARK: Final = "partition with a large share"
NO_SUCH_FORM: Final = (400, 405, 501)
"""How services answer a `comp` that they do not know."""
SILENT: Final = {"entities": None, "waits": False, "empty": False, "automatic": False}
"""The members of an index that the server leaves out if they say nothing."""
NOT_TOLD: Final = (
    "The protocol does not report the sizes of tables; the admin address of a Tablestone server "
    "does (--admin)."
)

SeenTypes = dict[EdmType, EdmValue | None]
"""The types seen of a property, each with an example; None if no value was short enough."""


@dataclass(frozen=True)
class ExplorerSettings:
    """One account. Without its server's `admin` address, sizes and heat are unknown; `read_only` refuses changes."""

    connection: Connection
    read_only: bool = False
    admin: str | None = None
    saved_queries: Path | None = None
    keys: int | None = None
    """How many keys the account has, if the explorer is that of its server."""
    stored: str | None = None
    """The options with which a command on the server's machine finds the account; None if it is not stored."""
    signs_with: str | None = field(repr=False, default=None)
    """The key of requests, if it is not the account's: that of the explorer beside a server."""
    storage: str = ""
    """The options with which such a command finds the tables; empty if none does."""


class KnownTable(NamedTuple):
    """What insight knows about a table: its size, its requests in the last hour, and remarks on its keys."""

    size: TableSize | None = None
    requests: int | None = None
    by_tools: int = 0
    """How many of the requests our tools sent: the explorer, `count`, `copy` and others."""
    remarks: tuple[str, ...] = ()
    use: TableUse | None = None
    """Its use as advice needs it; None if no request was counted, which says nothing about its keys."""


class Overview(NamedTuple):
    """The tables of an account; `known` is by name in lower case, and `note` says why sizes are missing."""

    names: list[str]
    known: Mapping[str, KnownTable]
    note: str

    def own_name(self, table: str) -> str:
        """The name of a table as it was created; an address may spell it in another case."""
        return next((name for name in self.names if name.lower() == table.lower()), table)

    def of(self, table: str) -> KnownTable:
        return self.known.get(table.lower(), KnownTable())


def known_tables(settings: ExplorerSettings) -> tuple[Mapping[str, KnownTable], str]:
    """What insight knows about each table, by name in lower case; and why sizes are missing."""
    if settings.admin is None:
        return {}, NOT_TOLD
    try:
        report, _ = ask_for_insight(settings.admin, account=settings.connection.account)
    except TransferFailed as failed:
        return {}, str(failed)
    marks = {
        (each.table, "Azure would throttle" if each.rate.is_throttled else SHARE_REMARK)
        for each in report.partitions[HOUR]
        if each.rate.is_throttled or takes_large_share(report, each, HOUR)
    }
    marks |= {
        (each.table, "a query scans")
        for each in report.queries[HOUR]
        if each.ratio >= SCAN_RATIO and each.azure_reads >= SCANNED_MIN and not each.from_tools
    }
    return {
        each.table.lower(): KnownTable(
            each.size,
            _requests(each) + each.tool_requests.get(HOUR, 0),
            each.tool_requests.get(HOUR, 0),
            tuple(sorted(mark for table, mark in marks if table == each.table)),
            use if use.queries or use.point_reads or use.writes.total else None,
        )
        for each, use in zip(report.tables, workload_of(report, HOUR).tables, strict=True)
    }, report.sizes_note


def _requests(table: TableInsight) -> int:
    activity = table.activity[HOUR]
    writes = table.write_requests.get(HOUR, activity.writes)
    return activity.reads + writes + activity.conflicts + activity.refused + activity.failed


class OwnParts(NamedTuple):
    """The indexes of a table and its expiry policy, as the server sends them; None where it has no such thing.

    `gate` says whether an index can be made: "ready", "first" (it changes the data directory for good), "closed".
    `refusal` is why the server shows neither, although it has them.
    """

    indexes: list[dict[str, Any]] | None
    gate: str
    expiry: dict[str, Any] | None
    refusal: str = ""
    can_keep_changes: bool = False

    @property
    def tab(self) -> str:
        """The word on the tab. Where a table has both, it names both: a newcomer looks for either."""
        if self.refusal or self.indexes is not None:
            return "Indexes and expiry"
        return "Expiry"

    @property
    def hides(self) -> bool:
        """Whether entities may be hidden, because they have expired."""
        return bool(self.expiry) and not (self.expiry or {}).get("suspended")


class SeenProperties:
    """The properties of the tables that were shown, for completion. Thread-safe."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, dict[str, SeenTypes]] = OrderedDict()
        self._lock = Lock()

    def note(self, table: str, entities: Iterable[RawEntity]) -> None:
        with self._lock:
            seen = self._tables.setdefault(table.lower(), {})
            self._tables.move_to_end(table.lower())
            while len(self._tables) > TABLES_KEPT_MAX:
                self._tables.popitem(last=False)
            for raw in entities:
                for name in property_names(raw):
                    if raw[name] is None:
                        continue  # selected in the address, but the entity does not have it
                    if name in seen or len(seen) < PROPERTIES_KEPT_MAX:
                        _note_value(seen.setdefault(name, {}), raw, name)

    def of(self, table: str) -> dict[str, SeenTypes]:
        """The properties seen in a table, after the keys and Timestamp."""
        found: dict[str, SeenTypes] = {
            PARTITION_KEY: {EdmType.STRING: None},
            ROW_KEY: {EdmType.STRING: None},
            TIMESTAMP: {EdmType.DATE_TIME: None},
        }
        with self._lock:
            seen = self._tables.get(table.lower(), {})
            return found | {name: dict(types) for name, types in seen.items()}


class ExploredAccount:
    def __init__(self, settings: ExplorerSettings) -> None:
        self.settings = settings
        connection = settings.connection
        if settings.signs_with is not None:
            connection = replace(connection, secret=settings.signs_with)
        self.endpoint = TableEndpoint(connection, is_asked_once=True, agent="tablestone-explorer")
        self.seen = SeenProperties()
        self.known_overview = Overview([], {}, "")
        """The overview that was shown last."""
        self.columns: dict[str, list[str]] = {}
        """The columns of each table, by name in lower case, when it was shown last."""
        self._no_changes_until = 0.0
        self._refused_parts: OwnParts | None = None
        """The answer until `_parts_asked_at`: none, or why there is none."""
        self._parts_asked_at = 0.0

    def overview(self, *, is_asked: bool = False) -> Overview:
        """The tables for the list beside every page. Raises the endpoint's error only if the list `is_asked` for."""
        names: list[str] = []
        try:
            names = list(islice(self.endpoint.table_names(), TABLES_SHOWN_MAX + 1))
        except (ServiceError, Unreachable, TransferFailed, TransferRefused):
            if is_asked:
                raise
        self.known_overview = Overview(names, *known_tables(self.settings))
        return self.known_overview

    def has_changes(self, table: str) -> bool:
        """Whether the endpoint has a feed of the table's changes. A "no" holds for `ASKED_AGAIN_SECONDS`."""
        if monotonic_seconds() < self._no_changes_until:
            return False
        try:
            self.endpoint.changes(table, "now", 0)
        except (ServiceError, Unreachable, TransferFailed):
            self._no_changes_until = monotonic_seconds() + ASKED_AGAIN_SECONDS
            return False
        return True

    def indexes_and_expiry(self, table: str) -> OwnParts | None:
        """What a Tablestone server has beside entities; None for other services, and callers that may not ask."""
        connection, now = self.settings.connection, monotonic_seconds()
        if connection.scheme is not Scheme.ACCOUNT_KEY:
            return None
        if now < self._parts_asked_at:
            return self._refused_parts
        found: list[OwnAnswer | None] = []
        for comp in ("indexes", "expiry"):
            try:
                found.append(self.endpoint.own_form("GET", table, comp))
            except ServiceError as error:
                if error.code == "SecureConnectionRequired":  # for the other one too
                    self._parts_asked_at = now + ASKED_AGAIN_SECONDS
                    self._refused_parts = OwnParts(None, "", None, error.text)
                    return self._refused_parts
                if error.status not in NO_SUCH_FORM:
                    raise
                found.append(None)  # an engine that keeps no indexes, or another service
            except TransferRefused:
                found.append(None)
        indexes, expiry = found
        if indexes is None and expiry is None:
            self._parts_asked_at, self._refused_parts = now + ASKED_AGAIN_SECONDS, None
            return None
        return OwnParts(
            indexes and [{**SILENT, **each} for each in indexes.members["indexes"]],
            (indexes and indexes.header) or "",
            expiry and expiry.members,
            can_keep_changes=bool(indexes and indexes.members.get("changes")),
        )

    def own_parts(self, table: str) -> OwnParts | None:
        """The same for the head of any page, which a failure leaves without them."""
        with suppress(ServiceError, Unreachable, TransferFailed):
            return self.indexes_and_expiry(table)
        return None

    def expiry(self, table: str) -> ExpiryPolicy | None:
        """When entities of the table expire; None if they do not, or the endpoint does not say."""
        with suppress(Unreachable, ServiceError):
            return self.endpoint.expiry(table)
        return None

    def policy_of_expired(self, table: str, raw: RawEntity) -> ExpiryPolicy | None:
        """The policy by which this version of an entity has expired, at the service's time; None if it has not."""
        policy = self.expiry(table)
        if policy is None:
            return None
        # The service tells its time without parts of a second.
        now = (self.endpoint.service_time() or system_clock()) + TICKS_PER_SECOND
        return policy if policy.has_ended(raw, now) else None

    def kept_version(self, table: str, key: EntityKey, etag: str, since: str) -> RawEntity | None:
        """The version of an entity with an ETag, made at or after a time, if the record of changes holds it."""
        retry = Retry(InFlight(1), attempts=ATTEMPTS_MAX)
        for each in pages_of_changes(self.endpoint, table, since, follows=False, retry=retry):
            for line in map(read_json, each.lines):
                stored: RawEntity = line.get("entity", {})
                if stored.get(odata.ETAG) == etag and odata.key_of(stored) == key:
                    return stored
            if each.lines and read_json(each.lines[-1])["time"] > since:
                break
        return None

    def reader(self) -> TableReader:
        """A reader of tables that counts its cost and gives up early, because a person is waiting."""
        in_flight = InFlight(1 + PAGES_AHEAD)
        retry = Retry(in_flight, attempts=ATTEMPTS_MAX, patience_seconds=PATIENCE_SECONDS)
        return TableReader(self.endpoint, retry)


def property_names(raw: RawEntity) -> list[str]:
    """The names of an entity's properties, unchecked, without keys, Timestamp and annotations."""
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
