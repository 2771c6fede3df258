"""A lock: a lease on an entity, with a number that grows with each holder.

A lock of a service can never stop a holder that was paused and goes on too late. It is useful only where the resource
that it guards gets the number with each request and refuses a smaller one than it has seen.
"""

import asyncio
import random
from datetime import timedelta
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from azure.data.tables import EdmType, EntityProperty, TableEntity, UpdateMode
from azure.data.tables.aio import TableClient

from table_patterns.aio.answers import (
    etag_of,
    if_unchanged,
    require_client,
    stored_entity,
    submitted,
)
from table_patterns.errors import LockLost, LockNotAcquired
from table_patterns.keys import CompositeKey
from table_patterns.results import Held
from table_patterns.service_time import ServiceTime

PAUSE_SECONDS: Final = 0.5
SECONDS_MAX: Final = 30 * 24 * 3600
_KEY: Final = CompositeKey(str, prefix="lock!")
"""A counter may have rows in the same partition."""


class Lock:
    """A lock of this name. One row is kept for each name that was ever used: it has the last number.

    No two holders have the same number, whatever fails. A holder has `seconds` from the beginning of its request;
    another one gets the lock only when the service's clock says that they are over.
    """

    def __init__(
        self, table: TableClient, name: str, seconds: float = 30, partition_key: str = "locks"
    ) -> None:
        if not 0 < seconds <= SECONDS_MAX:
            raise ValueError(f"A lock is held for more than 0 seconds, and at most {SECONDS_MAX}.")
        self._table = require_client(table)
        self._keys = {"PartitionKey": partition_key, "RowKey": _KEY.encode(name)}
        self._name = name
        self._seconds = seconds

    async def acquire(self, wait_seconds: float = 0) -> Held:
        """Get the lock. Raises `LockNotAcquired` if another client still holds it after `wait_seconds`."""
        deadline = monotonic() + wait_seconds
        while True:
            clock = ServiceTime()
            stored = await self._stored(clock)
            if (
                stored is None
                or not stored["Token"]
                or clock.is_older(stored, timedelta(seconds=stored["Seconds"]))
            ):
                number = stored["Number"].value + 1 if stored else 1
                held = await self._write(stored, number, uuid4().hex)
                if held is not None and held.seconds_left > 0:
                    return held
            left = deadline - monotonic()
            if left <= 0:
                raise LockNotAcquired(f"Another client holds {self._name}.")
            await asyncio.sleep(min(left, PAUSE_SECONDS * random.uniform(0.5, 1)))

    async def renew(self, held: Held) -> Held:
        """Hold the lock for its `seconds` from now. Raises `LockLost` if another client has taken it."""
        stored = await self._stored(ServiceTime())
        if stored is not None and stored["Token"] == held.token:
            again = await self._write(stored, held.number, uuid4().hex)
            if again is not None:
                return again
        raise LockLost(f"Another client has taken {self._name} since number {held.number}.")

    async def release(self, held: Held) -> bool:
        """Give the lock back; returns whether it was still this holder's."""
        stored = await self._stored(ServiceTime())
        if stored is None or stored["Token"] != held.token:
            return False
        return await self._write(stored, held.number, "") is not None

    async def _stored(self, clock: ServiceTime) -> TableEntity | None:
        keys = self._keys["PartitionKey"], self._keys["RowKey"]
        return await stored_entity(self._table, *keys, raw_response_hook=clock)

    async def _write(self, stored: TableEntity | None, number: int, token: str) -> Held | None:
        """Write if nobody has written since. None if somebody has."""
        began = monotonic()
        entity: dict[str, Any] = {
            **self._keys,
            "Number": EntityProperty(number, EdmType.INT64),
            "Token": token,
            "Seconds": float(self._seconds),
        }
        written = Held(number, token, began + self._seconds)
        # A transaction of one: where the answer to `create_entity` is cut, the client ends in an AttributeError.
        operation: Any = ("create", entity)
        if stored is not None:
            replace = {"mode": UpdateMode.REPLACE, **if_unchanged(etag_of(stored))}
            operation = ("update", entity, replace)
        if await submitted(self._table, [operation], 404, 409, 412):
            # An attempt before may have been carried out: the token tells whose is stored.
            now = await self._stored(ServiceTime())
            if now is None or (now["Token"], now["Number"].value) != (token, number):
                return None
        return written
