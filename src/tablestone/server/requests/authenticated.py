"""A request after authentication, with what the steps from the resource on need, alone or as part of a batch."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tablestone.auth.permissions import OWNER, Caller
from tablestone.clock import Clock
from tablestone.cooperative_scheduling import Turns
from tablestone.model.errors import StorageError
from tablestone.server.requests.account_address import FoundAccount
from tablestone.tables.service import TableService
from tablestone.telemetry.request_record import RefusedTable, RequestRecord
from tablestone.wire.address import Parameters
from tablestone.wire.encode import Form, Stamp
from tablestone.wire.messages import RawRequest

ReadBody = Callable[[int], Awaitable[bytes]]
"""Reads a body of so many bytes at most; raises `StorageError` if it is too large or does not arrive."""


class Means(NamedTuple):
    """What all requests of a process use."""

    service: TableService
    clock: Clock
    turns: Turns
    extended: bool
    """Whether the server has the extensions of queries."""


class Authenticated(NamedTuple):
    """The caller is known, the operation is not known yet."""

    request: RawRequest
    found: FoundAccount
    parameters: Parameters
    caller: Caller
    form: Form
    stamp: Stamp
    read_body: ReadBody
    record: RequestRecord
    means: Means


async def error_to_answer(error: StorageError, step: Authenticated) -> StorageError:
    """That of a missing table if this error presumes the table, else this one (wire 2.2)."""
    if error.table is not None and step.caller is OWNER:
        try:
            await step.means.service.catalog.require(step.found.account, error.table)
        except StorageError as absent:
            return absent
        step.record.refused = RefusedTable(error.table, is_found=True)
    return error
