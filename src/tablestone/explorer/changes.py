"""The changes of a table, if its endpoint keeps a record of them (docs/protocol/changes.md).

The page shows the last ones, or those of a key or a kind, and goes on with those to come. A version that a line holds
can be put back: by the ordinary conditional write of the entity's panel. The feed has no caller.
"""

from collections.abc import Iterable, Sequence
from itertools import islice, takewhile
from threading import BoundedSemaphore
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from tablestone.clock import TICKS_PER_SECOND, monotonic_seconds, system_clock
from tablestone.explorer import entity_edit
from tablestone.explorer.account import ATTEMPTS_MAX
from tablestone.explorer.page_templates import account_of, page, path_to
from tablestone.explorer.property_fields import PropertyField, fields_of
from tablestone.model.edm import format_date_time, parse_date_time
from tablestone.model.keys import EntityKey
from tablestone.tools import odata
from tablestone.tools.changes import pages_of_changes
from tablestone.tools.client import RawEntity, TableEndpoint
from tablestone.tools.errors import read_json
from tablestone.tools.retrying import InFlight, Retry

SHOWN_MAX: Final = 100
READS_MAX: Final = 24
"""Start times to try for the last changes. Each costs two pages of the feed at most."""
SEARCHED_MAX: Final = 20_000
"""Lines that one search reads; then the page asks whether to go on."""
FOUND_MAX: Final = 200
SEARCH_SECONDS_MAX: Final = 5.0
WAIT_SECONDS: Final = 10
"""How long a page waits for a change: less than the time in which an answer must be complete."""
PAGES_AGAIN_MAX: Final = 3
"""Pages of the feed that are read again for the versions before a new change."""
WAITS_MAX: Final = 8
"""Pages that wait at a time. Each holds a thread; further ones ask every few seconds."""
KINDS: Final = ("put", "merge", "delete", "expired")
SAME_SHOWN: Final = 40
"""Characters of a long text that stand before its first change."""
UNADDED: Final = "The record does not say which properties it added."
GONE: Final = "The record of changes does not hold this version any more, so it cannot be put back."

_waits: Final = BoundedSemaphore(WAITS_MAX)


class LastChanges(NamedTuple):
    """The feed since a time (None: all), oldest first. Without `has_newest`, it grows too fast: newer lines follow."""

    lines: list[bytes]
    since: str | None
    cursor: str
    has_newest: bool = True


class MadeValue(NamedTuple):
    """A property of a change: what it was before, if that is known, and what it is now; None where it is absent."""

    name: str
    before: PropertyField | None
    after: PropertyField | None

    @property
    def is_changed(self) -> bool:
        return self.before != self.after

    @property
    def start(self) -> int:
        """Where both texts begin to be shown, so that a short part has their first difference."""
        if self.before is None or self.after is None:
            return 0
        one, other = self.before.text, self.after.text
        pairs = enumerate(zip(one, other, strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
        return same - SAME_SHOWN if same > 2 * SAME_SHOWN else 0


class ShownChange(NamedTuple):
    """A line of the feed. `etag` names the version that it made; empty if it made none. `note` says what is unknown.

    `is_compared`: the version before is known, so `values` are what it changed, and `others` what it did not.
    """

    time: str
    kind: str
    key: EntityKey
    etag: str = ""
    values: Sequence[MadeValue] = ()
    others: Sequence[MadeValue] = ()
    note: str = ""
    is_compared: bool = False


class Wanted(NamedTuple):
    """The keys and the kind of the changes to show; empty for all."""

    pk: str
    rk: str
    kind: str

    def has(self, key: EntityKey) -> bool:
        return self.pk in ("", key.partition_key) and self.rk in ("", key.row_key)


class _Reading:
    """Turns lines into changes, oldest first, and remembers the versions that it has seen."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._versions: dict[EntityKey, RawEntity] = {}

    def read(self, lines: Iterable[bytes], before: Iterable[bytes] = ()) -> list[ShownChange]:
        """The changes in the lines. `before` are earlier ones, for the versions in them."""
        wanted = self._wanted
        if "" in (wanted.pk, wanted.rk):
            self._versions.clear()  # those of one page at most
        self._changes(before)
        return [each for each in self._changes(lines) if wanted.kind in ("", each.kind)]

    def _changes(self, lines: Iterable[bytes]) -> list[ShownChange]:
        keyed = ((odata.key_of(line.get("entity") or line), line) for line in map(read_json, lines))
        return [self._change(key, line) for key, line in keyed if self._wanted.has(key)]

    def _change(self, key: EntityKey, line: dict[str, Any]) -> ShownChange:
        stored: RawEntity | None = line.get("entity")
        known = self._versions.pop(key, None)
        if stored is None:
            return ShownChange(
                line["time"], line["kind"], key, note="The record holds its key only."
            )
        self._versions[key] = stored
        before: RawEntity | None = line.get("before")
        note = ""
        if before and (known is None or known.get(odata.ETAG) != before.get(odata.ETAG)):
            known, note = None, UNADDED
        old, new = (
            {each.name: each for each in fields_of(raw)} for raw in (known or before or {}, stored)
        )
        names = dict.fromkeys((*new, *old))
        values = [MadeValue(name, old.get(name), new.get(name)) for name in names]
        if before:
            values = [each for each in values if each.name in before or (known and each.is_changed)]
        changed = [each for each in values if each.is_changed]
        others = [each for each in values if not each.is_changed]
        is_compared = bool(known or before)
        if is_compared and not (changed or note):
            note = "It changed no property."
        kind, etag = "merge" if before else "put", stored.get(odata.ETAG, "")
        return ShownChange(line["time"], kind, key, etag, changed, others, note, is_compared)


def changes(request: Request) -> Response:
    """The last changes, or a search from the oldest one or a cursor on."""
    given, table = request.query_params, request.path_params["table"]
    endpoint = account_of(request).endpoint
    wanted, since = _wanted(request), given.get("since")
    values: dict[str, Any] = {"wanted": wanted, "kinds": KINDS, "most": SHOWN_MAX, "last": None}
    reading = _Reading(wanted)
    if not any(wanted) and since is None:
        last = last_changes(endpoint, table)
        shown = reading.read(last.lines)[-SHOWN_MAX:]
        values |= {
            "last": last,
            "are_all": last.since is None and len(last.lines) == len(shown),
            "follows": last.has_newest,
        }
        cursor = last.cursor
    else:
        started, examined, shown, cursor = monotonic_seconds(), 0, [], since or ""
        retry = Retry(InFlight(1), attempts=ATTEMPTS_MAX)
        is_last = False
        for each in pages_of_changes(endpoint, table, since, follows=False, retry=retry):
            shown += reading.read(each.lines)
            examined += len(each.lines)
            cursor, is_last = each.cursor, each.is_last
            is_late = monotonic_seconds() - started > SEARCH_SECONDS_MAX
            if examined >= SEARCHED_MAX or len(shown) >= FOUND_MAX or is_late:
                break
        further = path_to(request, "tables", table, "changes", **wanted._asdict(), since=cursor)
        values |= {"examined": examined, "follows": is_last, "further": further, "since": since}
    return page(request, "changes.html", shown=shown[::-1], cursor=cursor, **values)


def wait(request: Request) -> Response:
    """The changes after a cursor, for the page that is open: waits for one if there is none yet.

    To say what they changed, it reads again what the page has, which begins at `from`.
    """
    endpoint, table = account_of(request).endpoint, request.path_params["table"]
    has_room = _waits.acquire(blocking=False)
    try:
        seconds = WAIT_SECONDS if has_room else 0
        lines, cursor, _ = endpoint.changes(table, request.query_params.get("since"), seconds)
    finally:
        if has_room:
            _waits.release()
    before: Iterable[bytes] = ()
    if lines and (start := request.query_params.get("from")):
        retry = Retry(InFlight(1), attempts=ATTEMPTS_MAX)
        feed = pages_of_changes(endpoint, table, start, follows=False, retry=retry)
        before = (line for each in islice(feed, PAGES_AGAIN_MAX) for line in each.lines)
        before = takewhile(lambda line: line != lines[0], before)
    shown = _Reading(_wanted(request)).read(lines, before)[::-1]
    return page(request, "changes_rows.html", shown=shown, cursor=cursor)


def version(request: Request) -> Response:
    """The version of an entity that a line of the feed holds, beside what is stored now."""
    given, table = request.query_params, request.path_params["table"]
    key = EntityKey(given.get("pk", ""), given.get("rk", ""))
    time, etag = given.get("time", ""), given.get("etag", "")
    stored = account_of(request).kept_version(table, key, etag, time)
    if stored is not None:
        return entity_edit.put_back(request, stored, time)
    return page(request, "problem.html", sentence=GONE, status=404)


def _wanted(request: Request) -> Wanted:
    given = request.query_params
    kind = given.get("kind", "")
    return Wanted(given.get("pk", ""), given.get("rk", ""), kind if kind in KINDS else "")


def last_changes(endpoint: TableEndpoint, table: str) -> LastChanges:
    """The newest changes. A feed reads only forwards, so this searches for a time that is right to start from.

    From there, two pages must hold all changes, and at least `SHOWN_MAX`. The span grows eightfold, then is bisected.
    """
    retry = Retry(InFlight(1), attempts=ATTEMPTS_MAX)

    def read(since: str | None) -> tuple[list[bytes], str, bool]:
        feed = pages_of_changes(endpoint, table, since, follows=False, retry=retry)
        pages = list(islice(feed, 2))
        return [line for each in pages for line in each.lines], pages[-1].cursor, pages[-1].is_last

    lines, cursor, is_whole = read(None)
    if is_whole:
        return LastChanges(lines, None, cursor)
    now = endpoint.service_time() or system_clock()
    oldest = parse_date_time(read_json(lines[0])["time"]) if lines else 0
    few, many, span = 0, now - oldest, TICKS_PER_SECOND
    found = LastChanges([], None, cursor, has_newest=False)
    for _ in range(READS_MAX):
        since = format_date_time(now - span)
        lines, cursor, is_whole = read(since)
        if is_whole or not found.has_newest:
            found = LastChanges(lines, since, cursor, is_whole)
        few, many = (span, many) if is_whole else (few, span)
        if is_whole and len(lines) >= SHOWN_MAX:
            break
        span = min(8 * span, (few + many) // 2)
    return found
