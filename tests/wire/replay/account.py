"""The account as the recording found it: empty, except for the tables that other tests had left.

The recorded account was shared, so some listings show tables that the recording never created. The recorded answers
show which ones those are.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote

from .normalised import neutral_table_token
from .presupposed import Presupposed, path_of
from .settings import QUERY as PROPERTIES_QUERY

if TYPE_CHECKING:
    from .cassettes import Exchange, Recording
    from .target import Answer, Target

TABLES = "/Tables"
ONE_TABLE = re.compile(r"/Tables\('(\w+)'\)")
ENTITIES = re.compile(r"/(?!Tables\b)(\w+)")
TABLE_NAMES = re.compile(r'(?:"TableName"\s*:\s*"|<d:TableName[^>]*>)(\w+)')
TABLES_IN_BATCH = re.compile(r"(?m)^[A-Z]+ (?:https?://[^/\s]+)?/(\w+)")
OF_ENTITY = re.compile(rb"ResourceNotFound|EntityAlreadyExists|UpdateConditionNotSatisfied")
SERVICE_MEMBERS = ("odata.", "Timestamp")
AFTER_EVERY_TABLE = "\U0010ffff"
JSON_HEADERS = {
    "Accept": "application/json;odata=nometadata",
    "Content-Type": "application/json",
    "x-ms-version": "2019-02-02",
}


class AccountNotReadyError(Exception):
    """The server refused what the replay needs before it can compare anything."""


class Account:
    """The tables of the target's account, kept in step with what a recording shows."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._tables: set[str] = set()
        self._placed: set[str] = set()
        self._presupposed = Presupposed()
        self._as_listed: dict[str, str] = {}

    def table_names(self) -> list[str]:
        """All tables, over all pages."""
        names: list[str] = []
        query = ""
        while True:
            answer = self._require(self._target.send("GET", TABLES, query, JSON_HEADERS))
            names += [row["TableName"] for row in json.loads(answer.body)["value"]]
            token = answer.header("x-ms-continuation-nexttablename")
            if token is None:
                return names
            query = f"NextTableName={quote(token, safe='')}"

    def clear(self) -> None:
        for name in self.table_names():
            self._delete(name)
        self._tables.clear()
        self._placed.clear()

    def begin(self, recording: Recording) -> None:
        """Empty the account for this recording."""
        self.clear()
        self._presupposed = Presupposed(recording.exchanges)
        named = {name for each in recording.exchanges for name in table_names_in(each.body)}
        # A token has the name of the next table in lower case.
        self._as_listed = {name.lower(): name for name in named}

    def set_properties(self, document: bytes) -> None:
        headers = JSON_HEADERS | {"Accept": "application/xml", "Content-Type": "application/xml"}
        self._require(self._target.send("PUT", "/", PROPERTIES_QUERY, headers, document))

    def align(self, exchange: Exchange) -> None:
        """Create the tables that the recorded answer presupposes, and delete those that it shows to be gone."""
        if exchange.path == TABLES and exchange.method == "POST" and exchange.status < 300:
            for name in table_names_in(exchange.request_body) & self._tables:
                self._delete(name)  # another test of this recording had left it
                self._tables.discard(name)
        shown = {self._as_listed.get(name, name) for name in tables_presupposed(exchange)}
        for name in sorted(shown - self._tables):
            body = json.dumps({"TableName": name}).encode()
            made = self._target.send("POST", TABLES, "", JSON_HEADERS, body)
            if made.status != HTTPStatus.CONFLICT:  # the same name in other letters
                self._require(made)
            self._tables.add(name)
            self._placed.add(name)
        for identity, properties in self._presupposed.missing(exchange):
            written = {k: v for k, v in properties.items() if not k.startswith(SERVICE_MEMBERS)}
            body = json.dumps(
                written | {"PartitionKey": identity.partition_key, "RowKey": identity.row_key}
            ).encode()
            self._require(self._target.send("PUT", path_of(identity), "", JSON_HEADERS, body))
        for name in sorted(self._placed - shown):
            if covers(exchange, name):
                self._delete(name)
                self._tables.discard(name)
                self._placed.discard(name)

    def follow(self, exchange: Exchange) -> None:
        """Record the tables that an exchange created or deleted, from its recorded answer."""
        self._presupposed.follow(exchange)
        if exchange.path == TABLES and exchange.method == "POST" and exchange.status < 300:
            self._tables |= table_names_in(exchange.request_body)
        removed = ONE_TABLE.fullmatch(unquote(exchange.path))
        if removed and exchange.method == "DELETE" and exchange.status < 300:
            self._tables.discard(removed[1])
            self._placed.discard(removed[1])

    def _delete(self, name: str) -> None:
        self._require(self._target.send("DELETE", f"/Tables('{name}')", "", JSON_HEADERS))

    @staticmethod
    def _require(answer: Answer) -> Answer:
        if answer.status >= 300:
            raise AccountNotReadyError(f"{answer.status} {answer.body.decode(errors='replace')}")
        return answer


def tables_presupposed(exchange: Exchange) -> set[str]:
    """The tables that existed when the service answered: listed, next in line, deleted, in conflict, or not empty."""
    path = unquote(exchange.path)
    one_table, entities = ONE_TABLE.fullmatch(path), ENTITIES.match(path)
    if exchange.path == TABLES and exchange.method == "GET" and exchange.status == 200:
        listed = table_names_in(exchange.body)
        upcoming = next_table(exchange)
        return listed if upcoming is None else listed | {upcoming}
    if exchange.path == TABLES and exchange.status == 409:
        return table_names_in(exchange.request_body)
    if one_table and exchange.status < 300:
        return {one_table[1]}
    if entities and shows_its_table(exchange):
        return {entities[1]}
    if path == "/$batch" and b"HTTP/1.1 20" in exchange.body:
        return set(TABLES_IN_BATCH.findall(exchange.request_body.decode()))
    return set()


def shows_its_table(exchange: Exchange) -> bool:
    """Whether the table existed: something was done in it, or the answer is about an entity."""
    return exchange.status < 300 or (
        exchange.status in {404, 409, 412} and OF_ENTITY.search(exchange.body) is not None
    )


def table_names_in(body: bytes) -> set[str]:
    """The table names in a body or an answer, in JSON or Atom."""
    return set(TABLE_NAMES.findall(body.decode()))


def next_table(exchange: Exchange) -> str | None:
    token = exchange.headers.get("x-ms-continuation-nexttablename")
    return None if token is None else neutral_table_token(token).partition("\x01")[0]


def covers(exchange: Exchange, name: str) -> bool:
    """Whether the recorded answer is a listing that would have shown the table."""
    options = dict(parse_qsl(exchange.query))
    if exchange.path != TABLES or exchange.method != "GET" or "$filter" in options:
        return False
    start = neutral_table_token(options.get("NextTableName", "")).partition("\x01")[0]
    return start <= name < (next_table(exchange) or AFTER_EVERY_TABLE)
