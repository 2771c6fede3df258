"""The position of `copy --follow`, stored in the target: the cursor, the run that follows, and remembered keys.

A table of the target has a marker row, and a partition for each source (its storage and scope) and account of the
target. The partition has a row with the position (the cursor, and the run that follows), and a row for each followed
table. They change in one transaction, or the rows of tables before the position. So after a kill at any moment, the
target has all changes up to the cursor, and the feed after the cursor deletes each remembered key that is missing.
"""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tablestone.clock import elapsed_seconds
from tablestone.model.keys import EntityKey
from tablestone.tools import odata
from tablestone.tools.client import Operation, Query, RawEntity, TableEndpoint
from tablestone.tools.copying import Side
from tablestone.tools.errors import ServiceError, TransferFailed, TransferRefused, Unreachable
from tablestone.tools.resume_journal import Journal
from tablestone.tools.retrying import BUSY_STATUSES
from tablestone.tools.writing import quoted

TABLE: Final = "TablestonePositions"
MARKER: Final = EntityKey("tablestone", "positions")
"""A table with this row has positions: it is not copied, compared or followed."""
KEYS_MAX: Final = 8
KEYS_LENGTH_MAX: Final = 32 * 1024
SAVE_SECONDS: Final = 1.0
"""Between two checks whether there is something to save."""
RENEW_SECONDS: Final = 10.0
FREE_SECONDS: Final = 30.0
"""A run that has not renewed its id for this long no longer follows."""
ROWS_PER_TRANSACTION: Final = 25
"""Rows of tables have 80 KiB at most."""
_POSITION: Final = "position"
_OF_TABLE: Final = "table "


def holds_positions(side: Side, table: str) -> bool:
    """Whether a table has the marker row; False if the caller may not read the table."""
    try:
        return side.get(table, MARKER) is not None
    except TransferFailed as failed:
        if failed.status not in (400, 403):
            raise
        return False


def tables_of_users(side: Side) -> list[str]:
    """The names of all tables except those of positions."""
    names = side(lambda endpoint: list(endpoint.table_names()))
    return [name for name in names if not holds_positions(side, name)]


def refuse_positions(side: Side, names: Iterable[str]) -> None:
    """`TransferRefused` if one of the names is a table of positions."""
    for name in names:
        if holds_positions(side, name):
            raise TransferRefused(
                f"{name} holds the positions of `copy --follow`, which are of use only where they are."
            )


@dataclass
class Followed:
    """A followed table: the state of its copy, and the keys last written to it, with their ETags."""

    name: str
    copy: dict[str, Any] = field(default_factory=dict)
    keys: dict[EntityKey, str] = field(default_factory=dict)
    looked: dict[EntityKey, str] = field(default_factory=dict)
    """The keys at the last check of the target: keys written since prove nothing about what was there before."""
    is_deleted_later: bool = False
    """The feed after the position deletes the table: an earlier run may have applied that."""

    @property
    def is_copied(self) -> bool:
        return bool(self.copy.get("copied"))

    def members(self) -> dict[str, Any]:
        """The members of its row besides the keys, with the newest remembered keys that fit."""
        state = "copied" if self.is_copied else "copying"
        members = {"Table": self.name, "State": state, "Copy": json.dumps(self.copy)}
        return {**members, "Keys": _written_keys(self.keys), "Looked": _written_keys(self.looked)}

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> "Followed":
        keys, looked = (
            {EntityKey(*key): etag for *key, etag in json.loads(members[name])}
            for name in ("Keys", "Looked")
        )
        return cls(members["Table"], json.loads(members["Copy"]), keys, looked)


def _written_keys(keys: Mapping[EntityKey, str]) -> str:
    kept = [[*key, etag] for key, etag in keys.items()]
    while len(text := json.dumps(kept)) > KEYS_LENGTH_MAX:
        del kept[0]
    return text


def tables_of_earlier(journal: Journal) -> dict[str, Followed]:
    """The tables in the journal of an earlier version, by lower-case name. It has a position, but no keys."""
    tables = journal.state.get("tables", {})
    return {name.lower(): Followed(name, dict(state)) for name, state in tables.items()}


def partition_of(cursor: str, account: str, names: Sequence[str]) -> str:
    """The partition of a position. A cursor begins with the source's storage id, its record's epoch, and the scope."""
    feed = cursor.partition(".")[0]
    packed = base64.urlsafe_b64decode(feed + "=" * (-len(feed) % 4))
    source = base64.urlsafe_b64encode(packed[:8] + packed[16:]).decode("ascii").rstrip("=")
    text = "\n".join(sorted({name.lower() for name in names}))
    followed = hashlib.sha256(text.encode()).hexdigest()[:16] if names else "all"
    return f"{source}.{account}.{followed}"


class Positions:
    """The position of one follower, and its right to follow.

    It watches the target's endpoint, so that writes are sent only while this run follows. Without `kept`, an endpoint
    for the position, which credentials for one table do not allow, the position is in the journal alone.
    """

    def __init__(
        self, journal: Journal, source_url: str, target: Side, kept: Side | None, table: str = TABLE
    ) -> None:
        self.cursor = ""
        """The target has all changes up to it."""
        self.applied = ""
        """The time of the last change that was applied."""
        self.tables: dict[str, Followed] = {}
        """By lower-case name."""
        self._journal, self._source_url, self._target = journal, source_url, target
        self._kept, self._table = kept, table
        self._run = secrets.token_hex(8)
        self._partition = ""
        self._etag: str | None = None
        self._holds = False
        self._sequence = self._confirmed = 0
        self._sent: tuple[dict[str, Any], list[Operation]] | None = None
        """What was sent with the last sequence number, until it is known to be stored."""
        self._renewed = 0.0
        self._saved = ("", "")
        self._changed: set[str] = set()
        self._dropped: set[str] = set()
        self._lost: TransferFailed | None = None
        self._lock = threading.RLock()
        self._ended = threading.Event()

    def find(self) -> list[RawEntity]:
        """The positions of all sources in the target."""
        if self._kept is None:
            return []
        try:
            if self._kept.get(self._table, MARKER):
                query = Query(self._table, f"RowKey eq {quoted(_POSITION)}")
                return list(self._kept.reader().entities(query))
            for _ in self._kept.reader().entities(Query(self._table, top=1)):
                raise TransferRefused(
                    f"{self._target.url} has a table {self._table} of its own, which the position would be in: "
                    "--position-table NAME names another."
                )
        except TransferFailed as failed:
            if failed.is_denied:
                self._kept = None
            elif failed.code not in ("TableNotFound", "TableBeingDeleted"):
                raise
        return []

    @property
    def is_in_journal(self) -> bool:
        return self._kept is None

    def take(self, partition: str, tell: Callable[[str], None]) -> bool:
        """Once no other run renews its id, read the position and become the run that follows; False without one."""
        self._partition = partition
        kept = self._kept
        rows = self._taken(kept, tell) if kept else self._journal.state.get("rows", {})
        if _POSITION not in rows:
            return False
        position = rows.pop(_POSITION)
        self.cursor, self.applied = position["Cursor"], position["Applied"]
        self._saved = self.cursor, self.applied
        for row in rows.values():
            followed = Followed.from_members(row)
            self.tables[followed.name.lower()] = followed
        self._etag = position.get(odata.ETAG)
        self._hold_from_now()
        return True

    def _taken(self, kept: Side, tell: Callable[[str], None]) -> dict[str, RawEntity]:
        """The rows of the position, after an earlier run has ended."""
        seen, since = "", elapsed_seconds()
        while (row := kept.get(self._table, self._key(_POSITION))) and not row["Ended"]:
            if seen and row[odata.ETAG] != seen:
                raise TransferRefused(
                    f"Another run of copy --follow writes into {self._target.url}: stop it, or wait for its end."
                )
            if not seen:
                seen = row[odata.ETAG]
                tell(
                    f"Another run has not said that it ended: waiting {FREE_SECONDS:.0f} s, in case it still runs."
                )
            elif elapsed_seconds() > since + FREE_SECONDS:
                break
            self._ended.wait(SAVE_SECONDS)
        if row is None:
            return {}
        query = Query(self._table, f"PartitionKey eq {quoted(self._partition)}")
        rows = {each["RowKey"]: each for each in kept.reader().entities(query)}
        # Keep the row with the ETag that was checked: if it changes now, another run began.
        return {**rows, _POSITION: row}

    def begin(self, cursor: str, tables: Sequence[Followed]) -> None:
        """Begin at another cursor, with these tables. Call it before the first of them is written."""
        if self._kept and not self._holds:
            self._kept(lambda endpoint: endpoint.create_table(self._table))
            marker = _written(MARKER, {"Format": 1})
            self._kept(lambda endpoint: endpoint.write(self._table, marker))
        with self._lock:  # no cursor is saved without its tables
            before = self.tables.keys()
            self.cursor = cursor
            self.tables = {followed.name.lower(): followed for followed in tables}
            self._dropped |= before - self.tables.keys()
            self._changed |= self.tables.keys()
        self._hold_from_now()

    def set_copy(self, followed: Followed, copy: dict[str, Any]) -> None:
        with self._lock:
            followed.copy = dict(copy)
            self._changed.add(followed.name.lower())
        self.save()

    def add(self, name: str) -> None:
        """Follow a table that the feed creates."""
        with self._lock:
            copy = {"begun": True, "copied": True}
            self.tables.setdefault(name.lower(), Followed(name, copy))
            self._changed.add(name.lower())

    def note_look(self) -> None:
        """Note that the check found all tables the same: the next check may use the keys of now."""
        with self._lock:
            for name, followed in self.tables.items():
                if followed.looked != followed.keys:
                    followed.looked = dict(followed.keys)
                    self._changed.add(name)

    def drop(self, name: str) -> None:
        """Forget a table that the source deleted."""
        with self._lock:
            if self.tables.pop(name.lower(), None):
                self._dropped.add(name.lower())

    def save(self) -> None:
        """Save the position; `TransferFailed` if this run no longer follows."""
        self._target(lambda _: self._write())

    def hold(self) -> None:
        """Renew the id of this run if that is due, so that no other run begins; raises if another one did."""
        with self._lock:
            if self._lost:
                raise self._lost
            if self._holds and self._kept and elapsed_seconds() > self._renewed + RENEW_SECONDS:
                self._write()

    def note(
        self, table: str, operations: Sequence[Operation], etags: Sequence[str | None]
    ) -> None:
        """Remember the keys last written to a table, and forget deleted ones."""
        with self._lock:
            followed = self.tables.get(table.lower())
            if followed is None:
                return
            for operation, etag in zip(operations, etags, strict=True):
                was = followed.keys.pop(operation.key, None)
                if operation.method != "DELETE" and etag:
                    followed.keys[operation.key] = etag
                elif was is None:
                    continue
                self._changed.add(table.lower())
            for key in list(followed.keys)[:-KEYS_MAX]:
                del followed.keys[key]

    def end(self) -> None:
        """Save the position, and let another run follow at once, or after a while if the target is away."""
        self._ended.set()
        if self._holds:
            with suppress(Unreachable, ServiceError, TransferFailed):
                self._write()

    def _hold_from_now(self) -> None:
        is_first, self._holds = not self._holds, True
        self.save()
        if self._kept and self._journal.state != {"position": self._partition}:
            self._journal.save({"position": self._partition})
        if is_first:
            threading.Thread(target=self._keep, name="position", daemon=True).start()

    def _keep(self) -> None:
        """Save changes and renew until the end. The run's next write raises a failure."""
        while not self._ended.wait(SAVE_SECONDS):
            with suppress(Unreachable, ServiceError, TransferFailed), self._lock:
                # Do not save a cursor that only left-out changes moved: two followers in opposite directions would
                # answer each other's positions without end.
                if self._changed or self._dropped or self._saved[1] != self.applied:
                    self._write()
                else:
                    self.hold()

    def _write(self) -> None:
        """Make one attempt to store the changes. The ETag of the position shows whether this run still follows."""
        with self._lock:
            if self._lost:
                raise self._lost
            changed, dropped = self._changed & self.tables.keys(), set(self._dropped)
            self._refill(changed)
            state = self.cursor, self.applied
            if self._kept is None:
                position = {"Cursor": self.cursor, "Applied": self.applied}
                tables = {name: each.members() for name, each in self.tables.items()}
                self._journal.save({"rows": {_POSITION: position, **tables}})
            else:
                self._write_rows(self._kept.endpoint, sorted(changed), dropped)
            self._changed -= changed
            self._dropped -= dropped
            self._saved = state

    def _write_rows(self, kept: TableEndpoint, changed: Sequence[str], dropped: set[str]) -> None:
        rows = [
            _written(self._key(_OF_TABLE + name), self.tables[name].members()) for name in changed
        ]
        while len(rows) > ROWS_PER_TRANSACTION:
            self._send(kept, self._saved[0], rows[:ROWS_PER_TRANSACTION])
            del rows[:ROWS_PER_TRANSACTION]
        self._send(kept, self.cursor, rows)
        # After a kill a row may stay: the source has no such table, so it does no harm.
        for name in dropped - self.tables.keys():
            deletion = Operation("DELETE", self._key(_OF_TABLE + name), if_match="*")
            with suppress(ServiceError):
                kept.write(self._table, deletion)

    def _send(self, kept: TableEndpoint, cursor: str, rows: list[Operation]) -> None:
        members = {
            "Cursor": cursor,
            "Applied": self.applied,
            "Run": self._run,
            "Ended": self._ended.is_set(),
            "Source": self._source_url,
        }
        # A retry of the same content has the same number: the attempt without an answer may have been stored.
        if self._sent != (members, rows):
            self._sequence, self._sent = self._sequence + 1, (members, rows)
        members = {**members, "Sequence": self._sequence}
        key, sent = self._key(_POSITION), elapsed_seconds()
        try:
            self._etag, *_ = kept.transact(self._table, [_written(key, members, self._etag), *rows])
        except ServiceError as error:
            if error.status in BUSY_STATUSES:
                raise
            if error.status not in (404, 409, 412):
                raise TransferFailed(f"{self._target.url} takes no position: {error}") from None
            found = None if error.code == "TableNotFound" else kept.get(self._table, key)
            number = found["Sequence"] if found and found["Run"] == self._run else 0
            if found is None or number <= self._confirmed:
                self._lost = TransferFailed(
                    f"The position of this run at {self._target.url} is gone, or was changed: the target was emptied, "
                    "restored or exchanged, or another run follows. The same command looks, and goes on."
                )
                raise self._lost from None
            self._etag, self._confirmed = found[odata.ETAG], number
            if number < self._sequence:  # an earlier attempt without an answer was stored
                self._send(kept, cursor, rows)
                return
        self._confirmed, self._sent, self._renewed = self._sequence, None, sent

    def _refill(self, changed: Iterable[str]) -> None:
        """Remember some keys of the target for each begun table that has none."""
        for name in changed:
            followed = self.tables[name]
            if followed.copy.get("begun") and not followed.keys:
                try:
                    page = self._target.endpoint.page(Query(followed.name, top=KEYS_MAX), None)
                except ServiceError as error:
                    if error.status != 404 and error.code != "TableBeingDeleted":
                        raise
                else:
                    followed.keys = {odata.key_of(raw): raw[odata.ETAG] for raw in page.entities}

    def _key(self, row: str) -> EntityKey:
        return EntityKey(self._partition, row)


def _written(key: EntityKey, members: Mapping[str, Any], etag: str | None = "*") -> Operation:
    """The write of a row: an insert if `etag` is None, else a replace."""
    body = json.dumps({"PartitionKey": key.partition_key, "RowKey": key.row_key, **members})
    method = "POST" if etag is None else "PUT"
    return Operation(method, key, body.encode(), if_match=None if etag == "*" else etag)
