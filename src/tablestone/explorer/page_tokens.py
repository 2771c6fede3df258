"""Continuation tokens in addresses: the pair of texts that the service gives, as one word.

A token is opaque: of Tablestone it is a key, of Azure a text of its own. Knows nothing of queries.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import orjson

from tablestone.tools.client import Token
from tablestone.tools.refusals import TransferFailed, TransferRefused

WORD_LENGTH_MAX: Final = 32 * 1024
"""The explorer takes addresses of 64 KiB. The token of two keys of the greatest length needs 11 KiB."""


def write_token(token: Token | None) -> str | None:
    """The token as a word; None for none. `TransferFailed` if the word is too long for an address."""
    if token is None:
        return None
    word = base64.urlsafe_b64encode(orjson.dumps(list(token))).decode("ascii").rstrip("=")
    if len(word) > WORD_LENGTH_MAX:
        raise TransferFailed("The service gives a continuation token that no address can hold.")
    return word


def read_token(text: str | None) -> Token | None:
    """The token of a word; `TransferRefused` if it is none."""
    if not text:
        return None
    try:
        read = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        read = None
    if not (
        isinstance(read, list) and len(read) == 2 and all(isinstance(part, str) for part in read)
    ):
        raise TransferRefused("The address names a page that does not exist.")
    return Token(*read)
