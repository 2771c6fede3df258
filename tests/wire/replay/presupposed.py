"""The entities that a recording presupposes: other tests of its suite had left them in the table.

The recorded answers show them: a row that is listed, read, changed or deleted and was not written before.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from .bindings import EntityIdentity, identity_in_request
from .outgoing import INNER_REQUEST, SERVICE_BASE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .cassettes import Exchange

ENTITIES_PATH = re.compile(r"/(?!Tables\b)(\w+)(?:\(.*)?")
CHANGES = ("PUT", "MERGE", "PATCH", "DELETE")
FIRST_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


class Presupposed:
    """The entities of one recording that exist now."""

    def __init__(self, exchanges: Iterable[Exchange] = ()) -> None:
        self._there: set[EntityIdentity] = set()
        self._listed = {identity: row for each in exchanges for identity, row in rows_of(each)}

    def missing(self, exchange: Exchange) -> Iterator[tuple[EntityIdentity, dict[str, object]]]:
        """Entities to store before the exchange, with their properties."""
        for identity in self._shown(exchange):
            if identity not in self._there:
                self._there.add(identity)
                yield identity, self._listed.get(identity, {})

    def follow(self, exchange: Exchange) -> None:
        """Record what an exchange wrote and deleted, from its recorded answer."""
        for method, identity in operations(exchange):
            if method == "DELETE":
                self._there.discard(identity)
            elif method != "GET":
                self._there.add(identity)
        if exchange.path == "/Tables" or unquote(exchange.path).startswith("/Tables("):
            named = re.findall(r"\w+", unquote(exchange.path) + exchange.request_body.decode())
            gone = {name.lower() for name in named}
            self._there = {each for each in self._there if each.table not in gone}

    def _shown(self, exchange: Exchange) -> Iterator[EntityIdentity]:
        for method, identity in operations(exchange):
            if method in CHANGES and not is_upsert(exchange, method):
                yield identity
        for identity, _ in rows_of(exchange):
            yield identity
        found = ENTITIES_PATH.fullmatch(unquote(exchange.path))
        token = [
            exchange.headers.get(f"x-ms-continuation-next{key}key") for key in ("partition", "row")
        ]
        if found and all(token):
            yield EntityIdentity(found[1].lower(), *map(key_of_token, map(str, token)))


def rows_of(exchange: Exchange) -> Iterator[tuple[EntityIdentity, dict[str, object]]]:
    """The entities in a JSON answer, with their properties."""
    found = ENTITIES_PATH.fullmatch(unquote(exchange.path))
    is_read = exchange.method == "GET" and exchange.status == 200
    if found and is_read and exchange.body.startswith(b"{"):
        answer = json.loads(exchange.body)
        listed = answer.get("value")
        for row in listed if isinstance(listed, list) else [answer]:
            if isinstance(row, dict) and "PartitionKey" in row and "RowKey" in row:
                yield EntityIdentity(found[1].lower(), row["PartitionKey"], row["RowKey"]), row


def operations(exchange: Exchange) -> Iterator[tuple[str, EntityIdentity]]:
    """The operations on entities that succeeded."""
    if exchange.path == "/$batch":
        if not all(status.startswith(b"2") for status in FIRST_STATUS.findall(exchange.body)):
            return
        for inner in INNER_REQUEST.finditer(exchange.request_body.decode()):
            path = SERVICE_BASE.sub("", inner["uri"]).partition("?")[0]
            identity = identity_in_request(path, (inner["body"] or "").encode())
            if identity is not None:
                yield inner["method"], identity
    elif exchange.status < 300 and ENTITIES_PATH.fullmatch(unquote(exchange.path)):
        identity = identity_in_request(exchange.path, exchange.request_body)
        if identity is not None:
            yield exchange.method, identity


def is_upsert(exchange: Exchange, method: str) -> bool:
    return (
        method != "DELETE"
        and "if-match" not in exchange.request_headers
        and exchange.path != "/$batch"
    )


def key_of_token(token: str) -> str:
    """The key in `1!length!text` (wire 6.9)."""
    text = token.split("!", 2)[2].replace("-", "=")
    return base64.b64decode(text).decode()


def path_of(identity: EntityIdentity) -> str:
    partition, row = (
        quote(key.replace("'", "''"), safe="") for key in (identity.partition_key, identity.row_key)
    )
    return f"/{identity.table}(PartitionKey='{partition}',RowKey='{row}')"
