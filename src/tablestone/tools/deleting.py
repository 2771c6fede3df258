"""Deletes the entities that a query finds, in transactions. An entity that changed after it was read stays."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from tablestone import limits
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tools import odata
from tablestone.tools.client import Operation, Query, RawEntity, TableEndpoint
from tablestone.tools.errors import ServiceError, TransferFailed
from tablestone.tools.progress import Progress, Reached
from tablestone.tools.queries import TableReader
from tablestone.tools.retrying import InFlight, Retry


@dataclass
class DeleteReport:
    """The result of a delete.

    `changed` entities were written after they were read, and stay. `uncertain` ones, a part of `deleted`, are gone, but
    no answer says that this command deleted them. Another client deleted the `gone` ones first.
    """

    table: str
    deleted: int = 0
    changed: int = 0
    uncertain: int = 0
    gone: int = 0


class Delete:
    def __init__(
        self, endpoint: TableEndpoint, query: Query, *, parallel: int, progress: Progress
    ) -> None:
        self.report = DeleteReport(query.table)
        self._endpoint, self._query, self._progress = endpoint, query, progress
        self._parallel = parallel
        self._reader = TableReader(endpoint)
        self._retry = Retry(InFlight(parallel))
        self._lock = threading.Lock()

    def run(self) -> DeleteReport:
        """Delete. An interrupt leaves the rest, and the same command continues."""
        query = self._query._replace(select=(PARTITION_KEY, ROW_KEY))
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="delete") as pool:
            try:
                for page in self._reader.pages(query):
                    futures: list[Future[None]] = []
                    for _, group in groupby(page.entities, key=itemgetter(PARTITION_KEY)):
                        rows = list(group)
                        for start in range(0, len(rows), limits.CHANGE_SET_OPERATIONS_MAX):
                            part = rows[start : start + limits.CHANGE_SET_OPERATIONS_MAX]
                            futures.append(pool.submit(self._delete, part))
                    for future in futures:
                        future.result()
                    self._progress.update(Reached(self.report.deleted, self._reader.cost.bytes))
            except BaseException:
                self._retry.stop.set()
                raise
        return self.report

    def _delete(self, entities: Sequence[RawEntity], *, uncertain: bool = False) -> None:
        """Delete entities of one partition. `uncertain`: an earlier attempt without an answer may have done it."""
        operations = [
            Operation("DELETE", odata.key_of(raw), if_match=raw.get(odata.ETAG, "*"))
            for raw in entities
        ]
        try:
            self._retry(lambda: self._endpoint.transact(self._query.table, operations))
        except ServiceError as error:
            uncertain = uncertain or error.is_uncertain
            if error.status not in (404, 412) or error.code == "TableNotFound":
                raise TransferFailed(f"{self._query.table}: {error}") from None
            if len(operations) > 1:
                # One of them changed or is gone. Others may be too, and would fail the transaction again.
                for raw in entities:
                    self._delete([raw], uncertain=uncertain)
            elif error.status == 412:
                self._count(changed=1)
            elif uncertain:
                self._count(deleted=1, uncertain=1)
            else:
                self._count(gone=1)
            return
        self._count(deleted=len(operations))

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                setattr(self.report, name, getattr(self.report, name) + number)
