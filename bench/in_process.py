"""What a request costs without HTTP: the application called in this process, its CPU per request.

Started as `python -m bench.in_process`. What a request costs beyond this and the floor is what HTTP and the application
cost each other. Inserts of 1 KiB with ten properties, each flushed with up to 15 others, and point reads.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from pathlib import Path
from typing import Any

import uvloop

from tablestone.server.app import Application
from tablestone.server.configuration import DEVELOPMENT_ACCOUNT, Configuration, Place

REQUESTS = 10_000
WRITERS = 16
PREFIX = f"/{DEVELOPMENT_ACCOUNT.name}/"
PROPERTIES: dict[str, Any] = {
    **{f"text{number}": "x" * 200 for number in range(4)},
    "count": 5,
    "ratio": 1.5,
    "flag": True,
    "big": "123",
    "big@odata.type": "Edm.Int64",
    "time": "2020-01-01T00:00:00Z",
    "time@odata.type": "Edm.DateTime",
    "id": "dd3cb8f8-93b7-44e2-b74a-c0aa3b27a6d2",
    "id@odata.type": "Edm.Guid",
}

Message = MutableMapping[str, Any]


def scope(method: str, path: str, content_type: str = "", **headers: str) -> Message:
    date = formatdate(usegmt=True)
    signed = f"{method}\n\n{content_type}\n{date}\n/{DEVELOPMENT_ACCOUNT.name}{PREFIX}{path}"
    key = base64.b64decode(DEVELOPMENT_ACCOUNT.keys[0])
    mac = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
    sent = {
        "host": "127.0.0.1:10002",
        "x-ms-version": "2019-02-02",
        "accept": "application/json;odata=minimalmetadata",
        "x-ms-date": date,
        "authorization": f"SharedKey {DEVELOPMENT_ACCOUNT.name}:{mac}",
        "transfer-encoding": "chunked",
        **({"content-type": content_type} if content_type else {}),
        **headers,
    }
    return {
        "type": "http",
        "method": method,
        "raw_path": f"{PREFIX}{path}".encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        "scheme": "http",
        "client": ("127.0.0.1", 1),
    }


async def call(application: Application, request: Message, body: bytes, status: int) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        assert message.get("status", status) == status, message

    await application(request, receive, send)


async def timed(name: str, requests: int, work: Callable[[], Awaitable[None]]) -> None:
    started = time.process_time()
    await work()
    print(f"{name}: {(time.process_time() - started) / requests * 1e6:.0f} µs of CPU each")


async def measure(directory: Path) -> None:
    application = Application(
        Configuration("", 0, directory, f"sqlite:{directory}", (DEVELOPMENT_ACCOUNT,), "error"),
        Place(),
    )
    await application.startup()
    table = json.dumps({"TableName": "bench"}).encode()
    await call(application, scope("POST", "Tables", "application/json"), table, 201)
    insert = scope("POST", "bench", "application/json", prefer="return-no-content")
    read = scope("GET", "bench(PartitionKey='0',RowKey='0')")

    async def write(first: int) -> None:
        for row in range(first, REQUESTS, WRITERS):
            entity = {"PartitionKey": str(row % 10), "RowKey": str(row), **PROPERTIES}
            await call(application, insert, json.dumps(entity).encode(), 204)

    async def write_all() -> None:
        await asyncio.gather(*map(write, range(WRITERS)))

    async def read_all() -> None:
        for _ in range(REQUESTS):
            await call(application, read, b"", 200)

    await timed("insert, 16 at a time", REQUESTS, write_all)
    await timed("point read", REQUESTS, read_all)
    await application.shutdown()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        uvloop.run(measure(Path(directory) / "data"))


if __name__ == "__main__":
    main()
