"""The HTTP floor: Tablestone's own HTTP server, answering every request with the same 1 KiB.

Started as `python -m bench.floor WORKERS`. The server is the one that `tablestone serve` runs, with its options, its
loop and its socket; only the application behind it differs. It reads the request's body, as any server must, and looks
at nothing. Everything that Tablestone needs beyond this is Tablestone's own work.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from tablestone.configuration import DEVELOPMENT_ACCOUNT, Configuration
from tablestone.server.start import serve
from tablestone.wire.messages import RawResponse

if TYPE_CHECKING:
    from tablestone.server.requests.body import Arriving
    from tablestone.wire.messages import RawRequest

BODY = b"x" * 1024
CONFIGURATION = Configuration(
    host="127.0.0.1",
    port=0,
    data_directory=None,
    engine="memory:",
    accounts=(DEVELOPMENT_ACCOUNT,),
    log_level="error",
)


class Constant:
    waits = False

    async def startup(self) -> None:
        """Nothing to open."""

    async def shutdown(self) -> None:
        """Nothing to close."""

    async def answer(self, _request: RawRequest, arriving: Arriving, *_: object) -> RawResponse:
        while arriving.has_more and await arriving.next_piece() is not None:
            pass
        return RawResponse(200, [(b"content-type", b"text/plain")], BODY)

    refuse = answer

    def reopen_logs(self) -> None:
        """No log to reopen."""

    def count_connections(self, *_: object) -> None:
        """No metrics."""


def main() -> None:
    serve(
        replace(CONFIGURATION, workers=int(sys.argv[1])),
        lambda address, _admin: print(f"{address}/{DEVELOPMENT_ACCOUNT.name}", flush=True),
        lambda _configuration, _place: Constant(),
    )


if __name__ == "__main__":
    main()
