"""An export of AzCopy 7: a manifest, and beside it the data files that it counts.

    {"Version":2,"PayloadFormat":"Json","Checksum":…,"AccountName":"a","TableName":"Weather",
     "Timestamp":"2018-05-28T03:06:11.6482709Z","SplitSize":200000,"TotalDataFiles":1}
    a_Weather_20180528T030611.6482709Z_0_0_C3040FE8.json

A data file has the account, the table, the moment, the index of the range of keys, the index of the split and a
checksum in its name; the manifest may have any name, and then its members say which files are its own. Nothing public
says how the checksums are computed, so they are not compared: a file that is cut off is found by its JSON, and one
that is missing by the count.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import orjson

from tablestone.tools.formats.csv_schema import SUFFIX as SCHEMA_SUFFIX
from tablestone.tools.refusals import TransferRefused

SUFFIX: Final = ".manifest"
_KINDS: Final = ("json", "csv")
_REST: Final = r"_(?P<range>\d+)(?:_(?P<split>\d+))?_[0-9A-Fa-f]+"
_MOMENT: Final = r"(?P<moment>\d{8}T\d{6}(?:\.\d+)?Z?)"


def data_files(manifest: str) -> tuple[str, list[Path]]:
    """The kind of the data files (json or csv) and their paths in order.

    Refuses a file that is no manifest, and a manifest whose files are not all there.
    """
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
    """How a file is named, if it is a data file of this manifest."""
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
    try:
        described = orjson.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except OSError as error:
        raise TransferRefused(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        described = None
    if not isinstance(described, dict) or "PayloadFormat" not in described:
        raise TransferRefused(f"{path} is not a manifest of AzCopy.")
    return described
