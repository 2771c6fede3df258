"""The differences between a recorded answer and the server's: status, headers, body to the member.

It compares neutral texts (`normalised`), and binds the server's generated values to the service's (`bindings`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree.ElementTree import ParseError
from xml.sax.saxutils import unescape

from .bindings import EntityIdentity, timestamp_of_etag
from .normalised import (
    ERROR_MESSAGE,
    GUID,
    HTTP_DATE,
    answered_headers,
    neutral_answer,
    neutral_recording,
    neutral_stamps,
    recorded_headers,
)
from .payloads import Members, parse_batch, parse_json, parse_xml

if TYPE_CHECKING:
    from .bindings import Bindings
    from .cassettes import Exchange
    from .outgoing import Request
    from .payloads import BatchPart, Json, XmlNode
    from .target import Answer, Target

TOKEN_HEADERS = (
    "x-ms-continuation-nextpartitionkey",
    "x-ms-continuation-nextrowkey",
    "x-ms-continuation-nexttablename",
)
TABLE_IN_PATH = re.compile(r"/(\w+)")
ATOM_ETAG = re.compile(r"""m:etag="W/&quot;datetime'([^']*)'&quot;\"""")
ATOM_KEYS = re.compile(
    r"<d:PartitionKey[^>]*>([^<]*)</d:PartitionKey>\s*<d:RowKey[^>]*>([^<]*)</d:RowKey>"
)
BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class Difference:
    where: str
    recorded: str
    answered: str

    def __str__(self) -> str:
        return f"{self.where}\n      recorded: {self.recorded}\n      answered: {self.answered}"


@dataclass
class AnswerComparison:
    """The comparison of one exchange in progress; `differences` is its result."""

    exchange: Exchange
    request: Request
    answer: Answer
    target: Target
    bindings: Bindings
    differences: list[Difference] = field(default_factory=list)

    def run(self) -> list[Difference]:
        self._same("status", self.exchange.status, self.answer.status)
        if self.exchange.reason and self.exchange.status >= 400:
            self._same("reason phrase", self.exchange.reason, self.answer.reason)
        self._compare_headers()
        self._compare_body()
        self._learn_tokens()
        return self.differences

    def _same(self, where: str, recorded: object, answered: object) -> bool:
        if recorded == answered and type(recorded) is type(answered):
            return True
        self.differences.append(Difference(where, shown(recorded), shown(answered)))
        return False

    def _compare_headers(self) -> None:
        recorded = recorded_headers(self.exchange)
        answered = answered_headers(self.answer, self.target, self.exchange)
        for name in sorted(recorded.keys() | answered.keys()):
            where = f"header {name}"
            if name == "etag" and name in recorded and name in answered:
                self._compare_etag(where, self._entity(0), recorded[name], answered[name])
            else:
                self._same(where, recorded.get(name), answered.get(name))
        for name, form in (("x-ms-request-id", GUID), ("date", HTTP_DATE)):
            value = self.answer.header(name)
            if value is None or not form.fullmatch(value):
                self._same(f"header {name}", f"(like {form.pattern})", value)

    def _entity(self, operation: int) -> EntityIdentity | None:
        entities = self.request.entities
        return entities[operation] if operation < len(entities) else None

    def _compare_etag(
        self, where: str, entity: EntityIdentity | None, recorded: str, answered: str
    ) -> None:
        recorded_timestamp = timestamp_of_etag(recorded)
        answered_timestamp = timestamp_of_etag(answered)
        if (
            recorded_timestamp is None
            or answered_timestamp is None
            or not self.bindings.bind_timestamp(entity, recorded_timestamp, answered_timestamp)
        ):
            self._same(where, recorded, answered + " (not bound to the recorded one)")

    def _compare_body(self) -> None:
        recorded = neutral_recording(self.exchange.body.decode())
        try:
            answered = neutral_answer(self.answer.body.decode(), self.target)
        except UnicodeDecodeError:
            self._same("body", recorded, self.answer.body)
            return
        content_type = self.exchange.headers.get("content-type", "")
        try:
            if recorded == "" or answered == "":
                self._same("body", recorded, answered)
            elif content_type.startswith("multipart/mixed"):
                self._compare_batch(recorded, answered)
            elif content_type.startswith("application/atom+xml"):
                self._compare_atom("body", recorded, answered)
            elif content_type.startswith("application/xml"):
                self._compare_xml_text(recorded, answered)
            else:
                self._compare_json("body", parse_json(recorded), parse_json(answered), None)
        except (json.JSONDecodeError, ParseError):
            self._same("body", recorded, answered)
        if not self.differences and not self.exchange.reserialised:
            # The members are equal: are blanks and escapes, too?
            self._same("body spelling", neutral_stamps(recorded), neutral_stamps(answered))

    def _compare_batch(self, recorded_text: str, answered_text: str) -> None:
        recorded, answered = parse_batch(recorded_text), parse_batch(answered_text)
        if recorded is None or answered is None:
            self._same("batch", recorded_text, answered_text)
            return
        self._same("batch opening", recorded.opening, answered.opening)
        self._same("batch closing", recorded.closing, answered.closing)
        if self._same("number of parts", len(recorded.parts), len(answered.parts)):
            for index, pair in enumerate(zip(recorded.parts, answered.parts, strict=True)):
                self._compare_part(index, *pair)

    def _compare_part(self, index: int, recorded: BatchPart, answered: BatchPart) -> None:
        where = f"part {index}"
        self._same(f"{where} MIME headers", recorded.mime_lines, answered.mime_lines)
        self._same(f"{where} status line", recorded.status_line, answered.status_line)
        recorded_lines = without_etag(recorded.header_lines)
        if self._same(f"{where} header lines", recorded_lines, without_etag(answered.header_lines)):
            recorded_etag, answered_etag = etag_of(recorded), etag_of(answered)
            if recorded_etag and answered_etag:
                self._compare_etag(
                    f"{where} ETag", self._entity(index), recorded_etag, answered_etag
                )
        self._same(f"{where} ending", recorded.ending, answered.ending)
        if recorded.body.startswith("<"):
            self._compare_atom(f"{where} body", recorded.body, answered.body)
        elif recorded.body and answered.body:
            self._compare_json(
                f"{where} body",
                parse_json(recorded.body),
                parse_json(answered.body),
                self._entity(index),
            )
        else:
            self._same(f"{where} body", recorded.body, answered.body)

    def _compare_atom(self, where: str, recorded: str, answered: str) -> None:
        """Byte for byte, except what the server generates: order and namespaces are part of the form."""
        old, new = atom_entries(recorded), atom_entries(answered)
        for (entity, etag), (_, answered_etag) in zip(old, new, strict=False):
            table = TABLE_IN_PATH.match(self.exchange.path)
            whose = EntityIdentity(table[1].lower(), *entity) if table and entity else None
            self._compare_etag(f"{where} etag", whose, etag, answered_etag)
        self._same(where, neutral_stamps(recorded), neutral_stamps(answered))

    def _compare_json(
        self, where: str, recorded: Json, answered: Json, entity: EntityIdentity | None
    ) -> None:
        if isinstance(recorded, Members) and isinstance(answered, Members):
            names = [name for name, _ in recorded.pairs]
            if self._same(f"{where} members", names, [name for name, _ in answered.pairs]):
                whose = self._identity_of(recorded) or entity or self._entity(0)
                for (name, old), (_, new) in zip(recorded.pairs, answered.pairs, strict=True):
                    self._compare_member(where, name, old, new, whose)
        elif isinstance(recorded, list) and isinstance(answered, list):
            if self._same(f"{where} length", len(recorded), len(answered)):
                for index, pair in enumerate(zip(recorded, answered, strict=True)):
                    self._compare_json(f"{where}[{index}]", *pair, entity)
        else:
            self._same(where, recorded, answered)

    def _compare_member(
        self, where: str, name: str, recorded: Json, answered: Json, whose: EntityIdentity | None
    ) -> None:
        place = f"{where}.{name}"
        if not isinstance(recorded, str) or not isinstance(answered, str):
            self._compare_json(place, recorded, answered, whose)
        elif name == "odata.etag":
            self._compare_etag(place, whose, recorded, answered)
        elif name == "Timestamp":
            if not self.bindings.bind_timestamp(whose, recorded, answered):
                self._same(place, recorded, answered + " (not bound to the recorded one)")
        elif place.endswith("odata.error.message.value"):
            self._compare_message(place, recorded, answered)
        else:
            self._same(place, recorded, answered)

    def _identity_of(self, entity: Members) -> EntityIdentity | None:
        partition_key, row_key = entity.get("PartitionKey"), entity.get("RowKey")
        table = TABLE_IN_PATH.match(self.exchange.path)
        if not isinstance(partition_key, str) or not isinstance(row_key, str) or table is None:
            return None
        return EntityIdentity(table[1].lower(), partition_key, row_key)

    def _compare_message(self, where: str, recorded: str, answered: str) -> None:
        old, new = ERROR_MESSAGE.fullmatch(recorded), ERROR_MESSAGE.fullmatch(answered)
        if old is None or new is None:
            self._same(where, recorded, answered)
            return
        self._same(where, old["text"], new["text"])
        self._same(f"{where} RequestId", self.answer.header("x-ms-request-id"), new["id"])

    def _compare_xml_text(self, recorded: str, answered: str) -> None:
        marked = recorded.startswith(BYTE_ORDER_MARK)
        self._same("byte order mark", marked, answered.startswith(BYTE_ORDER_MARK))
        old, new = (text.removeprefix(BYTE_ORDER_MARK) for text in (recorded, answered))
        self._compare_xml("body", parse_xml(old), parse_xml(new))

    def _compare_xml(self, where: str, recorded: XmlNode, answered: XmlNode) -> None:
        place = f"{where}/{recorded.tag.rpartition('}')[2]}"
        self._same(f"{place} tag", recorded.tag, answered.tag)
        self._same(f"{place} attributes", recorded.attributes, answered.attributes)
        if place.endswith("/error/message"):
            self._compare_message(place, recorded.text, answered.text)
        elif place.endswith("/LastSyncTime"):
            if not HTTP_DATE.fullmatch(answered.text or ""):
                self._same(f"{place} text", f"(like {HTTP_DATE.pattern})", answered.text)
        else:
            self._same(f"{place} text", recorded.text, answered.text)
        if self._same(f"{place} children", len(recorded.children), len(answered.children)):
            for pair in zip(recorded.children, answered.children, strict=True):
                self._compare_xml(place, *pair)

    def _learn_tokens(self) -> None:
        for name in TOKEN_HEADERS:
            recorded, answered = self.exchange.headers.get(name), self.answer.header(name)
            if recorded is not None and answered is not None:
                self.bindings.tokens[recorded] = answered


def without_etag(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("ETag: (bound)" if line.startswith("ETag: ") else line for line in lines)


def atom_entries(text: str) -> list[tuple[tuple[str, str] | None, str]]:
    """The keys of each entry, if it has them, and its ETag."""
    found = []
    for entry in text.split("<entry")[1:]:
        etag = ATOM_ETAG.search(entry)
        keys = ATOM_KEYS.search(entry)
        if etag:
            identity = (unescape(keys[1]), unescape(keys[2])) if keys else None
            found.append((identity, f"W/\"datetime'{etag[1]}'\""))
    return found


def etag_of(part: BatchPart) -> str | None:
    return next(
        (line.removeprefix("ETag: ") for line in part.header_lines if line.startswith("ETag: ")),
        None,
    )


def shown(value: object) -> str:
    return "(absent)" if value is None else value if isinstance(value, str) else repr(value)
