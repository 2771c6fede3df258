"""Reads and writes entities as JSON lines, in the service's own form, and reads the JSON documents of other tools.

A document is an array, or an object that has one, as AzCopy 7, `az` and the service itself write it. It is read
whole; lines are read one by one. Types are those of `odata=minimalmetadata`, so that nothing is lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import orjson

from tablestone.model.edm import EdmValue
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tools import odata
from tablestone.tools.errors import TransferRefused
from tablestone.tools.formats.compressed import BinaryFile, ReadPosition
from tablestone.tools.formats.rows import Reading, Rejected, Row, RowMaker

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A longer line is no entity: one of 2 MiB, the most that any service takes, has 6 MiB as JSON."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


def read_json(
    file: BinaryFile, path: str, reading: Reading, position: ReadPosition
) -> Iterator[Row | Rejected]:
    """The rows of a file of JSON lines, or of one document; `TransferRefused` if it is neither."""
    maker = maker_of(reading)
    first = file.readline(LINE_BYTES_MAX)
    if first.startswith(_UTF16_MARKS):
        raise TransferRefused(f"{path} is UTF-16: JSON lines are UTF-8.")
    first = first.removeprefix(_BYTE_ORDER_MARK)
    if _is_whole_document(first):
        found = _read_document(first + file.read(), path, position)
        yield from read_objects(found, reading, maker, position)
        return
    others = iter(partial(file.readline, LINE_BYTES_MAX), b"")
    for number, line in enumerate(chain([first], others), start=1):
        if stripped := line.strip():
            yield _read_line(number, stripped, reading, maker)


def maker_of(reading: Reading) -> RowMaker | None:
    """The maker of rows; None if entities are stored as they are, which is faster."""
    has_keys = (reading.partition_key, reading.row_key) == (PARTITION_KEY, ROW_KEY)
    is_as_stored = has_keys and not (reading.types or reading.drop or reading.nulls)
    return None if is_as_stored else RowMaker(reading)


def _is_whole_document(first_line: bytes) -> bool:
    """Whether the file is one JSON document, and not lines with an entity each."""
    stripped = first_line.strip()
    if not stripped.startswith((b"[", b"{")):
        return False
    try:
        read = orjson.loads(stripped)
    except ValueError:
        # A document over several lines begins with a bracket, alone or before its first member.
        return stripped in (b"{", b"[", b"[{") or stripped.startswith(b"[")
    return isinstance(read, list) or _listed(read) is not None


def _listed(document: Mapping[str, Any]) -> list[Any] | None:
    """The entities of a document of the service, AzCopy 7 or `az storage entity query`; None for any other document."""
    if isinstance(found := document.get("value"), list):
        return found
    if isinstance(found := document.get("items"), list) and "nextMarker" in document:
        return [_of_az(each) if isinstance(each, dict) else each for each in found]
    return None


def _read_document(content: bytes, path: str, position: ReadPosition) -> list[Any]:
    try:
        read = orjson.loads(content)
    except ValueError as error:
        raise TransferRefused(
            f"{path} is neither JSON lines nor a JSON document: {error}."
        ) from None
    if isinstance(read, dict):
        marker = read.get("nextMarker")  # an object with a member for each of the two keys
        position.is_page = any(marker.values()) if isinstance(marker, dict) else bool(marker)
        listed = _listed(read)
        read = [read] if listed is None and PARTITION_KEY in read else listed
    if not isinstance(read, list):
        raise TransferRefused(
            f"{path} is JSON of another kind: an array of entities is needed, or an object with one as its value."
        )
    return read


def _of_az(raw: Mapping[str, Any]) -> dict[str, Any]:
    """An entity that `az` printed: an Int64 is an object, and `etag` is the service's, no property."""
    found: dict[str, Any] = {}
    for name, value in raw.items():
        if isinstance(value, dict) and "value" in value:
            found[name] = str(value["value"])
            found[name + odata.ANNOTATION] = value.get("edm_type") or value.get("edmType")
        elif name != "etag":
            found[name] = value
    return found


def read_objects(
    found: Sequence[Any], reading: Reading, maker: RowMaker | None, position: ReadPosition
) -> Iterator[Row | Rejected]:
    for number, raw in enumerate(position.hand_on(found), start=1):
        yield _read_object(number, raw, orjson.dumps(raw), reading, maker)


def _read_line(
    number: int, line: bytes, reading: Reading, maker: RowMaker | None
) -> Row | Rejected:
    try:
        raw = orjson.loads(line)
    except ValueError as error:
        return Rejected(number, f"not JSON: {error}", line.decode("utf-8", "replace"))
    return _read_object(number, raw, line, reading, maker)


def _read_object(
    number: int, raw: Any, text: bytes, reading: Reading, maker: RowMaker | None
) -> Row | Rejected:
    try:
        if not isinstance(raw, dict):
            raise ValueError("a JSON object is needed, with a member for each property")  # noqa: TRY301, TRY004 - the reason
        if maker is None:
            key, is_sent_as_it_is = odata.require_valid(raw, len(text))
            return Row(number, key, text if is_sent_as_it_is else odata.body_of(raw))
        return maker.make(number, typed_members(raw, reading))
    except ValueError as error:
        return Rejected(number, str(error), text.decode("utf-8", "replace"))


def typed_members(raw: Mapping[str, Any], reading: Reading) -> dict[str, EdmValue]:
    """All members with their types, including keys and Timestamp: templates may use them."""
    found = {}
    for name, value in raw.items():
        if value is None or "@" in name or name.startswith("odata."):
            continue
        if isinstance(value, str) and value in reading.nulls:
            continue
        kind = reading.types.get(name)
        if name in (PARTITION_KEY, ROW_KEY):
            found[name] = odata.read_value(name, value, None)
        elif kind is not None:
            found[name] = odata.typed_value(name, value, kind)
        else:
            found[name] = odata.read_value(name, value, raw.get(name + odata.ANNOTATION))
    return found


def write_line(raw: Mapping[str, Any]) -> bytes:
    return orjson.dumps(raw, option=orjson.OPT_APPEND_NEWLINE)
