"""Any file of entities as rows: the reader for the name of a file.

`.jsonl .ndjson .json .csv .parquet`, the first four also with `.gz` or `.zst`, a `.manifest` of AzCopy 7, and `-` for
standard input. Knows names only: the readers are loaded when one is needed, since pyarrow takes its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tablestone.tools.formats import azcopy_manifest, json_lines
from tablestone.tools.formats.compressed import (
    STANDARD_STREAM,
    ReadPosition,
    open_for_reading,
    split_name,
)
from tablestone.tools.formats.rows import Reading, Rejected, Row
from tablestone.tools.refusals import TransferRefused

JSON_KINDS: Final = ("jsonl", "ndjson", "json")
KINDS: Final = (*JSON_KINDS, "csv", "parquet")


def kind_of(path: str, given: str | None) -> str:
    """The kind of a file: the option, else the end of its name. A standard stream without the option is JSON lines."""
    if given is not None:
        return given
    if path == STANDARD_STREAM:
        return "jsonl"
    ending = split_name(path)[0].removeprefix(".")
    if ending not in KINDS:
        raise TransferRefused(
            f"{path} does not end in {', '.join('.' + kind for kind in KINDS)}: say --format."
        )
    return ending


def require_kind(path: str, given: str | None) -> None:
    """Refuse a file whose kind is not known, before anything else is done."""
    if given is not None or not path.endswith(azcopy_manifest.SUFFIX):
        kind_of(path, given)


def read_rows(
    path: str, reading: Reading, given_kind: str | None, position: ReadPosition
) -> Iterator[Row | Rejected]:
    """The rows of a file, in its order. `position` follows the reading."""
    if path.endswith(azcopy_manifest.SUFFIX) and given_kind is None:
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
            from tablestone.tools.formats.csv_typed import read_csv  # noqa: PLC0415 - as above

            yield from read_csv(file, path, reading)
        else:
            yield from json_lines.read_json(file, path, reading)


def _of_manifest(
    manifest: str, reading: Reading, position: ReadPosition
) -> Iterator[Row | Rejected]:
    """The rows of all data files, numbered on through them."""
    before = 0
    kind, paths = azcopy_manifest.data_files(manifest)
    for path in paths:
        number = 0
        for row in read_rows(str(path), reading, kind, position):
            number = row.number
            yield row._replace(number=before + number)
        before += number
