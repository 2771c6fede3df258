"""A recorded request as it goes to the server under test: host, ETags and tokens replaced.

Headers that the connection decides (Host, lengths, dates, compression) and scrubbed headers (Authorization) are
dropped; `target` adds new ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from .bindings import identity_in_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .bindings import Bindings, EntityIdentity
    from .cassettes import Exchange

OF_THE_CONNECTION = frozenset(
    [
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "date",
        "host",
        "user-agent",
        "x-ms-date",
    ]
)
TOKEN_PARAMETERS = frozenset(["NextPartitionKey", "NextRowKey", "NextTableName"])
SERVICE_BASE = re.compile(r"https?://[\w-]+\.table\.core\.windows\.net(?::443)?")
INNER_REQUEST = re.compile(
    r"(?P<method>POST|PUT|PATCH|MERGE|DELETE|GET) (?P<uri>\S+) HTTP/1\.1(?P<end>\r?\n)"
    r"(?P<headers>(?:[^\r\n]+\r?\n)*)(?P<gap>(?:\r?\n)+)(?P<body>\{[^\r\n]*\}|<\?xml .*?</entry>)?",
    re.DOTALL,
)
INNER_IF_MATCH = re.compile(r"(?im)^(If-Match: )([^\r\n]+)")


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    # To the account's secondary endpoint.
    secondary: bool
    # The entities of the answer: one, or one for each operation of a batch.
    entities: tuple[EntityIdentity | None, ...]


def request_to_send(exchange: Exchange, bindings: Bindings, endpoint: str) -> Request:
    headers = {
        name: value
        for name, value in exchange.request_headers.items()
        if name not in OF_THE_CONNECTION
    }
    query = "&".join(
        with_current_token(pair, bindings) for pair in exchange.query.split("&") if pair
    )
    body = exchange.request_body
    secondary = "-secondary." in exchange.host
    if exchange.path == "/$batch":
        text, entities = batch_to_send(body.decode(), bindings, endpoint)
        return Request(
            exchange.method, exchange.path, query, headers, text.encode(), secondary, entities
        )
    entity = identity_in_request(exchange.path, body)
    if "if-match" in headers:
        headers["if-match"] = bindings.answered_etag(entity, headers["if-match"])
    return Request(exchange.method, exchange.path, query, headers, body, secondary, (entity,))


def with_current_token(pair: str, bindings: Bindings) -> str:
    name, _, value = pair.partition("=")
    if name not in TOKEN_PARAMETERS:
        return pair
    recorded = unquote(value)
    answered = bindings.tokens.get(recorded, recorded)
    # An unchanged token keeps the recording's own way of encoding it.
    return pair if answered == recorded else f"{name}={quote(answered, safe='')}"


def batch_to_send(
    text: str, bindings: Bindings, endpoint: str
) -> tuple[str, tuple[EntityIdentity | None, ...]]:
    entities: list[EntityIdentity | None] = []

    def rewritten(operation: re.Match[str]) -> str:
        path = SERVICE_BASE.sub("", operation["uri"]).partition("?")[0]
        entity = identity_in_request(path, (operation["body"] or "").encode())
        entities.append(entity)
        headers = INNER_IF_MATCH.sub(
            lambda line: line[1] + bindings.answered_etag(entity, line[2]), operation["headers"]
        )
        uri = SERVICE_BASE.sub(endpoint, operation["uri"])
        start = f"{operation['method']} {uri} HTTP/1.1{operation['end']}"
        return f"{start}{headers}{operation['gap']}{operation['body'] or ''}"

    return INNER_REQUEST.sub(rewritten, text), tuple(entities)
