"""The Timestamps, ETags and tokens of the recorded answers, each bound to the one in the present answer.

A Timestamp is bound when it is first seen, per entity, and must keep its partner; two Timestamps of one entity may not
share a partner. So an ETag that changed without a write, or a write that left it unchanged, shows as a difference.
"""

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from urllib.parse import unquote

# Zeros at the end of the fraction are trimmed, and the dot with the last of them (wire 4).
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{0,6}[1-9])?Z")
ETAG = re.compile(r"""W/"datetime'(\d{4}-\d\d-\d\dT\d\d%3A\d\d%3A\d\d(?:\.\d{0,6}[1-9])?Z)'\"""")
ENTITY_PATH = re.compile(
    r"/(?P<table>\w+)\(PartitionKey='(?P<partition>(?:[^']|'')*)',RowKey='(?P<row>(?:[^']|'')*)'\)"
)
ATOM_KEY = re.compile(r"<d:(PartitionKey|RowKey)[^>]*>([^<]*)<")


@dataclass(frozen=True)
class EntityIdentity:
    table: str
    partition_key: str
    row_key: str


def identity_in_request(path: str, body: bytes) -> EntityIdentity | None:
    """The entity that a request addresses by its path, or inserts by its body; None if it names no single one."""
    addressed = ENTITY_PATH.fullmatch(unquote(path))
    if addressed:
        keys = (addressed[name].replace("''", "'") for name in ("partition", "row"))
        return EntityIdentity(addressed["table"].lower(), *keys)
    members = json.loads(body) if body.startswith(b"{") else dict(ATOM_KEY.findall(body.decode()))
    if "PartitionKey" not in members or "RowKey" not in members:
        return None
    return EntityIdentity(path.strip("/()").lower(), members["PartitionKey"], members["RowKey"])


def timestamp_of_etag(etag: str) -> str | None:
    """The Timestamp that the tag was derived from; None for any other form of tag."""
    parsed = ETAG.fullmatch(etag)
    return parsed[1].replace("%3A", ":") if parsed else None


def etag_of_timestamp(timestamp: str) -> str:
    return f"W/\"datetime'{timestamp.replace(':', '%3A')}'\""


@dataclass
class Bindings:
    """The bindings of one recording. Keys are recorded texts, values the server's."""

    timestamps: dict[tuple[EntityIdentity, str], str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    _partners: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def bind_timestamp(self, entity: EntityIdentity | None, recorded: str, answered: str) -> bool:
        """Bind a pair; False if it contradicts an earlier one."""
        if not TIMESTAMP.fullmatch(answered):
            return False
        if entity is None:
            # A projected row in a list does not say whose it is: any partner of that text will do.
            return answered in self._partners[recorded]
        taken = {
            known
            for (whose, text), known in self.timestamps.items()
            if whose == entity and text != recorded
        }
        partner = self.timestamps.setdefault((entity, recorded), answered)
        self._partners[recorded].add(partner)
        return partner == answered and answered not in taken

    def answered_etag(self, entity: EntityIdentity | None, recorded_etag: str) -> str:
        """The tag to send in place of the recorded one; a tag that the service never gave is sent as it is."""
        timestamp = timestamp_of_etag(recorded_etag)
        if timestamp is None or entity is None:
            return recorded_etag
        partner = self.timestamps.get((entity, timestamp))
        return recorded_etag if partner is None else etag_of_timestamp(partner)
