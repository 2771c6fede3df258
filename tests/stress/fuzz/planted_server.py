"""`tablestone` with a planted bug, for tests of the tests: `python tests/stress/fuzz/planted_server.py serve …`.

PLANTED_BUG names the bug. The package has none of this.
"""

import os
import sys
from typing import Any, Final

from tablestone.cli.main import main
from tablestone.clock import system_clock
from tablestone.configuration import Configuration
from tablestone.model.operations import Operation, QueryEntities, Result
from tablestone.server import start
from tablestone.server.application import Application, Parts
from tablestone.server.http_connection import HttpConnection
from tablestone.server.worker_slot import WorkerSlot
from tablestone.tables.account_incarnation import Owner
from tablestone.tables.service import TableService

ERROR: Final = "an error of Python"
DESCRIPTORS: Final = "descriptors are kept"
MEMORY: Final = "memory is kept"
TWO_LENGTHS: Final = "a length and chunks are accepted"
_KEPT: Final[list[object]] = []


class PlantedService(TableService):
    """The table service, which may raise the planted error."""

    async def execute(self, owner: Owner, operation: Operation) -> Result:
        if (
            os.environ["PLANTED_BUG"] == ERROR
            and isinstance(operation, QueryEntities)
            and operation.top <= 5
        ):
            raise IndexError("planted")
        return await super().execute(owner, operation)


def leaking_clock() -> int:
    """A clock that leaks; each request asks it at least once."""
    bug = os.environ["PLANTED_BUG"]
    if bug == DESCRIPTORS:
        _KEPT.append(os.open(os.devnull, os.O_RDONLY))
    if bug == MEMORY:
        _KEPT.append(os.urandom(300_000))
    return system_clock()


def _lenient_connection_made(made: Any, connection: HttpConnection, transport: Any) -> None:
    connection.parser.set_dangerous_leniencies(
        lenient_chunked_length=True, lenient_data_after_close=True
    )
    made(connection, transport)


def create_application(configuration: Configuration, slot: WorkerSlot) -> Application:
    """The real server's application, with the planted service and clock."""
    return Application(configuration, slot, Parts(leaking_clock, make_service=PlantedService))


def run() -> int:
    """Run the command; its server has the application above."""
    defaults = start.serve.__defaults__
    assert defaults is not None
    assert Application in defaults
    start.serve.__defaults__ = tuple(
        create_application if value is Application else value for value in defaults
    )
    if os.environ["PLANTED_BUG"] == TWO_LENGTHS:
        made = HttpConnection.connection_made

        def lenient(connection: HttpConnection, transport: Any) -> None:
            _lenient_connection_made(made, connection, transport)

        setattr(HttpConnection, "connection_made", lenient)  # noqa: B010 - the type is that of a method
    return main()


if __name__ == "__main__":
    sys.exit(run())
