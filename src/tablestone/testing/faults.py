"""Faults: the rules of a storage act on its requests, between the check of the signature and the tables.

A rule that cuts or loses an answer only notes this in the record of the request: `end_connection`
does it. All runs on the loop of the storage; any thread may change the rules.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any, Final

from tablestone.limits import ACCOUNT_RATE_TARGET, PARTITION_RATE_TARGET
from tablestone.model.entity import Entity
from tablestone.model.entity_json import key_of, read_raw
from tablestone.model.errors import StorageError
from tablestone.model.keys import ContinuationToken
from tablestone.model.operations import (
    IF_MATCH_ANY,
    EntitiesPage,
    EntityGroupTransaction,
    EntityWrite,
    GetServiceStats,
    MergeEntity,
    Operation,
    QueryEntities,
    Result,
    entity_key,
)
from tablestone.server.exchange import Exchange
from tablestone.server.requests.body import Arriving
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.throughput_targets import Allowances, SharedSlots
from tablestone.testing.clock import StorageClock
from tablestone.testing.fault_rules import Draw, FaultRefused, Rule, chance, long_tail
from tablestone.testing.realism import EVENTUAL_SECONDS, Secondary
from tablestone.testing.recorded_requests import Ending, Next, RecordedRequest
from tablestone.wire.messages import RawResponse

_AT_FRONT_DOOR: Final = frozenset(
    ("AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation")
)
"""Errors of authentication: the service answers them before it knows the format of the answer (wire 8.3)."""


class Faults:
    """The faults of one storage, at first none; with `realism`, a secondary that is behind."""

    def __init__(self, clock: StorageClock, *, realism: bool) -> None:
        self._seconds = clock.elapsed_seconds
        self.secondary = Secondary(clock, EVENTUAL_SECONDS if realism else 0.0)
        self._rules: tuple[_ActiveRule, ...] = ()
        self._added = 0
        self.seed = 0

    @property
    def rules(self) -> list[Rule]:
        """The rules, in the order in which they were added."""
        return list(self.numbered.values())

    @property
    def numbered(self) -> dict[int, Rule]:
        """The rules by their numbers since the last `clear`."""
        return {active.number: active.rule for active in self._rules}

    def add(self, **what: Any) -> Rule:
        """Add a rule after the others, with the arguments of `Rule`. Raises `FaultRefused` if they are wrong."""
        parts = [part.name for part in fields(Rule)]
        for name in what:
            if name not in parts:
                raise FaultRefused(f"A rule has no part {name!r}; there are {', '.join(parts)}.")
        rule = Rule(**what)
        self._added += 1
        self._rules = (*self._rules, _ActiveRule(rule, self._added, self._seconds))
        return rule

    def remove(self, rule: Rule) -> None:
        """Remove a rule that `add` returned."""
        self._rules = tuple(active for active in self._rules if active.rule is not rule)

    def clear(self, seed: int = 0) -> None:
        """Remove all rules, let the secondary follow as usual, and restart the random numbers with this seed."""
        self._rules = ()
        self.secondary.follow()
        self._added = 0
        self.seed = seed

    def azure_like(self, seed: int = 1) -> None:
        """Replace all rules with those of a bad hour of the real service (docs/guides/testing.md)."""
        self.clear(seed)
        self.secondary.follow(EVENTUAL_SECONDS)
        self.add(rate=PARTITION_RATE_TARGET, share="partition")
        self.add(rate=ACCOUNT_RATE_TARGET, share="account")
        self.add(latency=long_tail(0.003, 0.5))
        self.add(probability=0.02, error="ServerBusy", retry_after=1)
        self.add(probability=0.005, error="OperationTimedOut")
        self.add(probability=0.005, error="OperationTimedOut", committed=True)
        self.add(probability=0.005, error="InternalError")
        self.add(probability=0.005, reset="before")
        self.add(probability=0.005, reset="after")
        self.add(probability=0.005, reset="within")
        self.add(operation="QueryEntities", probability=0.1, page_max=10)
        self.add(operation="QueryEntities", probability=0.05, page_max=0)
        self.add(probability=0.01, conflict=True)

    async def around(
        self, record: RecordedRequest, owner: Owner, operation: Operation, following: Next
    ) -> Result:
        """Carry out the operation, or the first action of a rule for it. Latencies of the rules before it add up."""
        if self.secondary.is_behind and (
            record.is_secondary or isinstance(operation, GetServiceStats)
        ):
            record.fault = "stale secondary"
            following = partial(self.secondary.execute, following)
        for active in self._rules:
            draw = active.asked_about(self.seed, record, operation)
            if draw is None:
                continue
            rule = active.rule
            await asyncio.sleep(rule.waits(draw))
            if not rule.actions:
                continue
            record.fault = rule.name
            return await _carry_out(rule, record, owner, operation, following)
        return await following(owner, operation)


class _ActiveRule:
    """A rule and how many requests it has applied to; for a rate, also what each share may still ask."""

    def __init__(self, rule: Rule, number: int, seconds: Callable[[], float]) -> None:
        self.rule = rule
        self.number = number
        self._asked = 0
        self._allowances = (
            None if rule.rate is None else Allowances(rule.rate, seconds, SharedSlots())
        )

    def asked_about(self, seed: int, record: RecordedRequest, operation: Operation) -> Draw | None:
        """The random numbers for this request if the rule acts on it; else None."""
        rule = self.rule
        if not rule.concerns(record) or not _can_meet(rule, operation):
            return None
        self._asked += 1
        draw = chance(seed, self.number, self._asked)
        if not rule.acts_on(self._asked, draw):
            return None
        if self._allowances is not None and self._allowances.spend(self._share(record)):
            return None
        return draw

    def _share(self, record: RecordedRequest) -> tuple[str, ...]:
        share = [record.account]
        if self.rule.share != "account":
            share.append(record.table.lower())
        if self.rule.share == "partition":
            share.append(record.partition)
        return tuple(share)


def _can_meet(rule: Rule, operation: Operation) -> bool:
    if rule.page_max is not None:
        return isinstance(operation, QueryEntities) and operation.counts is None
    return not rule.conflict or _conditional_write(operation) is not None


def _conditional_write(operation: Operation) -> EntityWrite | None:
    """The first write whose condition names an ETag."""
    writes = operation.writes if isinstance(operation, EntityGroupTransaction) else (operation,)
    for write in writes:
        if (
            isinstance(write, EntityWrite)
            and getattr(write, "if_match", IF_MATCH_ANY) != IF_MATCH_ANY
        ):
            return write
    return None


async def _carry_out(
    rule: Rule, record: RecordedRequest, owner: Owner, operation: Operation, following: Next
) -> Result:
    if rule.error is not None or rule.status is not None or rule.rate is not None:
        if rule.committed:
            await following(owner, operation)
        record.retry_after = rule.retry_after
        code = "ServerBusy" if rule.rate is not None else rule.code
        raise StorageError(code, at_front_door=code in _AT_FRONT_DOOR)
    if rule.reset == "before":
        record.ending = Ending(sent=None, is_reset=True)
        raise StorageError("ServerBusy")  # never sent: the connection is reset first
    if rule.page_max is not None:
        assert isinstance(operation, QueryEntities)
        return await _short_page(rule.page_max, owner, operation, following)
    if rule.conflict:
        await _write_in_between(owner, operation, following)
    elif rule.reset is not None:
        record.ending = Ending(sent=None if rule.reset == "after" else 0.5, is_reset=True)
    elif rule.truncate is not None:
        record.ending = Ending(sent=rule.truncate, is_reset=False)
    return await following(owner, operation)


async def _short_page(
    page_max: int, owner: Owner, query: QueryEntities, following: Next
) -> EntitiesPage:
    """The beginning of the page. After an empty page, the query continues where that would have begun."""
    page = await following(owner, replace(query, top=min(query.top, max(page_max, 1))))
    assert isinstance(page, EntitiesPage)
    if page_max or not page.stored:
        return page
    return EntitiesPage((), ContinuationToken(*key_of(read_raw(page.stored[0]))))


async def _write_in_between(owner: Owner, operation: Operation, following: Next) -> None:
    """Give the entity a new ETag, as the write of another client would, and keep its properties."""
    write = _conditional_write(operation)
    assert write is not None
    try:
        entity = Entity(entity_key(write), {})
        await following(owner, MergeEntity(write.table, entity, IF_MATCH_ANY))
    except StorageError:
        return  # no such entity: the operation itself will say so


_LINGER_NOT: Final = struct.pack("ii", 1, 0)
"""SO_LINGER for 0 s: closing the socket sends RST and drops the bytes not sent yet."""


class ConnectionLost(Exception):
    """A fault ended the connection: within the answer if it `began`, else before it."""

    def __init__(self, *, began: bool) -> None:
        super().__init__("The connection was reset.")
        self.began = began


async def end_connection(ending: Ending, response: RawResponse, arriving: Arriving) -> None:
    """Write the part of an answer that a fault lets through, and end the connection.

    Raises `ConnectionLost` if there is no connection, as in the transports without a socket.
    """
    if not isinstance(arriving, Exchange):
        raise ConnectionLost(began=ending.sent is not None)
    transport, body = arriving.connection.transport, response.body
    if ending.sent is not None:
        sent = body[: int(ending.sent * len(body) if ending.is_reset else ending.sent)]
        head = arriving.head(response.status, response.sized_headers(), response.reason)
        arriving.write(head, sent)
        await asyncio.sleep(0.001)  # the bytes leave before the reset
    if ending.is_reset:
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT
        )
        transport.abort()
    else:
        transport.close()
    await arriving.until_lost()
