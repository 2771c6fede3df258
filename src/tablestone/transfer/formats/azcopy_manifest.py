"""An export of AzCopy 7: a manifest, and beside it the data files that it counts.

    {"Version":2,"PayloadFormat":"Json","Checksum":…,"AccountName":…,"TableName":…,"TotalDataFiles":1,…}

Data files are called as the manifest, with an index and a checksum: `account_table_timestamp_0_CRC.json`. The
checksums are not looked at: how AzCopy 7 computes them is not documented.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import orjson

from tablestone.transfer.refusals import TransferRefused

SUFFIX: Final = ".manifest"
_DATA_FILE = re.compile(r"_(\d+)_[0-9A-Za-z]+\.json", re.IGNORECASE)


def data_files(manifest: str) -> list[Path]:
    """The data files of a manifest, in their order; refuses what is not one, and one whose files are not all there."""
    path = Path(manifest)
    described = _read(path)
    payload = str(described.get("PayloadFormat", "Json"))
    if payload.lower() != "json":
        raise TransferRefused(
            f"{path} describes files of {payload}: import each .csv by itself, with --types."
        )
    found = []
    for candidate in path.parent.glob(f"{_escaped(path.stem)}_*"):
        named = _DATA_FILE.fullmatch(candidate.name.removeprefix(path.stem))
        if named:
            found.append((int(named[1]), candidate))
    expected = described.get("TotalDataFiles")
    if isinstance(expected, int) and expected != len(found):
        raise TransferRefused(
            f"{path} counts {expected} data files, and {len(found)} are beside it."
        )
    if not found:
        raise TransferRefused(f"{path} has no data file beside it.")
    return [candidate for _, candidate in sorted(found)]


def _read(path: Path) -> dict[str, Any]:
    try:
        described = orjson.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except OSError as error:
        raise TransferRefused(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        described = None
    if not isinstance(described, dict) or "PayloadFormat" not in described:
        raise TransferRefused(f"{path} is not a manifest of AzCopy.")
    return described


def _escaped(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)
