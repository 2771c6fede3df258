"""The crowd of an overload: clients at other addresses than the quiet one, each too much in its own way.

Runs as `python crowd.py ENDPOINT ACCOUNT KEY PLAN`, where PLAN is JSON with the number of each kind. Prints a line when
all are connected. When its standard input ends, it prints the statuses of its answers as JSON.
"""

import asyncio
import contextlib
import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

sys.path.insert(0, str(Path(__file__).parents[2]))

from signing import signed_headers

TABLE: Final = "Overloaded"
PARTITIONS: Final = 4
ROWS: Final = 1000
TEXT_LENGTH: Final = 800
TRANSACTION: Final = 100
PIPELINED: Final = 20
CONNECTING_MAX: Final = 100
"""Connections that are being opened at a time."""
IDLE_ADDRESSES: Final = 4
BUSY_ADDRESS: Final = "127.0.0.9"
BATCH_TYPE: Final = "multipart/mixed; boundary=batch_o"
SLOW_BODY_BYTES: Final = 1024 * 1024
RETRY_SECONDS: Final = 0.2


def entity(partition: int, row: int) -> str:
    return f"/{TABLE}(PartitionKey='p{partition}',RowKey='{row:06}')"


def transaction(endpoint: str, partition: int, rows: list[int]) -> bytes:
    """The body of a transaction that stores these rows."""
    text = json.dumps({"Text": "x" * TEXT_LENGTH, "Number": 1})
    parts = "".join(
        "--changeset_o\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        f"PUT {endpoint}{entity(partition, row)} HTTP/1.1\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\n\r\n{text}\r\n"
        for row in rows
    )
    return (
        "--batch_o\r\nContent-Type: multipart/mixed; boundary=changeset_o\r\n\r\n"
        f"{parts}--changeset_o--\r\n--batch_o--\r\n"
    ).encode()


class Crowd:
    """The clients of one process; `statuses` counts their answers, with the code of an error."""

    def __init__(self, endpoint: str, account: str, key: str) -> None:
        address = urlsplit(endpoint)
        self._endpoint = endpoint
        self._host, self._port = str(address.hostname), int(str(address.port))
        self._base = address.path.rstrip("/")
        self._account, self._key = account, key
        self._connecting = asyncio.Semaphore(CONNECTING_MAX)
        self._random = random.Random(1)
        self.statuses: Counter[str] = Counter()

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = "application/json",
        *,
        length: int | None = None,
        key: str | None = None,
    ) -> bytes:
        """A request as bytes; `length` promises a longer body than it sends."""
        target = self._base + path
        signed = signed_headers(
            self._account, key or self._key, method=method, target=target, content_type=content_type
        )
        headers = [*signed, ("Host", f"{self._host}:{self._port}")]
        if method != "GET":
            headers.append(("Content-Length", str(len(body) if length is None else length)))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + body

    async def connect(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self._connecting:
            return await asyncio.open_connection(
                self._host, self._port, local_addr=(address, 0), limit=2**22
            )

    async def answer(self, reader: asyncio.StreamReader) -> bool:
        """Read an answer and count it; False if the connection ends with it."""
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(
            line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
        )
        body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
        status = head[9:12].decode()
        code = fields.get(b"x-ms-error-code", b"").decode()
        if status[0] == "5" and not code:
            known = ("serverbusy", "operationtimedout")
            code = next((each for each in known if each.encode() in body.lower()), "")
        self.statuses[f"{status} {code}".strip()] += 1
        return fields.get(b"connection") != b"close"

    # The kinds of clients. Each starts again when its connection ends.

    async def idle(self, connected: Callable[[], None]) -> None:
        """A client that connects and sends nothing."""
        number = self._random.randrange(IDLE_ADDRESSES)
        reader, writer = await self.connect(f"127.0.0.{2 + number}")
        connected()
        with contextlib.closing(writer):
            await reader.read(1)

    async def busy(self, connected: Callable[[], None]) -> None:
        """A client that sends the next request as soon as it has an answer: any kind, even scans and refused ones."""
        reader, writer = await self.connect(BUSY_ADDRESS)
        connected()
        with contextlib.closing(writer):
            while True:
                writer.write(self._any_request())
                if not await self.answer(reader):
                    return

    def _any_request(self) -> bytes:
        drawn, partition = self._random.random(), self._random.randrange(PARTITIONS)
        one = entity(partition, self._random.randrange(ROWS))
        if drawn < 0.6:
            return self.request("GET", one)
        if drawn < 0.8:
            return self.request("PUT", one, json.dumps({"Text": "y" * TEXT_LENGTH}).encode())
        if drawn < 0.9:
            return self.request("GET", one, key="AAAA")
        if drawn < 0.95:
            scan = quote("Number eq 7 or Text eq 'z'")
            return self.request("GET", f"/{TABLE}()?$filter={scan}")
        if drawn < 0.98:
            return self.request("GET", f"/{TABLE}()")
        rows = self._random.sample(range(ROWS), TRANSACTION)
        body = transaction(self._endpoint, partition, rows)
        return self.request("POST", "/$batch", body, BATCH_TYPE)

    async def pipelining(self, connected: Callable[[], None]) -> None:
        """A client that sends many requests before it reads the first answer."""
        reader, writer = await self.connect(BUSY_ADDRESS)
        connected()
        with contextlib.closing(writer):
            while True:
                writer.write(self.request("GET", entity(0, 1)) * PIPELINED)
                for _ in range(PIPELINED):
                    if not await self.answer(reader):
                        return

    async def slow_reader(self, connected: Callable[[], None]) -> None:
        """A client that asks for large pages and reads a few bytes a second."""
        reader, writer = await self.connect(BUSY_ADDRESS)
        connected()
        with contextlib.closing(writer):
            writer.write(self.request("GET", f"/{TABLE}()") * PIPELINED)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            while not writer.is_closing():
                await asyncio.sleep(1)
                if await asyncio.wait_for(self._reads_little(reader), 5):
                    return

    async def _reads_little(self, reader: asyncio.StreamReader) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                return not await reader.read(64)
        return False

    async def slow_writer(self, connected: Callable[[], None]) -> None:
        """A client that promises a large body and sends a few bytes of it at a time."""
        reader, writer = await self.connect(BUSY_ADDRESS)
        connected()
        with contextlib.closing(writer):
            head = self.request("PUT", entity(0, 1), length=SLOW_BODY_BYTES)
            writer.write(head)
            answer = asyncio.ensure_future(self.answer(reader))
            try:
                while not answer.done():
                    writer.write(b"{" * 4096)
                    await asyncio.wait({answer}, timeout=0.2)
            finally:
                answer.cancel()
                await asyncio.gather(answer, return_exceptions=True)

    async def again_and_again(
        self, kind: Callable[[Callable[[], None]], Awaitable[None]], connected: Callable[[], None]
    ) -> None:
        """A client of this kind that comes back when its connection has ended."""
        while True:
            with contextlib.suppress(OSError, EOFError, asyncio.IncompleteReadError, TimeoutError):
                await kind(connected)
            await asyncio.sleep(RETRY_SECONDS * (1 + self._random.random()))


async def gather(endpoint: str, account: str, key: str, plan: dict[str, int]) -> Counter[str]:
    crowd = Crowd(endpoint, account, key)
    kinds = {
        "idle": crowd.idle,
        "busy": crowd.busy,
        "pipelining": crowd.pipelining,
        "slow_readers": crowd.slow_reader,
        "slow_writers": crowd.slow_writer,
    }
    arrived = 0
    all_here = asyncio.Event()
    wanted = sum(plan.values())

    def connected() -> None:
        nonlocal arrived
        arrived += 1
        if arrived >= wanted:
            all_here.set()

    clients = [
        asyncio.ensure_future(crowd.again_and_again(kinds[name], connected))
        for name, number in plan.items()
        for _ in range(number)
    ]
    await all_here.wait()
    print("all are here", flush=True)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    threading.Thread(
        target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True
    ).start()
    await ended.wait()
    for each in clients:
        each.cancel()
    await asyncio.wait(clients)
    return crowd.statuses


if __name__ == "__main__":
    endpoint, account, key, plan = sys.argv[1:]
    print(json.dumps(asyncio.run(gather(endpoint, account, key, json.loads(plan)))))
