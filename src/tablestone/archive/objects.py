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
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tablestone.engines.sqlite.archive_source import StoredRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tablestone.engines.kind import EncryptionKey

FORMAT: Final = b"tablestone archive 1\n"
"""The first line of each object. A later format has another number."""
_ANY_FORMAT: Final = re.compile(rb"tablestone archive (\d+)\n")
_REST: Final = len(FORMAT) + 64 + 1
"""Where the head begins: after the format and the checksum."""
LIFE_BYTES: Final = 8
"""Random bytes in the name of a life."""
PIECE_BYTES: Final = 1 << 20
"""Bytes of a piece of the body, which is encrypted for itself."""
FACTS_BYTES: Final = 64 << 10
"""Bytes at the start of an object that hold its facts, in all but the largest joined ones."""


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
    """The name of an object. `first` and `last` are numbers of records; of a base, `first` is all."""

    life: str
    kind: Kind
    term: int
    first: int = 0
    last: int = 0
    part: int | None = None
    """The part of a base; None for its end, and for other objects."""

    @property
    def is_end(self) -> bool:
        """Whether it closes a base copy."""
        return self.kind is Kind.BASE and self.part is None

    def __str__(self) -> str:
        start = f"{self.life}/{self.kind.value}/{self.term:020}"
        if self.kind is Kind.TERM:
            return start
        if self.kind is Kind.BASE:
            return f"{start}/{self.first:020}/{'end' if self.part is None else f'{self.part:06}'}"
        return f"{start}/{self.first:020}-{self.last:020}"


def fresh_life() -> str:
    return secrets.token_hex(LIFE_BYTES)


def parse_name(text: str) -> Name | None:
    """The name of an object of an archive; None for any other object, which is left alone."""
    with suppress(ValueError):
        life, kind, term, *rest = text.split("/")
        name = Name(life, Kind(kind), int(term))
        if name.kind is Kind.BASE:
            first, part = rest
            name = name._replace(first=int(first), part=None if part == "end" else int(part))
        elif name.kind is not Kind.TERM:
            first, last = rest[0].split("-")
            name = name._replace(first=int(first), last=max(int(first), int(last)))
        if str(name) == text and len(bytes.fromhex(life)) == LIFE_BYTES and life == life.lower():
            return name
    return None


def zstd_library() -> Any:
    """The module; `ModuleNotFoundError` without the extra. Imported late, so that help needs no extra."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415
    else:
        from backports import zstd  # noqa: PLC0415
    return zstd


class Compressed(bytes):
    """A body that is compressed already."""


class Content(NamedTuple):
    """What an object holds: a few facts, and its bytes. The key encrypts it; None: it is in clear."""

    facts: dict[str, Any]
    body: bytes = b""
    key: EncryptionKey | None = None


def write_object(name: Name, content: Content) -> bytes:
    """The bytes of an object: its format, a checksum of all that follows, its head as JSON, and its pieces.

    The first piece holds the facts, the others the body. The head names the object, so that one which stands in
    another's place is found. With a key, all pieces are encrypted.
    """
    facts, plain, key = content
    zstd = zstd_library()
    body = plain if isinstance(plain, Compressed) else zstd.compress(plain)
    pieces = [zstd.compress(orjson.dumps(facts, default=tuple))]  # a named tuple is an array
    pieces += (body[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES))
    head: dict[str, str | int] = {"name": str(name)}
    if key is not None:
        salt = secrets.token_bytes(16)
        head |= {"salt": salt.hex(), "key": _derive(key, salt, b"check").hex()}
        cipher = AESGCM(_derive(key, salt, b"pieces"))
        pieces = [cipher.encrypt(*each) for each in _placed(name, pieces)]
    head["facts"] = len(pieces[0])
    rest = b"".join((orjson.dumps(head), b"\n", *pieces))
    return b"".join((FORMAT, hashlib.sha256(rest).hexdigest().encode(), b"\n", rest))


def read_object(name: Name, stored: bytes, keys: Sequence[EncryptionKey] = ()) -> Content:
    """The content of an object. Raises `ObjectDamaged`, or `ObjectRefused` for a later format or a key not given."""
    checksum = hashlib.sha256(stored[_REST:]).hexdigest().encode()
    if stored.startswith(FORMAT) and stored[:_REST] != FORMAT + checksum + b"\n":
        raise ObjectDamaged(f"{name} is damaged.")
    return _read(name, stored, keys, whole=True)


def read_facts(
    name: Name, start: bytes, keys: Sequence[EncryptionKey] = ()
) -> dict[str, Any] | None:
    """The facts of an object, unchecked, by its first bytes; None if these do not hold them all."""
    return _read(name, start, keys, whole=False).facts or None


def _read(name: Name, stored: bytes, keys: Sequence[EncryptionKey], *, whole: bool) -> Content:
    """The content of an object; not `whole`: its facts alone, and none if the bytes end before."""
    form = _ANY_FORMAT.match(stored)
    if form is not None and form[0] != FORMAT:
        raise ObjectRefused(
            f"{name} has the format {form[1].decode()}, which a later version of Tablestone has written."
        )
    if form is None:
        raise ObjectDamaged(f"{name} is damaged.")
    zstd = zstd_library()
    try:
        first, _, rest = stored[_REST:].partition(b"\n")
        head = orjson.loads(first)
        if head["name"] != str(name):
            raise ObjectDamaged(f"{name} is damaged: its content is that of {head['name']}.")
        key, length = _fitting(name, head, keys), head["facts"]
        size = PIECE_BYTES + (16 if key is not None else 0)
        if not whole and len(rest) <= length:
            return Content({})
        if not whole:  # what follows the facts says that they are not the last piece
            rest = rest[: length + 1]
        pieces = [rest[:length], *(rest[at : at + size] for at in range(length, len(rest), size))]
        plain = iter(pieces)
        if key is not None:
            cipher = AESGCM(_derive(key, bytes.fromhex(head["salt"]), b"pieces"))
            plain = (cipher.decrypt(*each) for each in _placed(name, pieces))
        facts = orjson.loads(zstd.decompress(next(plain)))
        return Content(facts, zstd.decompress(b"".join(plain)) if whole else b"", key)
    except (InvalidTag, zstd.ZstdError, KeyError, TypeError, ValueError):
        raise ObjectDamaged(f"{name} is damaged.") from None


def _placed(name: Name, pieces: Sequence[bytes]) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Nonces, pieces and associated data: each piece fits only into its place of its object."""
    for number, piece in enumerate(pieces):
        is_last = number == len(pieces) - 1
        about = b"%b\0%d%s" % (str(name).encode(), number, b" last" if is_last else b"")
        yield number.to_bytes(12, "big"), piece, about


def _fitting(
    name: Name, head: dict[str, str], keys: Sequence[EncryptionKey]
) -> EncryptionKey | None:
    """The key that encrypts an object; None if it is in clear, and may be."""
    if "key" not in head:
        if keys and name.kind is not Kind.TERM:  # anybody could have written it
            raise ObjectRefused(
                f"{name} is not encrypted: it is read without --archive-key-file only."
            )
        return None
    salt, wanted = bytes.fromhex(head["salt"]), bytes.fromhex(head["key"])
    for key in keys:
        if hmac.compare_digest(_derive(key, salt, b"check"), wanted):
            return key
    which = "another key: name its file too, with" if keys else "a key: name its file with"
    raise ObjectRefused(f"{name} is encrypted with {which} --archive-key-file.")


def _derive(key: EncryptionKey, salt: bytes, what: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, b"tablestone archive " + what).derive(key.secret)


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


def write_records(records: Iterable[StoredRecord]) -> bytes:
    parts: list[bytes] = []
    pack = _RECORD.pack
    for number, time, a, b, c, d in records:  # under load, thousands each second
        parts += (pack(number, time, len(a), len(b), len(c), len(d)), a, b, c, d)
    return b"".join(parts)


def digest_of(record: StoredRecord) -> str:
    """What the facts of an object say of the record before its first: two writers of one term are told apart by it."""
    return hashlib.sha256(write_records([record])).hexdigest()[:32]


def read_records(body: bytes) -> Iterator[StoredRecord]:
    at = 0
    while at < len(body):
        number, time, *lengths = _RECORD.unpack_from(body, at)
        at += _RECORD.size
        texts: list[bytes] = []
        for length in lengths:
            texts.append(body[at : at + length])
            at += length
        yield StoredRecord(number, time, *texts)
