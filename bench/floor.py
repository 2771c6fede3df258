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

if TYPE_CHECKING:
    from tablestone.server.asgi import Message, Receive, Send

BODY = b"x" * 1024
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"1024")],
}
ANSWER = {"type": "http.response.body", "body": BODY}
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

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        await send(START)
        await send(ANSWER)

    refuse = __call__

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
