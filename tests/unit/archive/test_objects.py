"""The objects of an archive: names, frame, checksum, encryption (`archive/objects.py`)."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from storage.encrypted_directory import KEY, OTHER
from tablestone.archive import objects
from tablestone.archive.objects import (
    FORMAT,
    PIECE_BYTES,
    Content,
    Kind,
    Name,
    ObjectDamaged,
    ObjectRefused,
    fresh_life,
    parse_name,
    read_facts,
    read_object,
    read_records,
    write_object,
    write_records,
)
from tablestone.engines.sqlite.archive_source import StoredRecord

if TYPE_CHECKING:
    from tablestone.engines.kind import EncryptionKey

LIFE = "0123456789abcdef"
N = "00000000000000000007"
NAMES = {
    f"{LIFE}/terms/{N}": Name(LIFE, Kind.TERM, 7),
    f"{LIFE}/changes/{N}/{N}-00000000000000000012": Name(LIFE, Kind.CHANGES, 7, 7, 12),
    f"{LIFE}/joined/{N}/{N}-{N}": Name(LIFE, Kind.JOINED, 7, 7, 7),
    f"{LIFE}/base/{N}/{N}/000001": Name(LIFE, Kind.BASE, 7, 7, part=1),
    f"{LIFE}/base/{N}/{N}/1234567": Name(LIFE, Kind.BASE, 7, 7, part=1_234_567),
    f"{LIFE}/base/{N}/{N}/end": Name(LIFE, Kind.BASE, 7, 7),
}
FOREIGN = (
    "",
    "terms",
    f"{LIFE}/terms/7",
    f"{LIFE}/terms/{N}/",
    f"/{LIFE}/terms/{N}",
    f"{LIFE.upper()}/terms/{N}",
    f"{LIFE}/changes/{N}/00000000000000000012-{N}",
    f"{LIFE}/changes/{N}/{N}",
    f"{LIFE}/base/{N}/{N}/00001",
    f"{LIFE}/base/{N}/{N}/end.part",
    f"{LIFE}/others/{N}",
    f"{LIFE}/terms/{N}\n",
    "backup/tablestone.db",
)
NAME = Name(LIFE, Kind.CHANGES, 1, 5, 9)
OTHER_NAME = NAME._replace(last=10)
FACTS = {"entries": [[5, 9, 1, 2, 3, 0.5, None]], "run": "r"}
SIZES = (0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES)


@pytest.mark.parametrize(("text", "name"), NAMES.items())
def test_a_name_is_read_as_it_is_written(text: str, name: Name) -> None:
    assert str(name) == text
    assert parse_name(text) == name


@pytest.mark.parametrize("text", FOREIGN)
def test_other_names_are_of_no_archive(text: str) -> None:
    assert parse_name(text) is None


def test_names_sort_as_their_numbers_do() -> None:
    names = [Name(LIFE, Kind.CHANGES, 1, number, number) for number in (1, 9, 10, 10**18)]
    assert sorted(names, key=str) == sorted(names) == names
    assert sorted([*NAMES.values()][:4])
    assert fresh_life() != fresh_life()


@pytest.mark.parametrize("key", [None, KEY], ids=["clear", "encrypted"])
@pytest.mark.parametrize("size", SIZES)
def test_an_object_is_read_as_it_was_written(size: int, key: EncryptionKey | None) -> None:
    body = (b"%d " % size * (size // 2 + 1))[:size]
    keys = [] if key is None else [OTHER, KEY]
    stored = write_object(NAME, Content(FACTS, body, key))
    assert stored.startswith(FORMAT)
    assert read_object(NAME, stored, keys) == Content(FACTS, body, key)
    assert read_facts(NAME, stored[:1_000], keys) == FACTS


def test_incompressible_bodies_cross_pieces() -> None:
    for size in SIZES:
        body = Random(size).randbytes(size)
        assert read_object(NAME, write_object(NAME, Content({}, body, KEY)), [KEY]).body == body


def test_the_first_bytes_have_the_facts_or_are_too_few() -> None:
    stored = write_object(NAME, Content(FACTS, b"x" * 100, KEY))
    found = [
        read_facts(NAME, stored[:end], [KEY])
        for end in range(stored.index(b"}\n") + 2, len(stored))
    ]
    assert set(map(str, found)) == {"None", str(FACTS)}
    assert found.index(FACTS) == sum(each is None for each in found)


def test_each_byte_is_under_the_checksum() -> None:
    for key in (None, KEY):
        keys = [] if key is None else [key]
        stored = write_object(NAME, Content(FACTS, b"body" * 9, key))
        for at in range(len(stored)):
            for bit in (1, 0x80):
                wrong = stored[:at] + bytes([stored[at] ^ bit]) + stored[at + 1 :]
                with pytest.raises((ObjectDamaged, ObjectRefused)) as error:
                    read_object(NAME, wrong, keys)
                assert str(NAME) in str(error.value)
                is_format = at == len(FORMAT) - 2
                assert is_format or error.type is ObjectDamaged
        for end in range(len(stored)):
            with pytest.raises(ObjectDamaged, match=str(NAME)):
                read_object(NAME, stored[:end], keys)
        with pytest.raises(ObjectDamaged):
            read_object(NAME, stored + b"\0", keys)


def test_flipped_facts_end_in_a_sentence() -> None:
    """They are read without the checksum: they may be wrong, and never end in another error."""
    for key in (None, KEY):
        stored = write_object(NAME, Content(FACTS, b"body", key))
        for at in range(len(stored)):
            for bit in range(8):
                wrong = stored[:at] + bytes([stored[at] ^ 1 << bit]) + stored[at + 1 :]
                with suppress(ObjectDamaged, ObjectRefused):
                    read_facts(NAME, wrong, [] if key is None else [key])


def test_an_object_in_the_place_of_another_is_damaged() -> None:
    for key in (None, KEY):
        stored = write_object(OTHER_NAME, Content(FACTS, key=key))
        with pytest.raises(ObjectDamaged, match=f"{NAME} is damaged: .* {OTHER_NAME}"):
            read_object(NAME, stored, [] if key is None else [key])


def test_what_is_encrypted_fits_only_into_its_place() -> None:
    """With a head and a checksum that somebody has made anew: pieces of another object, order, the last one."""
    body = Random(1).randbytes(3 * PIECE_BYTES)
    stored = write_object(NAME, Content({}, body, KEY))
    head, _, rest = stored[len(FORMAT) + 65 :].partition(b"\n")
    facts = json.loads(head)["facts"]
    piece = PIECE_BYTES + 16
    start = facts
    swapped = (
        rest[:start]
        + rest[start + piece :][:piece]
        + rest[start:][:piece]
        + rest[start + 2 * piece :]
    )
    shorter = rest[: start + piece]
    for name, what in ((NAME, swapped), (NAME, shorter), (OTHER_NAME, rest)):
        made = head.replace(str(NAME).encode(), str(name).encode()) + b"\n" + what
        forged = FORMAT + hashlib.sha256(made).hexdigest().encode() + b"\n" + made
        with pytest.raises(ObjectDamaged):
            read_object(name, forged, [KEY])


def test_pieces_that_are_left_out_at_the_end_are_missed() -> None:
    """Also if what is left could be decompressed."""
    pieces = [b"x" * PIECE_BYTES, b"y" * 9, b"z"]
    cipher = AESGCM(KEY.secret)
    stored = [cipher.encrypt(*each) for each in objects._placed(NAME, pieces)]
    assert [cipher.decrypt(*each) for each in objects._placed(NAME, stored)] == pieces
    for count in (1, 2):
        with pytest.raises(InvalidTag):
            [cipher.decrypt(*each) for each in objects._placed(NAME, stored[:count])]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ((), "a key: name its file with --archive-key-file"),
        ((OTHER,), "another key: name its file too"),
    ],
)
def test_a_key_that_is_not_here(keys: tuple[EncryptionKey, ...], sentence: str) -> None:
    stored = write_object(NAME, Content(FACTS, key=KEY))
    for read in (read_object, read_facts):
        with pytest.raises(ObjectRefused, match=sentence):
            read(NAME, stored, keys)


def test_with_a_key_nothing_in_clear_is_accepted_but_a_term() -> None:
    term = Name(LIFE, Kind.TERM, 1)
    for name, is_accepted in ((NAME, False), (term, True)):
        stored = write_object(name, Content(FACTS))
        if is_accepted:
            assert read_object(name, stored, [KEY]).facts == FACTS
        else:
            with pytest.raises(ObjectRefused, match="not encrypted"):
                read_object(name, stored, [KEY])


def test_neither_the_key_nor_the_data_is_in_an_encrypted_object() -> None:
    secret = b"SECRET-VALUE-OF-A-ROW"
    one, two = (write_object(NAME, Content({"f": "FACT"}, secret, KEY)) for _ in range(2))
    assert one != two  # another salt
    assert secret not in one
    assert b"FACT" not in one
    assert KEY.secret not in one


def test_a_later_format_is_refused() -> None:
    stored = write_object(NAME, Content(FACTS)).replace(FORMAT, b"tablestone archive 12\n")
    for read in (read_object, read_facts):
        with pytest.raises(ObjectRefused, match="format 12, which a later version"):
            read(NAME, stored)


RECORDS = [
    StoredRecord(1, 5, b"", b"", b"", b""),
    StoredRecord(2**40, 2**62, b"s", b"about", b"p" * 3000, b"r" * 70_000),
]


def test_records_are_read_as_they_were_written() -> None:
    assert list(read_records(write_records(RECORDS))) == RECORDS
    assert list(read_records(b"")) == []
