"""Random changes of bytes that tend to confuse parsers.

Everything is drawn from a `Random`, so a seed repeats the changes.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

LENGTH_MAX: Final = 64 * 1024
"""The most bytes in a changed input; growing costs have a test of their own."""

_ODD_BYTES: Final = (
    b"\0\t\n\r \"%&'()*+,-./0129:;=?@AZ[\\]^_`az{|}~\x7f\x80\xbf\xc0\xe2\xed\xf4\xff"
)
_ODD_WORDS: Final = (
    *(b"-1", b"0", b"2147483648", b"9223372036854775808", b"1e400", b"NaN", b"9" * 30, b"0x10"),
    *(b"\r\n", b"\r\n\r\n", b"\n\n", b"--", b"%00", b"%2F", b"%25", b"%u0041", b"''", b"&&", b"=="),
    *(
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x9f\x98\x80",
        "İ".encode(),
        "ǅ".encode(),
        "٣".encode(),
    ),
)

_Change = Callable[[Random, bytes, Sequence[bytes], Sequence[bytes]], bytes]


def mutated(
    random: Random, content: bytes, others: Sequence[bytes], words: Sequence[bytes] = ()
) -> bytes:
    """The content after one or more changes. `others` are inputs to take pieces from, `words` those of the language."""
    for _ in range(1 + int(random.expovariate(0.7))):
        content = random.choice(_CHANGES)(random, content, others, words)
    return content[:LENGTH_MAX]


def _piece(random: Random, content: bytes) -> tuple[int, int]:
    """The start and the end of a piece, mostly of a few bytes."""
    start = random.randrange(len(content) + 1)
    return start, min(len(content), start + int(random.expovariate(0.1)) + 1)


def _replace_byte(
    random: Random, content: bytes, _others: Sequence[bytes], _words: Sequence[bytes]
) -> bytes:
    at = random.randrange(len(content) + 1)
    other = random.choice(_ODD_BYTES) if random.random() < 0.8 else random.randrange(256)
    return content[:at] + bytes((other,)) + content[at + random.randrange(2) :]


def _flip_bit(
    random: Random, content: bytes, _others: Sequence[bytes], _words: Sequence[bytes]
) -> bytes:
    if not content:
        return content
    at = random.randrange(len(content))
    return content[:at] + bytes((content[at] ^ 1 << random.randrange(8),)) + content[at + 1 :]


def _drop(
    random: Random, content: bytes, _others: Sequence[bytes], _words: Sequence[bytes]
) -> bytes:
    start, end = _piece(random, content)
    return content[:start] + content[end:]


def _repeat(
    random: Random, content: bytes, _others: Sequence[bytes], _words: Sequence[bytes]
) -> bytes:
    start, end = _piece(random, content)
    times = random.choice((2, 2, 3, 10, 100))
    return content[:start] + content[start:end] * times + content[end:]


def _move(
    random: Random, content: bytes, _others: Sequence[bytes], _words: Sequence[bytes]
) -> bytes:
    start, end = _piece(random, content)
    rest = content[:start] + content[end:]
    at = random.randrange(len(rest) + 1)
    return rest[:at] + content[start:end] + rest[at:]


def _cut(
    random: Random, content: bytes, _others: Sequence[bytes], _words: Sequence[bytes]
) -> bytes:
    at = random.randrange(len(content) + 1)
    return content[:at] if random.random() < 0.7 else content[at:]


def _insert_word(
    random: Random, content: bytes, _others: Sequence[bytes], words: Sequence[bytes]
) -> bytes:
    start, end = _piece(random, content)
    word = random.choice(words) if words and random.random() < 0.7 else random.choice(_ODD_WORDS)
    return content[:start] + word + content[end if random.random() < 0.5 else start :]


def _splice(
    random: Random, content: bytes, others: Sequence[bytes], _words: Sequence[bytes]
) -> bytes:
    """The start of one input, and the end or a piece of another."""
    if not others:
        return content
    other = random.choice(others)
    at = random.randrange(len(content) + 1)
    if random.random() < 0.5:
        return content[:at] + other[random.randrange(len(other) + 1) :]
    start, end = _piece(random, other)
    return content[:at] + other[start:end] + content[at:]


def _swap_case(
    random: Random, content: bytes, _others: Sequence[bytes], _words: Sequence[bytes]
) -> bytes:
    start, end = _piece(random, content)
    return content[:start] + content[start:end].swapcase() + content[end:]


_CHANGES: Final[tuple[_Change, ...]] = (
    _replace_byte,
    _replace_byte,
    _flip_bit,
    _drop,
    _repeat,
    _move,
    _cut,
    _insert_word,
    _insert_word,
    _splice,
    _swap_case,
)
