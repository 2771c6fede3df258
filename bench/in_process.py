"""The cost of requests in one process, without sockets, step by step.

Started as `python -m bench.in_process [--rounds 15] [--encrypted] [--keep-changes SIZE]`. The entities have 1 KiB and
ten properties; writes are flushed to disk, 16 at a time. Prints the table of docs/decisions/0005-where-the-time-goes.md
(see `bench.steps`).
"""

import argparse
import base64
import hashlib
import hmac
import itertools
import json
import os
import tempfile
from email.utils import formatdate
from pathlib import Path
from typing import Any

import uvloop

from bench.options import how_many
from bench.steps import Load, ask, connections, table
from tablestone.cli.options import parse_retention
from tablestone.configuration import DEVELOPMENT_ACCOUNT, Configuration
from tablestone.engines.change_record import Retention
from tablestone.engines.kind import KEY_BYTES, EncryptionKey
from tablestone.server.application import Application
from tablestone.server.worker_slot import WorkerSlot

READ = 1_000
PREFIX = f"/{DEVELOPMENT_ACCOUNT.name}/"
JSON = "application/json;odata=nometadata"
PROPERTIES: dict[str, Any] = {
    "Name": "station-0001",
    "Description": "Hourly reading of a weather station (Grüße, 東京), as it was sent. " * 7,
    "Count": 5,
    "Total@odata.type": "Edm.Int64",
    "Total": "9000000001",
    "Temperature": 24.25,
    "Pressure": 1013.5,
    "Active": True,
    "MeasuredAt@odata.type": "Edm.DateTime",
    "MeasuredAt": "2026-03-01T12:00:00.1234567Z",
    "Device@odata.type": "Edm.Guid",
    "Device": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "Payload@odata.type": "Edm.Binary",
    "Payload": base64.b64encode(bytes(range(64))).decode("ascii"),
}
CHANGED = {"Temperature": 25.75, "Total@odata.type": "Edm.Int64", "Total": "9000000002"}
BATCH = 100
BATCH_TYPE = "multipart/mixed; boundary=batch_b"
PART = (
    "--changeset_c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    f"POST http://127.0.0.1:10002{PREFIX}bench HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\n"
    f"DataServiceVersion: 3.0\r\nPrefer: return-no-content\r\nContent-Type: {JSON}\r\n\r\n"
)
_fresh = itertools.count(READ)


def entity(number: int, partition: str = "p") -> str:
    keys = {"PartitionKey": partition, "RowKey": f"{number:010}"}
    return json.dumps({**keys, **PROPERTIES}, ensure_ascii=False, separators=(",", ":"))


def address(number: int, partition: str = "p") -> str:
    return f"bench(PartitionKey='{partition}',RowKey='{number:010}')"


def request(
    method: str, target: str, content_type: str = "", body: str = "", more: str = ""
) -> bytes:
    """A signed request as bytes."""
    date = formatdate(usegmt=True)
    path, _, query = target.partition("?")
    signed = f"{method}\n\n{content_type}\n{date}\n/{DEVELOPMENT_ACCOUNT.name}{PREFIX}{path}"
    if query.startswith("comp="):
        signed += f"?{query}"
    key = base64.b64decode(DEVELOPMENT_ACCOUNT.keys[0])
    mac = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
    content = body.encode()
    head = (
        f"{method} {PREFIX}{target} HTTP/1.1\r\nHost: 127.0.0.1:10002\r\n"
        "Accept: application/json;odata=minimalmetadata\r\nDataServiceVersion: 3.0\r\n"
        f"x-ms-version: 2019-02-02\r\n{more}x-ms-date: {date}\r\n"
        f"Authorization: SharedKey {DEVELOPMENT_ACCOUNT.name}:{mac}\r\n"
    )
    if content_type:
        head += f"Content-Type: {content_type}\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


def insert() -> bytes:
    return request("POST", "bench", JSON, entity(next(_fresh)), "Prefer: return-no-content\r\n")


def transaction(first: int | None = None, partition: str = "p") -> bytes:
    """100 inserts, of new entities unless a first one is named."""
    numbers = [next(_fresh) if first is None else first + each for each in range(BATCH)]
    parts = "".join(f"{PART}{entity(number, partition)}\r\n" for number in numbers)
    body = (
        "--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_c\r\n\r\n"
        f"{parts}--changeset_c--\r\n--batch_b--\r\n"
    )
    return request("POST", "$batch", BATCH_TYPE, body)


def loads() -> list[Load]:
    numbers = itertools.cycle(range(READ))
    select = "?$select=Name,Temperature,MeasuredAt"
    return [
        Load("point read", lambda: request("GET", address(next(numbers))), 500, 1),
        Load("with $select", lambda: request("GET", address(next(numbers)) + select), 500, 1),
        Load("insert", insert, 480, 16),
        Load(
            "merge",
            lambda: request(
                "PATCH", address(next(numbers)), JSON, json.dumps(CHANGED), "If-Match: *\r\n"
            ),
            480,
            16,
        ),
        Load("one of a transaction of 100 inserts", transaction, 8, 2, entities=BATCH),
        Load("one of a page of 1,000", lambda: request("GET", "bench()"), 8, 1, entities=READ),
    ]


async def measure(
    directory: Path, rounds: int, key: EncryptionKey | None, kept: Retention | None
) -> None:
    engine = f"sqlite:{directory}"
    configuration = Configuration(
        "",
        0,
        directory,
        engine,
        (DEVELOPMENT_ACCOUNT,),
        "error",
        encryption_key=key,
        keep_changes=kept,
    )
    application = Application(configuration, WorkerSlot())
    await application.startup()
    (connection,) = connections(application, 1)
    await ask(connection, request("POST", "Tables", JSON, '{"TableName":"bench"}'))
    for first in range(0, READ, BATCH):
        await ask(connection, transaction(first))
    print("µs of CPU for each entity, the best of", rounds, "rounds:\n")
    print(await table(application, loads(), rounds))
    await application.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.in_process",
        description="What requests cost in one process, without sockets, and where their CPU goes.",
    )
    parser.add_argument("--rounds", type=how_many, default=15, help="default: %(default)s")
    parser.add_argument("--encrypted", action="store_true", help="encrypt the data directory")
    parser.add_argument(
        "--keep-changes", type=parse_retention, metavar="SIZE", help="keep a record of changes"
    )
    options = parser.parse_args()
    key = EncryptionKey(os.urandom(KEY_BYTES)) if options.encrypted else None
    with tempfile.TemporaryDirectory() as directory:
        uvloop.run(measure(Path(directory) / "data", options.rounds, key, options.keep_changes))


if __name__ == "__main__":
    main()
