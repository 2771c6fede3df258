"""Cassettes (vcr's YAML, one per test of the SDK) as ordered exchanges with the live service.

vcr wrote two shapes: synchronous, with lists of header values, and asynchronous, with plain strings. Exchanges with
Cosmos DB are another product's answers.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

RECORDINGS_FOLDER = "/tests/recordings/"
# Searched in the raw text, so that half of the cassettes need no parsing.
STORAGE_HOST_SUFFIX = b".table.core.windows.net"
COSMOS_HOST_SUFFIX = ".table.cosmos.azure.com"
# libyaml reads the 3 MB a hundred times faster; both loaders are safe ones.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Exchange:
    """One request as the SDK sent it and the service's answer. Header names are lower-case."""

    recording: str
    index: int
    method: str
    host: str
    path: str
    query: str
    request_headers: Mapping[str, str]
    request_body: bytes
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    # The recorder reformatted the answer's JSON: its blanks and escapes are not the service's.
    reserialised: bool = False

    @property
    def name(self) -> str:
        return f"{self.recording}#{self.index}"


@dataclass(frozen=True)
class Recording:
    name: str
    exchanges: tuple[Exchange, ...]


def load_recordings(archive: Path) -> list[Recording]:
    """The recordings of Azure Table storage, by name, without those of Cosmos DB."""
    recordings = []
    with zipfile.ZipFile(archive) as members:
        for member in sorted(members.namelist()):
            if RECORDINGS_FOLDER not in member or not member.endswith(".yaml"):
                continue
            text = members.read(member)
            if STORAGE_HOST_SUFFIX not in text:
                continue
            name = member.rpartition("/")[2].removesuffix(".yaml")
            cassette = yaml.load(text, Loader=LOADER)  # noqa: S506 - both loaders are safe ones
            exchanges = tuple(read_exchanges(name, cassette["interactions"]))
            if exchanges:
                recordings.append(Recording(name, exchanges))
    return recordings


def read_exchanges(recording: str, interactions: list[dict[str, Any]]) -> Iterator[Exchange]:
    for index, interaction in enumerate(interactions):
        request, response = interaction["request"], interaction["response"]
        address = urlsplit(request["uri"])
        if address.netloc.endswith(COSMOS_HOST_SUFFIX):
            continue
        yield Exchange(
            recording=recording,
            index=index,
            method=request["method"],
            host=address.netloc,
            path=address.path,
            query=address.query,
            request_headers=plain_headers(request["headers"]),
            request_body=as_bytes(request["body"]),
            status=response["status"]["code"],
            reason=response["status"]["message"],
            headers=plain_headers(response["headers"]),
            body=as_bytes(response["body"]["string"]),
        )


def plain_headers(headers: Mapping[str, str | list[str]]) -> dict[str, str]:
    return {
        name.lower(): value if isinstance(value, str) else ", ".join(value)
        for name, value in headers.items()
    }


def as_bytes(body: str | bytes | None) -> bytes:
    return body if isinstance(body, bytes) else (body or "").encode()
