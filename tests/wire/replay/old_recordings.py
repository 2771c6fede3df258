"""Exchanges of old SDKs with the live service, 2014 to 2021, from a directory outside the project.

`TABLESTONE_RECORDINGS` names the directory; without it nothing is replayed. Each file holds recordings in JSON lines,
compressed by xz: `{"source": …, "name": …, "x": [[method, url, request headers, request body, status, answer headers,
answer body, guessed], …]}`. This module undoes what the recorders changed.
"""

from __future__ import annotations

import json
import lzma
import os
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from .cassettes import Exchange, Recording

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE: Final = "TABLESTONE_RECORDINGS"
FILES: Final = (
    *("asp_hist", "act_hist", "d_cosmosdb_table", "node_old", "node_storage", "js_hist"),
    *("py_1200", "py_1210"),
)
"""The files to replay; `evidence` lacks what went before."""
NUMBER: Final = "__num__"
CLIENT_ID: Final = "x-ms-client-request-id"
EXPOSED: Final = "access-control-expose-headers"
SECONDS_IN_A_RUN_MAX: Final = 120
PAGE_OF_THE_TESTS: Final = "http://localhost:9876"


def directory() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def load_old_recordings(place: Path) -> list[Recording]:
    """The recordings of every file, in order, under unique names."""
    found: list[Recording] = []
    for file in FILES:
        with lzma.open(place / f"{file}.jsonl.xz", "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                found += _runs(f"{file}/{row['name']}", row["x"])
    return found


def _runs(name: str, rows: list[list[Any]]) -> Iterator[Recording]:
    """A test that was recorded again a day or a month later started with an account of its own."""
    run: list[Exchange] = []
    number = 1
    for exchange in _exchanges(name, rows):
        if run and abs(_moment(exchange) - _moment(run[-1])) > SECONDS_IN_A_RUN_MAX:
            yield Recording(f"{name}~{number}", tuple(run))
            run, number = [], number + 1
        run.append(exchange)
    yield Recording(f"{name}~{number}", tuple(run))


def _moment(exchange: Exchange) -> float:
    return parsedate_to_datetime(exchange.headers["date"]).timestamp()


def _exchanges(recording: str, rows: list[list[Any]]) -> Iterator[Exchange]:
    for index, (method, url, sent, body, status, got, answer, _) in enumerate(rows):
        address = urlsplit(url)
        headers = {name.lower(): value for name, value in got.items()}
        request = {name.lower(): value for name, value in sent.items()}
        if "x-ms-version" in headers:
            request["x-ms-version"] = headers["x-ms-version"]
        # One recorder left the client's id out of the request; before 2019 the service returned none.
        if CLIENT_ID in headers:
            request[CLIENT_ID] = headers[CLIENT_ID]
        else:
            request.pop(CLIENT_ID, None)
        if method == "DELETE" and status < 300 and "PartitionKey" in url:
            request.setdefault("if-match", "*")  # the recorder left it out too
        if EXPOSED in headers:
            # The recorder left out what the browser adds.
            request["origin"] = PAGE_OF_THE_TESTS
        yield Exchange(
            recording=recording,
            index=index,
            method=method,
            host=address.netloc,
            path=address.path.replace(" ", "%20"),
            query=address.query.replace(" ", "%20"),
            request_headers=request,
            request_body=_text(body).encode(),
            status=status,
            reason="",
            headers={name: _header(name, value) for name, value in headers.items()},
            body=_text(answer).encode(),
            reserialised=isinstance(answer, dict),
        )


def _text(body: object) -> str:
    if body is None or isinstance(body, str):
        return body or ""
    return _json(body)


def _json(value: object) -> str:
    """JSON as the service writes it, with the numbers as they were."""
    if isinstance(value, dict):
        if value.keys() == {NUMBER}:
            return str(value[NUMBER])
        members = (f"{json.dumps(name)}:{_json(inner)}" for name, inner in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value)


def _header(name: str, value: str) -> str:
    """One recorder wrote a blank after each semicolon, and a comma between products."""
    if name == "server":
        return value.replace(", ", " ")
    return value.replace("; ", ";") if value.startswith("application/json; ") else value
