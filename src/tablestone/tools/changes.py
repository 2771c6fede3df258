"""Reads a feed of changes (docs/protocol/changes.md) page by page, to its end or without end."""

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from tablestone.clock import monotonic_seconds
from tablestone.tools.client import TableEndpoint
from tablestone.tools.errors import ServiceError, TransferFailed
from tablestone.tools.retrying import InFlight, Retry

WAIT_SECONDS: Final = 30
"""How long a request waits for a change: less than the 60 s after which the client gives up."""
PAUSE_SECONDS: Final = 1.0
"""Between two requests if the service answers at once without a change: it may be stopping."""


class ChangesPage(NamedTuple):
    """The lines of one answer, each a JSON object, and the cursor after them."""

    lines: list[bytes]
    cursor: str
    is_last: bool
    """Whether the feed had no change after the page when it was read."""


def pages_of_changes(
    endpoint: TableEndpoint,
    table: str | None,
    since: str | None,
    *,
    follows: bool,
    retry: Retry | None = None,
) -> Iterator[ChangesPage]:
    """The pages of a table's feed, or of the account's, after `since`; with `follows` they do not end.

    A page may be empty though others follow: it examines a bounded number of commits, perhaps all of other tables.
    """
    retry = retry or Retry(InFlight(1))
    wait = 0
    while True:
        asked = monotonic_seconds()
        try:
            lines, cursor, has_more = retry(lambda: endpoint.changes(table, since, wait))  # noqa: B023 - called at once
        except ServiceError as error:
            raise TransferFailed(_sentence(endpoint.connection.url, table, error)) from error
        yield ChangesPage(lines, cursor, not has_more)
        if not has_more and not follows:
            return
        if wait and not lines and monotonic_seconds() < asked + PAUSE_SECONDS:
            time.sleep(PAUSE_SECONDS)
        wait = 0 if has_more else WAIT_SECONDS
        since = cursor


def _sentence(url: str, table: str | None, error: ServiceError) -> str:
    """Why there is no page. The service itself says what is wrong with `since`, and how to begin again."""
    if error.code in ("InvalidQueryParameterValue", "") and "since" not in error.text:
        return f"{url} has no feed of changes: a Tablestone server with --keep-changes has one."
    if error.code == "TableNotFound":
        return f"{url} has no table {table}, or not any more."
    return f"{url} answers {error}"
