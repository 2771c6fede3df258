"""A parser of the server as a function of bytes: it returns a value, or raises one of its own errors.

An accepted value is then used as the server uses it, which finds an input that is accepted and breaks a later step.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tablestone.clock import TICKS_PER_SECOND
from tablestone.model.errors import StorageError
from tablestone.wire.messages import single_headers

ACCOUNT: Final = "devstoreaccount1"
NOW: Final = 63_650_000_000 * TICKS_PER_SECOND
"""The present for every parser that asks for the time: 2017-12-27T19:33:20Z."""


class Parser(NamedTuple):
    """A parser, inputs that it accepts, and words of its language."""

    parse: Callable[[bytes], Any]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()
    refusals: tuple[type[Exception], ...] = (StorageError,)
    """The errors that a parser may raise: the service's, or `ValueError` where its callers expect one."""
    use: Callable[[Any], object] = lambda _parsed: None
    """What the server does with the parsed value. It may raise nothing."""


def call(parser: Parser, content: bytes) -> bool:
    """Whether the parser accepts the content. An error that is not one of its own becomes an `AssertionError`."""
    try:
        parsed = parser.parse(content)
    except parser.refusals:
        return False
    try:
        parser.use(parsed)
    except StorageError as error:
        raise AssertionError("a value that was accepted is refused later") from error
    return True


def text_of(content: bytes) -> str:
    """The content as the server sees a decoded URL: text without lone surrogates."""
    return content.decode("utf-8", "replace")


def on_text(parse: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda content: parse(text_of(content))


def headers_of(lines: bytes) -> dict[bytes, bytes]:
    """Header lines by name; raises the service's error for a repeated header that may not be repeated."""
    pairs = [line.partition(b":") for line in lines.split(b"\n")]
    return single_headers([(name.strip().lower(), value.strip()) for name, _, value in pairs])
