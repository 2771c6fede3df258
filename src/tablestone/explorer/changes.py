"""The last changes of a table, if its endpoint keeps a record of changes (docs/protocol/changes.md)."""

from itertools import islice
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.explorer.account import ATTEMPTS_MAX
from tablestone.explorer.page_templates import account_of, page
from tablestone.explorer.property_fields import fields_of
from tablestone.model.edm import format_date_time, parse_date_time
from tablestone.tools.changes import pages_of_changes
from tablestone.tools.client import TableEndpoint
from tablestone.tools.errors import read_json
from tablestone.tools.retrying import InFlight, Retry

SHOWN_MAX: Final = 100
READS_MAX: Final = 24
"""Start times to try for the last changes. Each costs two pages of the feed at most."""


class LastChanges(NamedTuple):
    """The feed since a time (None: all), oldest first. Without `has_newest`, it grows too fast: newer lines follow."""

    lines: list[bytes]
    since: str | None
    has_newest: bool = True


def changes(request: Request) -> Response:
    last = last_changes(account_of(request).endpoint, request.path_params["table"])
    read = [read_json(line) for line in reversed(last.lines[-SHOWN_MAX:])]
    shown = [
        (each, each.get("entity", each), fields_of(each["before"]) if "before" in each else None)
        for each in read
    ]
    are_all = last.since is None and len(last.lines) == len(shown)
    return page(request, "changes.html", shown=shown, last=last, are_all=are_all, most=SHOWN_MAX)


def last_changes(endpoint: TableEndpoint, table: str) -> LastChanges:
    """The newest changes. A feed reads only forwards, so this searches for a time that is right to start from.

    From there, two pages must hold all changes, and at least `SHOWN_MAX`. The span grows eightfold, then is bisected.
    """
    retry = Retry(InFlight(1), attempts=ATTEMPTS_MAX)

    def read(since: str | None) -> tuple[list[bytes], bool]:
        feed = pages_of_changes(endpoint, table, since, follows=False, retry=retry)
        pages = list(islice(feed, 2))
        return [line for each in pages for line in each.lines], pages[-1].is_last

    lines, is_whole = read(None)
    if is_whole:
        return LastChanges(lines, None)
    now = endpoint.service_time() or system_clock()
    oldest = parse_date_time(read_json(lines[0])["time"]) if lines else 0
    few, many, span = 0, now - oldest, TICKS_PER_SECOND
    found = LastChanges([], None, has_newest=False)
    for _ in range(READS_MAX):
        since = format_date_time(now - span)
        lines, is_whole = read(since)
        if is_whole or not found.has_newest:
            found = LastChanges(lines, since, is_whole)
        few, many = (span, many) if is_whole else (few, span)
        if is_whole and len(lines) >= SHOWN_MAX:
            break
        span = min(8 * span, (few + many) // 2)
    return found
