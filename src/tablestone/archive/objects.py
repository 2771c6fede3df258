"""The objects of an archive: what their names say, and how each is framed, compressed and encrypted.

    LIFE/terms/N                     the start of a term: who writes, and from which record on
    LIFE/changes/N/FIRST-LAST        records of changes, as one second brought them
    LIFE/joined/N/FIRST-LAST         the same records, joined later
    LIFE/base/N/FROM/PART            rows of a base copy; the part `end` closes it

N, FROM, FIRST and LAST have twenty digits, so names sort as numbers do. An object never changes: it is created once,
or it is there already. Its facts are read without its body, so that a listing of many objects is quick.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
import secrets
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tablestone.engines.contract import StoredRow
from tablestone.engines.sqlite.archive_source import StoredRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tablestone.engines.kind import EncryptionKey

FORMAT: Final = b"tablestone archive 1\n"
"""The first line of each object. A later format has another number."""
_ANY_FORMAT: Final = re.compile(rb"tablestone archive (\d+)\n")
DIGITS: Final = 20
LIFE_BYTES: Final = 8
"""Random bytes in the name of a life."""
PIECE_BYTES: Final = 1 << 20
"""Bytes of a piece that is encrypted and checked for itself."""
OBJECT_BYTES_MAX: Final = 256 << 20
"""Bytes of the largest object that is read. A record of the largest transaction has some 9 MiB."""


class ObjectDamaged(Exception):
    """The object is not as it was written; the text is a sentence that names it."""


class ObjectRefused(Exception):
    """The object cannot be read here, such as one of a later format; the text is a sentence."""


class Kind(enum.StrEnum):
    TERM = "terms"
    CHANGES = "changes"
    JOINED = "joined"
    BASE = "base"


class Name(NamedTuple):
    """The name of an object. `first` and `last` are numbers of records; of a term and a base, `first` is all."""

    life: str
    kind: Kind
    term: int
    first: int = 0
    last: int = 0
    part: int | None = None
    """The part of a base; None for its end, and for other objects."""

    def __str__(self) -> str:
        start = f"{self.life}/{self.kind.value}/{self.term:0{DIGITS}}"
        if self.kind is Kind.TERM:
            return start
        if self.kind is Kind.BASE:
            return f"{start}/{self.first:0{DIGITS}}/{'end' if self.part is None else f'{self.part:06}'}"
        return f"{start}/{self.first:0{DIGITS}}-{self.last:0{DIGITS}}"


_NAME: Final = re.compile(
    rf"(?P<life>[0-9a-f]{{{2 * LIFE_BYTES}}})/"
    rf"(?:(?P<terms>terms)/(?P<t>\d{{{DIGITS}}})"
    rf"|(?P<run>changes|joined)/(?P<r>\d{{{DIGITS}}})/(?P<first>\d{{{DIGITS}}})-(?P<last>\d{{{DIGITS}}})"
    rf"|(?P<base>base)/(?P<b>\d{{{DIGITS}}})/(?P<of>\d{{{DIGITS}}})/(?P<part>end|\d{{6,}}))"
)


def zstd_library() -> Any:
    """The module; `ModuleNotFoundError` without the extra. Imported late, so that help needs no extra."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415
    else:
        from backports import zstd  # noqa: PLC0415
    return zstd


def fresh_life() -> str:
    return secrets.token_hex(LIFE_BYTES)


def parse_name(text: str) -> Name | None:
    """The name of an object of an archive; None for any other object, which is left alone."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    life = found["life"]
    if found["terms"]:
        return Name(life, Kind.TERM, int(found["t"]))
    if found["base"]:
        part = None if found["part"] == "end" else int(found["part"])
        return Name(life, Kind.BASE, int(found["b"]), int(found["of"]), part=part)
    first, last = int(found["first"]), int(found["last"])
    return Name(life, Kind(found["run"]), int(found["r"]), first, last) if first <= last else None


@dataclass(frozen=True, slots=True)
class Content:
    """What an object holds: a few facts, and its bytes."""

    facts: dict[str, Any]
    body: bytes = b""


FACTS_BYTES: Final = 64 << 10
"""Bytes at the start of an object that hold its facts, in all but the largest joined ones."""


def write_object(name: Name, content: Content, key: EncryptionKey | None = None) -> bytes:
    """The bytes of an object: its format, a checksum of all that follows, its head as JSON, its facts and its body.

    The head names the object, so that one which stands in another's place is found. With a `key`, all but the head is
    encrypted.
    """
    facts = zstd_library().compress(
        orjson.dumps(content.facts, default=tuple)
    )  # a named tuple is an array
    body = zstd_library().compress(content.body)
    head: dict[str, str | int] = {"name": str(name)}
    if key is not None:
        salt = secrets.token_bytes(16)
        head |= {"salt": salt.hex(), "key": _derive(key, salt, b"check").hex()}
        facts = b"".join(_encrypt(facts, _cipher(key, salt, _FACTS), name))
        body = b"".join(_encrypt(body, _cipher(key, salt, _BODY), name))
    rest = b"".join((orjson.dumps(head | {"facts": len(facts)}), b"\n", facts, body))
    return b"".join((FORMAT, hashlib.sha256(rest).hexdigest().encode(), b"\n", rest))


def read_object(name: Name, stored: bytes, keys: Sequence[EncryptionKey] = ()) -> Content:
    """The content of an object. Raises `ObjectDamaged`, or `ObjectRefused` for a later format or a key not given."""
    checksum = hashlib.sha256(stored[_REST:]).hexdigest().encode()
    if stored.startswith(FORMAT) and stored[:_REST] != FORMAT + checksum + b"\n":
        raise ObjectDamaged(f"{name} is damaged.")
    facts, body, ciphers = _parts(name, stored, keys)
    return Content(orjson.loads(_plain(name, facts, ciphers[0])), _plain(name, body, ciphers[1]))


def read_facts(
    name: Name, start: bytes, keys: Sequence[EncryptionKey] = ()
) -> dict[str, Any] | None:
    """The facts of an object, unchecked, by its first bytes; None if these do not hold them all."""
    try:
        facts, body, ciphers = _parts(name, start, keys)
        if body is None:
            return None
        found: dict[str, Any] = orjson.loads(_plain(name, facts, ciphers[0]))
    except (KeyError, TypeError, ValueError):
        raise ObjectDamaged(f"{name} is damaged.") from None
    return found


_REST: Final = len(FORMAT) + 64 + 1
"""Where the head begins: after the format and the checksum."""
_FACTS: Final = b"facts"
_BODY: Final = b"body"
_Ciphers = tuple[AESGCM | None, AESGCM | None]


def _parts(
    name: Name, stored: bytes, keys: Sequence[EncryptionKey]
) -> tuple[bytes, bytes | None, _Ciphers]:
    """The stored facts, the stored body (None if the bytes end before it), and what decrypts the two."""
    head, rest = _head(name, stored)
    ciphers: _Ciphers = (None, None)
    if "key" not in head and keys and name.kind is not Kind.TERM:  # anybody could have written it
        raise ObjectRefused(f"{name} is not encrypted: it is read without --archive-key-file only.")
    if "key" in head:
        key, salt = _fitting(name, head, keys)
        ciphers = (_cipher(key, salt, _FACTS), _cipher(key, salt, _BODY))
    length = head["facts"]
    return rest[:length], None if len(rest) < length else rest[length:], ciphers


def _head(name: Name, stored: bytes) -> tuple[dict[str, Any], bytes]:
    """The head of an object, and the bytes after it."""
    form = _ANY_FORMAT.match(stored)
    if form is not None and form[0] != FORMAT:
        raise ObjectRefused(
            f"{name} has the format {form[1].decode()}, which a later version of Tablestone has written."
        )
    first, _, rest = stored[_REST:].partition(b"\n")
    try:
        head = orjson.loads(first) if form is not None else {}
    except orjson.JSONDecodeError:
        head = {}
    if not isinstance(head, dict) or not isinstance(head.get("facts"), int):
        raise ObjectDamaged(f"{name} is damaged.")
    if head.get("name") != str(name):
        raise ObjectDamaged(f"{name} is damaged: its content is that of {head.get('name')}.")
    return head, rest


def fitting_key(name: Name, stored: bytes, keys: Sequence[EncryptionKey]) -> EncryptionKey | None:
    """The key that encrypts an object; None if none does. `ObjectRefused` if it is not here."""
    head = _head(name, stored)[0]
    return None if "key" not in head else _fitting(name, head, keys)[0]


def _fitting(
    name: Name, head: dict[str, str], keys: Sequence[EncryptionKey]
) -> tuple[EncryptionKey, bytes]:
    """The key that encrypts an object, and the salt."""
    salt, wanted = bytes.fromhex(head["salt"]), bytes.fromhex(head["key"])
    for key in keys:
        if hmac.compare_digest(_derive(key, salt, b"check"), wanted):
            return key, salt
    which = "another key: name its file too, with" if keys else "a key: name its file with"
    raise ObjectRefused(f"{name} is encrypted with {which} --archive-key-file.")


def _plain(name: Name, stored: bytes | None, cipher: AESGCM | None) -> bytes:
    """Decrypt and decompress."""
    whole, zstd = stored or b"", zstd_library()
    try:
        if cipher is not None:
            whole = b"".join(_decrypt(whole, cipher, name))
        plain: bytes = zstd.decompress(whole)
    except (InvalidTag, zstd.ZstdError):
        raise ObjectDamaged(f"{name} is damaged.") from None
    return plain


def _derive(key: EncryptionKey, salt: bytes, what: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, b"tablestone archive " + what).derive(key.secret)


def _cipher(key: EncryptionKey, salt: bytes, what: bytes) -> AESGCM:
    return AESGCM(_derive(key, salt, what))


def _encrypt(plain: bytes, cipher: AESGCM, name: Name) -> Iterator[bytes]:
    for number, piece, about in _pieces(plain, PIECE_BYTES, name):
        yield cipher.encrypt(number.to_bytes(12, "big"), piece, about)


def _decrypt(stored: bytes, cipher: AESGCM, name: Name) -> Iterator[bytes]:
    for number, piece, about in _pieces(stored, PIECE_BYTES + 16, name):
        yield cipher.decrypt(number.to_bytes(12, "big"), piece, about)


def _pieces(whole: bytes, size: int, name: Name) -> Iterator[tuple[int, bytes, bytes]]:
    """Pieces, at least one, with their numbers and associated data: each fits only into its place of its object."""
    for start in range(0, len(whole) or 1, size):
        is_last = start + size >= len(whole)
        about = b"%b\0%d%s" % (str(name).encode(), start // size, b" last" if is_last else b"")
        yield start // size, whole[start : start + size], about


class Entry(NamedTuple):
    """Records that were written at once: what the facts of an object say about them. Times are in ticks."""

    first: int
    last: int
    oldest_time: int
    newest_time: int
    wall: int
    """By the clock of the server, when it wrote them."""
    elapsed: float
    """Seconds by its clock that never steps back."""
    stored: float | None = None
    """Seconds since 1970 by the clock of the store, for records that were joined since."""


_RECORD: Final = struct.Struct("<qqiiii")
_ROW: Final = struct.Struct("<iiqi")


def write_records(records: Iterable[StoredRecord]) -> bytes:
    parts: list[bytes] = []
    for number, time, *texts in records:
        parts += (_RECORD.pack(number, time, *map(len, texts)), *texts)
    return b"".join(parts)


def read_records(body: bytes) -> Iterator[StoredRecord]:
    at = 0
    while at < len(body):
        number, time, *lengths = _RECORD.unpack_from(body, at)
        texts, at = _texts(body, at + _RECORD.size, lengths)
        yield StoredRecord(number, time, *texts)


def write_rows(rows: Iterable[StoredRow]) -> bytes:
    parts: list[bytes] = []
    for partition, row, version, value in rows:
        parts += (_ROW.pack(len(partition), len(row), version, len(value)), partition, row, value)
    return b"".join(parts)


def read_rows(body: bytes) -> Iterator[StoredRow]:
    at = 0
    while at < len(body):
        partition_length, row_length, version, value_length = _ROW.unpack_from(body, at)
        lengths = (partition_length, row_length, value_length)
        (partition, row, value), at = _texts(body, at + _ROW.size, lengths)
        yield StoredRow(partition, row, version, value)


def _texts(body: bytes, at: int, lengths: Iterable[int]) -> tuple[list[bytes], int]:
    texts: list[bytes] = []
    for length in lengths:
        texts.append(body[at : at + length])
        at += length
    return texts, at
