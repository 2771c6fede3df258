"""Targets of throughput: entities a second of an account and of a partition, above which requests are refused.

Azure documents targets and answers 503 `ServerBusy` beyond them. Each share, an account or a partition, may save the
entities of one second. An operation begins if its shares have an entity left, and takes as many as it writes or
returns, so that after a large page or transaction others have to wait. Operations on tables and settings count one.
Knows no callers.
"""

import mmap
from collections.abc import Callable, Hashable
from typing import Final

from tablestone import limits
from tablestone.model import operations
from tablestone.model.errors import RETRY_AFTER, StorageError
from tablestone.model.keys import encode_key
from tablestone.query.plan import PlanKind, plan_query

SLOTS: Final = 65_536
"""Shares that are kept apart. Two that meet in one slot share it: this is rare and only costs time."""
_SLOT_NUMBERS: Final = 2
_NUMBER_BYTES: Final = 8
_ONE_PARTITION: Final = frozenset((PlanKind.POINT, PlanKind.ROW_RANGE, PlanKind.PARTITION))


class SharedSlots:
    """The rest of each share, in memory of a fixed size that all processes of a server share. Made before the fork.

    No process waits for another: if two take from a share at the same moment, one of them may cost nothing.
    """

    def __init__(self) -> None:
        memory = mmap.mmap(-1, SLOTS * _SLOT_NUMBERS * _NUMBER_BYTES)
        self.numbers = memoryview(memory).cast("d")
        """Two for each slot: the entities left, which may be below 0, and the time at which they were counted."""


class Allowances:
    """Entities at a `rate` a second for each share. `seconds` never steps back."""

    def __init__(self, rate: float, seconds: Callable[[], float], kept: SharedSlots) -> None:
        self._rate = rate
        self._seconds = seconds
        self._numbers = kept.numbers

    def spend(self, share: Hashable, number: int = 1, *, needs_one: bool = True) -> bool:
        """Take `number` from the share if it has one left; True if it had. The rest may be below 0."""
        # Without `needs_one`, always take: how much is read is known only afterwards.
        now = self._seconds()
        slot = _SLOT_NUMBERS * (hash(share) % SLOTS)
        since = self._numbers[slot + 1]
        left = self._rate
        if since:  # 0 in a slot that was never used
            left = min(left, self._numbers[slot] + (now - since) * self._rate)
        has_one = left >= 1
        if has_one or not needs_one:
            left -= number
        self._numbers[slot], self._numbers[slot + 1] = left, now
        return has_one


class Throughput:
    """The targets of each account and each partition, in entities a second; 0 is no target."""

    def __init__(
        self, account: int, partition: int, seconds: Callable[[], float], kept: SharedSlots
    ) -> None:
        self._account = Allowances(account, seconds, kept) if account else None
        self._partition = Allowances(partition, seconds, kept) if partition else None
        self.refused: dict[str, int] = {}
        """Requests that were refused, by the name of the target in metrics."""

    def begin(self, account: str, operation: operations.Operation) -> None:
        """Take what the operation needs at least. Raises `ServerBusy` beyond a target."""
        number = (
            len(operation.writes) if isinstance(operation, operations.EntityGroupTransaction) else 1
        )
        if self._partition is not None:
            partition = partition_of(account, operation)
            if partition is not None and not self._partition.spend(partition, number):
                raise self._busy("partition_target")
        if self._account is not None and not self._account.spend((account,), number):
            raise self._busy("account_target")

    def end(
        self, account: str, query: operations.QueryEntities, page: operations.EntitiesPage
    ) -> None:
        """Take the entities of a page, except the first, which `begin` has taken; for a count, those of one page.

        Otherwise one count of a large table would refuse all others for minutes.
        """
        number = max(0, min(page.found, limits.PAGE_ENTITIES_MAX) - 1)
        if self._account is not None:
            self._account.spend((account,), number, needs_one=False)
        if self._partition is not None:
            partition = partition_of(account, query)
            if partition is not None:
                self._partition.spend(partition, number, needs_one=False)

    def _busy(self, target: str) -> StorageError:
        self.refused[target] = self.refused.get(target, 0) + 1
        reason = f"more entities a second than the {target.replace('_', ' ')}"
        return StorageError("ServerBusy", reason=reason, headers=RETRY_AFTER)


def partition_of(account: str, operation: operations.Operation) -> Hashable | None:
    """The share of the operation's partition; None if it is about several or none."""
    if isinstance(operation, operations.GetEntity):
        key = encode_key(operation.key.partition_key)
    elif isinstance(operation, operations.EntityGroupTransaction):
        key = encode_key(operation.partition_key)
    elif isinstance(operation, operations.EntityWrite):
        key = encode_key(operations.entity_key(operation).partition_key)
    elif isinstance(operation, operations.QueryEntities):
        plan = plan_query(operation.filter)
        if plan.kind not in _ONE_PARTITION:
            return None
        key = plan.ranges[0].start[0]
    else:
        return None
    return account, operation.table.lower(), key
