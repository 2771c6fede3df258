"""Reads the rows of a file of entities, with the reader for the end of its name.

Knows `.jsonl .ndjson .json .csv .parquet`, the first four also with `.gz` or `.zst`, the `.manifest` of AzCopy 7, and
`-` for standard input.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from tablestone.tools.errors import TransferRefused, refusing_unreadable
from tablestone.tools.formats import json_lines
from tablestone.tools.formats.compressed import (
    STANDARD_STREAM,
    ReadPosition,
    open_for_reading,
    split_name,
)
from tablestone.tools.formats.rows import Reading, Rejected, Row
from tablestone.tools.formats.typed_csv import SUFFIX as SCHEMA_SUFFIX
from tablestone.tools.formats.typed_csv import read_csv

MANIFEST_SUFFIX: Final = ".manifest"
_KINDS: Final = ("json", "csv")
_REST: Final = r"_(?P<range>\d+)(?:_(?P<split>\d+))?_[0-9A-Fa-f]+"
_MOMENT: Final = r"(?P<moment>\d{8}T\d{6}(?:\.\d+)?Z?)"


def data_files(manifest: str) -> tuple[str, list[Path]]:
    """The kind of a manifest's data files, json or csv, and their paths in order. Refuses it if one is missing."""
    path = Path(manifest)
    described = _read(path)
    kind = str(described["PayloadFormat"]).lower()
    if kind not in _KINDS:
        raise TransferRefused(
            f"{path} describes files of {described['PayloadFormat']}, which AzCopy 7 did not write."
        )
    found = sorted(
        (int(named["range"]), int(named["split"] or 0), candidate)
        for candidate in path.parent.iterdir()
        if not candidate.name.endswith(SCHEMA_SUFFIX)
        and (named := _named(candidate.name, path, described, kind))
    )
    expected = described.get("TotalDataFiles")
    if isinstance(expected, int) and expected != len(found):
        raise TransferRefused(
            f"{path} counts {expected} data files, and {len(found)} are beside it."
        )
    if not found:
        raise TransferRefused(f"{path} has no data file beside it.")
    return kind, [candidate for _, _, candidate in found]


def _named(name: str, manifest: Path, described: dict[str, Any], kind: str) -> re.Match[str] | None:
    """The match of a file name, if the file is a data file of this manifest."""
    rest = rf"{_REST}\.{kind}"
    named = re.fullmatch(re.escape(manifest.stem) + rest, name)
    if named:
        return named
    of_table = re.escape(f"{described.get('AccountName')}_{described.get('TableName')}_")
    named = re.fullmatch(of_table + _MOMENT + rest, name)
    if named and _digits(str(described.get("Timestamp"))).startswith(_digits(named["moment"])):
        return named
    return None


def _digits(moment: str) -> str:
    return re.sub(r"\D", "", moment)


def _read(path: Path) -> dict[str, Any]:
    with refusing_unreadable(path):
        content = path.read_bytes()
    try:
        described = orjson.loads(content.removeprefix(b"\xef\xbb\xbf"))
    except ValueError:
        described = None
    if not isinstance(described, dict) or "PayloadFormat" not in described:
        raise TransferRefused(f"{path} is not a manifest of AzCopy.")
    return described


JSON_KINDS: Final = ("jsonl", "ndjson", "json")
KINDS: Final = (*JSON_KINDS, "csv", "parquet")


def kind_of(path: str, given: str | None) -> str:
    """The kind of a file: as given, else by its name. A standard stream has JSON lines."""
    if given is not None:
        return given
    if path == STANDARD_STREAM:
        return "jsonl"
    ending = split_name(path)[0].removeprefix(".")
    if ending not in KINDS:
        raise TransferRefused(
            f"{path} does not end in .jsonl, .ndjson, .json, .csv (each also .gz or .zst) or .parquet: save it as one "
            "of these, or name its format with --format."
        )
    return ending


def require_kind(path: str, given: str | None) -> None:
    """Refuse a file of unknown kind before doing anything."""
    if given is not None or not path.endswith(MANIFEST_SUFFIX):
        kind_of(path, given)


def read_rows(
    path: str, reading: Reading, given_kind: str | None, position: ReadPosition
) -> Iterator[Row | Rejected]:
    """The rows of a file in order. Updates `position` as it reads."""
    if path.endswith(MANIFEST_SUFFIX) and given_kind is None:
        yield from _of_manifest(path, reading, position)
        return
    kind = kind_of(path, given_kind)
    if kind == "parquet":
        if path == STANDARD_STREAM or split_name(path)[1]:
            raise TransferRefused(
                "Parquet is read from a file of its own, not from standard input or a compressed file."
            )
        from tablestone.tools.formats.parquet import read_parquet  # noqa: PLC0415 - pyarrow loads slowly

        yield from read_parquet(path, reading, position)
        return
    with open_for_reading(path, position) as file:
        if kind == "csv":
            yield from read_csv(file, path, reading, position)
        else:
            yield from json_lines.read_json(file, path, reading, position)


def _of_manifest(
    manifest: str, reading: Reading, position: ReadPosition
) -> Iterator[Row | Rejected]:
    """The rows of all data files, numbered continuously."""
    before = 0
    kind, paths = data_files(manifest)
    for path in paths:
        number = 0
        for row in read_rows(str(path), reading, kind, position):
            number = row.number
            yield row._replace(number=before + number)
        before += number
