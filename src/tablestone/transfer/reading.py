"""Entities of a table, page by page: the next page is read while this one is used. Counts the cost.

Knows pages and continuation tokens; does not know what is done with the entities.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tablestone.model.errors import StorageError
from tablestone.model.keys import PARTITION_KEY
from tablestone.query.filter_parser import parse_filter
from tablestone.transfer.refusals import TransferFailed, TransferRefused
from tablestone.transfer.retrying import ATTEMPTS_MAX, InFlight, Retry
from tablestone.transfer.service_errors import ServiceError
from tablestone.transfer.wire import Page, Query, RawEntity, TableEndpoint, Token, Walk, endless
from tablestone.transfer.writing import quoted

PAGES_AHEAD: Final = 1


@dataclass
class Cost:
    """The cost of reading: requests, entities and bytes received, and the number of retries."""

    requests: int = 0
    entities: int = 0
    bytes: int = 0
    retries: int = 0


def checked_filter(text: str | None) -> str | None:
    """The filter, if our parser reads it; the refusal has its sentence, with the position."""
    if text is None or not text.strip():
        return None
    try:
        parse_filter(text)
    except StorageError as error:
        raise TransferRefused(f"The filter cannot be read: {error.text}") from None
    return text


class TableReader:
    """Reads tables of one endpoint and counts what that takes. A request is tried up to `attempts` times.

    After `patience_seconds` no further attempt begins.
    """

    def __init__(
        self,
        endpoint: TableEndpoint,
        *,
        attempts: int = ATTEMPTS_MAX,
        patience_seconds: float | None = None,
    ) -> None:
        self.cost = Cost()
        self._endpoint = endpoint
        self._retry = Retry(
            InFlight(1 + PAGES_AHEAD), attempts=attempts, patience_seconds=patience_seconds
        )

    def page(self, query: Query, token: Token | None) -> Page:
        """One page, tried again while the service is busy."""
        try:
            page = self._retry(lambda: self._endpoint.page(query, token))
        except ServiceError as error:
            raise TransferFailed(f"{query.table}: {error}") from error
        self.cost.requests += 1
        self.cost.entities += len(page.entities)
        self.cost.bytes += page.size
        self.cost.retries = self._retry.retries
        return page

    def pages(self, query: Query, token: Token | None = None) -> Iterator[Page]:
        """All pages from the token on, the next one read ahead."""
        with ThreadPoolExecutor(PAGES_AHEAD, thread_name_prefix="read") as pool:
            walk = Walk()
            coming = pool.submit(self.page, query, token)
            while True:
                try:
                    page = coming.result()
                finally:
                    # A failure holds this frame and its callers'. If they held it too, they would end as garbage, in
                    # any thread: the other side of a comparison perhaps in the thread that its end waits for.
                    del coming
                if page.next_token is None:
                    yield page
                    return
                if walk.is_back_at(page.next_token):
                    raise endless(query.table)
                coming = pool.submit(self.page, query, page.next_token)
                try:
                    yield page
                except GeneratorExit:
                    coming.cancel()
                    raise

    def entities(self, query: Query) -> Iterator[RawEntity]:
        """All entities of a query in the order of keys; at most `query.top`, where it is given."""
        left = query.top
        for page in self.pages(query):
            yield from page.entities if left is None else page.entities[:left]
            if left is not None:
                left -= len(page.entities)
                if left <= 0:
                    return

    def partition_keys(self, table: str) -> Iterator[str]:
        """The distinct PartitionKeys, each found by a seek behind the one before."""
        last: str | None = None
        while True:
            behind = None if last is None else f"PartitionKey gt {quoted(last)}"
            asked = Query(table, behind, (PARTITION_KEY,), top=1)
            # A page may be empty and have a token: the service stops where a partition server's range ends.
            found = next(self.entities(asked), None)
            if found is None:
                return
            last = str(found[PARTITION_KEY])
            yield last
