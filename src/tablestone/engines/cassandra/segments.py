"""The segments around the envelopes of Cassandra's native protocol from version 5 on, with their checksums.

Knows bytes, and neither the driver nor a connection. The source is `native_protocol_v5.spec` of Apache Cassandra,
section 2.1, which calls them frames: a header of three bytes with its CRC24, and a payload of up to 128 KiB with its
CRC32, all in little-endian order.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from tablestone.engines.cassandra.native_protocol import HEADER

PAYLOAD_MAX: Final = (1 << 17) - 1
"""How many bytes a segment holds at most; a longer envelope is cut."""
SELF_CONTAINED: Final = 1 << 17
"""The flag of a segment that holds whole envelopes."""
HEADER_LENGTH: Final = 6
TRAILER_LENGTH: Final = 4

CRC32_FIRST: Final = zlib.crc32(b"\xfa\x2d\x55\xca")
"""The checksum of a payload begins after these four bytes."""
CRC24_FIRST: Final = 0x875060
CRC24_POLYNOMIAL: Final = 0x1974F0B


class Damaged(Exception):
    """A checksum does not fit: nothing behind it can be read."""


class Envelope(NamedTuple):
    """An answer as the driver's connections take it, apart from its body."""

    version: int
    flags: int
    stream: int
    opcode: int


def _crc24_of_byte(byte: int) -> int:
    crc = byte << 16
    for _ in range(8):
        crc <<= 1
        if crc & 0x1000000:
            crc ^= CRC24_POLYNOMIAL
    return crc


_CRC24: Final = tuple(_crc24_of_byte(byte) for byte in range(256))


def crc24(header: int) -> int:
    """The checksum of a segment's header of three bytes."""
    crc = CRC24_FIRST
    for shift in (0, 8, 16):
        crc = (crc << 8 & 0xFFFFFF) ^ _CRC24[(crc >> 16) ^ (header >> shift & 0xFF)]
    return crc


def segments(envelope: bytes) -> bytes:
    """An envelope in as many segments as it needs, without compression."""
    if len(envelope) <= PAYLOAD_MAX:
        return _segment(envelope, SELF_CONTAINED)
    return b"".join(
        _segment(envelope[start : start + PAYLOAD_MAX], 0)
        for start in range(0, len(envelope), PAYLOAD_MAX)
    )


def _segment(payload: bytes, flag: int) -> bytes:
    header = len(payload) | flag
    return b"".join(
        (
            (header | crc24(header) << 24).to_bytes(HEADER_LENGTH, "little"),
            payload,
            zlib.crc32(payload, CRC32_FIRST).to_bytes(TRAILER_LENGTH, "little"),
        )
    )


class Received:
    """Bytes that a connection has received: unread ones, and the part of an envelope that is there."""

    def __init__(self, unread: bytes = b"", part: bytes = b"") -> None:
        self.unread = unread
        self._parts = [part] if part else []
        self._length = len(part)

    @property
    def part(self) -> bytes:
        """The envelope of which only a part is there."""
        return b"".join(self._parts)

    def take(self, data: bytes) -> Iterator[tuple[Envelope, bytes]]:
        """The envelopes that are whole with these bytes, and their bodies; `Damaged` if a checksum does not fit."""
        data = self.unread + data if self.unread else data
        place = 0
        try:
            while len(data) - place >= HEADER_LENGTH:
                header = int.from_bytes(data[place : place + HEADER_LENGTH], "little")
                checksum, header = header >> 24, header & 0xFFFFFF
                if crc24(header) != checksum:
                    raise Damaged("The header of a segment does not fit its checksum.")
                first = place + HEADER_LENGTH
                end = first + (header & PAYLOAD_MAX)
                if len(data) < end + TRAILER_LENGTH:
                    return
                payload = data[first:end]
                place = end + TRAILER_LENGTH
                if zlib.crc32(payload, CRC32_FIRST) != int.from_bytes(data[end:place], "little"):
                    raise Damaged("The payload of a segment does not fit its checksum.")
                yield from self._envelopes(payload)
        finally:
            self.unread = data[place:] if place else data

    def _envelopes(self, payload: bytes) -> Iterator[tuple[Envelope, bytes]]:
        if self._parts:
            self._parts.append(payload)
            self._length += len(payload)
            if len(self._parts[0]) >= HEADER.size:
                *_, length = HEADER.unpack_from(self._parts[0])
                if self._length < HEADER.size + length:
                    return
            payload = self.part
        place = 0
        while len(payload) - place >= HEADER.size:
            version, flags, stream, opcode, length = HEADER.unpack_from(payload, place)
            first = place + HEADER.size
            end = first + length
            if end > len(payload):
                break
            yield Envelope(version & 0x7F, flags, stream, opcode), payload[first:end]
            place = end
        rest = payload[place:]
        self._parts = [rest] if rest else []
        self._length = len(rest)
