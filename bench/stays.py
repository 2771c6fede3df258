"""How far a request goes through the source: the calls of our own functions, the files, and the returns to a file.

Started as `PYTHONPATH=src python -m bench.stays [--calls NAME]`, on uncompiled source. Each request goes through the
application in this process, when the caches already know its headers and its table. The connection is not counted, the
thread of commits is. Comprehensions do not count, because later Pythons do not call them. A return is a call into a
file that the request was in before, and had left.
"""

import argparse
import itertools
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import uvloop

import tablestone
from bench.in_process import BATCH, JSON, address, request, transaction
from tablestone.cli.main import HOW_IT_RUNS
from tablestone.clock import system_clock
from tablestone.configuration import DEVELOPMENT_ACCOUNT, Configuration
from tablestone.engines.change_record import Retention
from tablestone.engines.contract import Engine
from tablestone.engines.registry import open_engine
from tablestone.server.application import Application, Parts
from tablestone.server.worker_slot import WorkerSlot
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog
from tablestone.tables.index_building import IndexWork
from tablestone.tables.storage_keys import fresh_table_id
from tablestone.wire.messages import raw_request

SOURCE: Final = str(Path(tablestone.__file__).parent) + "/"
COMPREHENSIONS: Final = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
WARMUP: Final = 3
KEPT: Final = Retention(None, 1 << 30)
FILTER: Final = quote("Name eq 'station-0001'")
MATCHES: Final = 20
SMALL: Final = '{"PartitionKey":"p","RowKey":"%d","Name":"station-0001","Count":5}'
_rows = itertools.count()
REQUESTS: Final[dict[str, Callable[[], bytes]]] = {
    "point read": lambda: request("GET", address(5)),
    "insert": lambda: request(
        "POST", "bench", JSON, SMALL % next(_rows), "Prefer: return-no-content\r\n"
    ),
    "query by an index": lambda: request("GET", f"indexed()?$filter={FILTER}"),
    "comp=changes": lambda: request("GET", "bench?comp=changes"),
}


class Stays(NamedTuple):
    """What is counted of a request."""

    calls: int
    files: int
    returns: int


def stays_of(files: list[str]) -> Stays:
    """The counts, by the file of each call in their order."""
    seen: set[str] = set()
    returns = 0
    before = ""
    for file in files:
        returns += file != before and file in seen
        seen.add(file)
        before = file
    return Stays(len(files), len(seen), returns)


class Profile:
    """Notes the calls of our own functions in order, in each thread. A coroutine that goes on is no call."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._frames: dict[int, Any] = {}  # they stay alive, so each has an id of its own
        self.codes: list[CodeType] = []

    def __call__(self, frame: Any, event: str, _argument: object) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(SOURCE) and code.co_name not in COMPREHENSIONS
        if event == "call" and is_ours and id(frame) not in self._frames:
            self._frames[id(frame)] = frame
            self.codes.append(code)


class _Arrived:
    """The body of a request that has arrived whole."""

    has_more = False

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def next_piece(self) -> bytes:
        return self._body

    async def until_ended(self) -> None: ...


async def ask(application: Application, raw: bytes) -> None:
    """Send one request through the application, as a connection does."""
    head, _, body = raw.partition(b"\r\n\r\n")
    line, *lines = head.split(b"\r\n")
    method, target, _ = line.split(b" ")
    path, _, query = target.partition(b"?")
    pairs = [each.split(b": ", 1) for each in lines]
    fields = [(name.lower(), value) for name, value in pairs]
    asked = raw_request(method.decode(), path, query, fields, "http", "127.0.0.1")
    response = await application.answer(asked, _Arrived(body))
    assert response.status < 300, response


async def calls_of(directory: Path, name: str, profile: Profile) -> list[CodeType]:
    """The calls of one request of this name, in a new directory."""
    kept = KEPT if name == "comp=changes" else None
    configuration = Configuration(
        "", 0, directory, f"sqlite:{directory}", (DEVELOPMENT_ACCOUNT,), "error", keep_changes=kept
    )
    opened: list[Engine] = []

    def opening(*arguments: Any, **options: Any) -> Engine:
        opened.append(open_engine(*arguments, **options))
        return opened[0]

    application = Application(configuration, WorkerSlot(), Parts(open_engine=opening))
    await application.startup()
    for table in ("bench", "indexed"):
        await ask(application, request("POST", "Tables", JSON, f'{{"TableName":"{table}"}}'))
        raw = transaction(0).replace(b"bench", table.encode())
        await ask(application, raw.replace(b"station-0001", b"station-0002", BATCH - MATCHES))
    catalog = Catalog(opened[0], system_clock, fresh_table_id)
    await IndexWork(catalog, Named(DEVELOPMENT_ACCOUNT.name), "indexed", "Name").create()
    for _ in range(WARMUP):
        await ask(application, REQUESTS[name]())
    raw = REQUESTS[name]()
    profile.begin()
    sys.setprofile(profile)
    await ask(application, raw)
    sys.setprofile(None)
    found = profile.codes.copy()  # without the calls of the shutdown
    await application.shutdown()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.stays",
        description="The calls of our own functions that a request takes, the files, and the returns to a file.",
    )
    parser.add_argument("--calls", choices=REQUESTS, help="list the calls of this request")
    options = parser.parse_args()
    if HOW_IT_RUNS == "compiled":
        parser.error("compiled functions cannot be counted: use PYTHONPATH=src")
    profile = Profile()
    threading.setprofile(profile)  # for the thread of commits, which starts later
    if options.calls is None:
        print("| request | calls | files | returns |\n|---|---|---|---|")
    for name in REQUESTS:
        with tempfile.TemporaryDirectory() as directory:
            codes = uvloop.run(calls_of(Path(directory) / "data", name, profile))
        if options.calls is None:
            calls, files, returns = stays_of([code.co_filename for code in codes])
            print(f"| {name} | {calls} | {files} | {returns} |")
        elif name == options.calls:
            for code in codes:
                print(code.co_filename.removeprefix(SOURCE), code.co_qualname)


if __name__ == "__main__":
    main()
