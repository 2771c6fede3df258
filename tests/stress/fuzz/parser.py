"""A parser of the server as a function of bytes: it returns a value, or raises one of the parser's own errors.

A value that a parser has accepted is used as the server uses it: so an input that is accepted and breaks a later step
is found too. Knows no parser in particular, and no way to make inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tablestone.clock import TICKS_PER_SECOND
from tablestone.model.errors import StorageError
from tablestone.wire.messages import single_headers

ACCOUNT: Final = "devstoreaccount1"
NOW: Final = 63_650_000_000 * TICKS_PER_SECOND
"""The present moment of every parser that asks for it: 2017-12-27T19:33:20Z."""


class Parser(NamedTuple):
    """A parser, inputs that it accepts, and words of its language."""

    parse: Callable[[bytes], Any]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()
    refusals: tuple[type[Exception], ...] = (StorageError,)
    """The errors that a parser may raise: the service's, or `ValueError` where its callers expect it."""
    use: Callable[[Any], object] = lambda _parsed: None
    """The server's use of the parsed value. It may raise nothing."""


def call(parser: Parser, content: bytes) -> bool:
    """Whether the parser accepts the content. Any error that is not one of its own is an `AssertionError`."""
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
    """The content as the server has it after a URL was decoded: text without lone surrogates."""
    return content.decode("utf-8", "replace")


def on_text(parse: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda content: parse(text_of(content))


def headers_of(lines: bytes) -> dict[bytes, bytes]:
    """Headers by name, of lines; raises the service's error for one that must not come twice."""
    pairs = [line.partition(b":") for line in lines.split(b"\n")]
    return single_headers([(name.strip().lower(), value.strip()) for name, _, value in pairs])
