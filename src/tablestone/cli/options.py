"""The options of `tablestone`: one table, read by the command line, the environment, the file and the documentation.

Knows each option's name, help, default and how its text becomes a value. Does not know where a text came from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tablestone.auth.accounts import KEYS_MAX, decode_key, is_account_name
from tablestone.server.configuration import AccountKeys

LOG_LEVELS = ("critical", "error", "warning", "info", "debug")
PORT_MAX = 65535


class BrokenOption(Exception):
    """An option that cannot be used; the text is one sentence for the person who gave it."""


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that can be configured; `name` is also its key in the file."""

    name: str
    metavar: str
    help: str
    default: str
    parse: Callable[[str], Any]
    repeatable: bool = False

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return f"TABLESTONE_{self.name.replace('-', '_').upper()}"


def _parse_text(text: str) -> str:
    if not text or "\0" in text:
        raise BrokenOption("must not be empty")
    return text


def _parse_port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > PORT_MAX:
        raise BrokenOption(f"must be a number from 0 to {PORT_MAX}, not {text!r}")
    return int(text)


def _parse_log_level(text: str) -> str:
    if text.lower() not in LOG_LEVELS:
        raise BrokenOption(f"must be one of {', '.join(LOG_LEVELS)}, not {text!r}")
    return text.lower()


def _parse_engine(text: str) -> str:
    """An engine's URL; one without a place means the same with and without its colon."""
    scheme, _, place = text.partition(":")
    if scheme == "sqlite" or (scheme == "memory" and not place):
        return f"{scheme}:{place}"
    raise BrokenOption(f"must be sqlite, sqlite:DIR or memory, not {text!r}")


def parse_account(text: str) -> AccountKeys:
    """`NAME:KEY1` or `NAME:KEY1:KEY2`; no message ever repeats a key."""
    name, *keys = text.split(":")
    return checked_account(name, keys)


def checked_account(name: str, keys: list[str]) -> AccountKeys:
    if not is_account_name(name):
        raise BrokenOption(
            f"has the account name {name[:40]!r}; a name is 3 to 24 lower-case letters and digits"
        )
    if not 1 <= len(keys) <= KEYS_MAX:
        raise BrokenOption(f"must give the account {name} one or two keys, as NAME:KEY1[:KEY2]")
    for number, key in enumerate(keys, start=1):
        try:
            decode_key(key)
        except ValueError:
            raise BrokenOption(
                f"has a key that is not base64: key {number} of the account {name}"
            ) from None
    return AccountKeys(name, tuple(keys))


HOST = Option("host", "ADDRESS", "Address to listen on.", "127.0.0.1", _parse_text)
PORT = Option("port", "PORT", "Port to listen on; 0 takes a free one.", "10002", _parse_port)
DATA = Option(
    "data",
    "DIR",
    "Directory that keeps the data; made if it is not there.",
    "a place of the user's own",
    _parse_text,
)
ENGINE = Option(
    "engine",
    "URL",
    "Storage engine: sqlite (in the data directory), sqlite:DIR (in that one) or memory (keeps nothing).",
    "sqlite",
    _parse_engine,
)
ACCOUNT = Option(
    "account",
    "NAME:KEY1[:KEY2]",
    "Account and its keys, instead of the development account.",
    "devstoreaccount1 with its well-known key",
    parse_account,
    repeatable=True,
)
LOG_LEVEL = Option(
    "log-level",
    "LEVEL",
    f"What is logged on standard error: {', '.join(LOG_LEVELS)}.",
    "warning",
    _parse_log_level,
)

CHECK_OPTIONS = (
    replace(DATA, help="Directory that keeps the data; it is only read."),
    replace(
        ENGINE, help="Storage engine: sqlite (in the data directory) or sqlite:DIR (in that one)."
    ),
)
"""What `tablestone check` needs."""
SERVER_OPTIONS = (HOST, PORT, DATA, ENGINE, ACCOUNT, LOG_LEVEL)
"""What `tablestone serve` needs; also all keys of the file."""
