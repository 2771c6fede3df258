"""The HTTP floor: the server Tablestone runs on, answering every request with the same 1 KiB.

It reads the request's body, as any server must, and looks at nothing. What Tablestone needs beyond
this is Tablestone's own work. Started as `python -m bench.floor PORT`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]

BODY = b"x" * 1024
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"1024")],
}
ANSWER = {"type": "http.response.body", "body": BODY}


async def app(
    scope: Message,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send(START)
    await send(ANSWER)


def main() -> None:
    Granian(
        "bench.floor:app",
        address="127.0.0.1",
        port=int(sys.argv[1]),
        interface=Interfaces.ASGINL,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        log_enabled=False,
    ).serve()


if __name__ == "__main__":
    main()
