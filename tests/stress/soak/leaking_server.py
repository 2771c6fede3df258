"""`tablestone` with a planted leak, for tests of the soak: `python tests/stress/soak/leaking_server.py serve …`.

PLANTED_LEAK names it: `memory` keeps some bytes of every request, `descriptors` opens a file at every tenth.
"""

import os
import sys
from typing import Any, Final

from tablestone.cli.main import main
from tablestone.server.http_connection import HttpConnection

KEPT_BYTES: Final = 160 * 1024
EVERY: Final = 10

kept: list[Any] = []
seen = 0


def leak_memory() -> None:
    kept.append(os.urandom(KEPT_BYTES))


def leak_descriptors() -> None:
    global seen  # noqa: PLW0603 - a leak
    seen += 1
    if seen % EVERY == 0:
        kept.append(os.dup(0))


LEAKS: Final = {"memory": leak_memory, "descriptors": leak_descriptors}


def plant(name: str) -> None:
    receive = (
        HttpConnection.data_received
    )  # the loop looks it up, so a compiled one can be replaced
    leak = LEAKS[name]

    def received(connection: HttpConnection, data: bytes) -> None:
        leak()
        receive(connection, data)

    HttpConnection.data_received = received  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    plant(os.environ["PLANTED_LEAK"])
    sys.exit(main())
