"""A shared access signature in words: its permissions, its place and its time. Pure.

Knows the parameters of account signatures, table signatures and user delegation signatures; has no key, so it checks
no signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from tablestone.model import edm
from tablestone.tools.refusals import TransferRefused

_PERMISSIONS: Final = {
    "r": "read",
    "w": "write",
    "d": "delete",
    "l": "list",
    "a": "add",
    "c": "create",
    "u": "update",
    "p": "process messages",
}
_RESOURCES: Final = {"s": "the service", "c": "tables", "o": "entities"}
_SERVICES: Final = {"b": "blobs", "f": "files", "q": "queues", "t": "tables"}


def explained(text: str, now: int) -> list[str]:
    """Sentences on a signature, or on a URL or connection string with one. `now` is in ticks.

    `TransferRefused` if there is no signature in the text.
    """
    given = parameters_of(text)
    if "sig" not in given:
        raise TransferRefused("This is no shared access signature: it has no sig.")
    lines = [_kind(given)]
    if "sp" in given:
        lines.append(f"It permits: {_words(given['sp'], _PERMISSIONS)}.")
    if "si" in given:
        lines.append(
            f"The stored access policy {given['si']!r} has what the signature does not say itself."
        )
    lines += [*_times(given, now), *_conditions(given), *_keys(given)]
    return lines


def parameters_of(text: str) -> dict[str, str]:
    """The parameters of a signature, of a URL or of a connection string."""
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if equals and name.strip().lower() == "sharedaccesssignature":
            text = value
    if "://" in text:
        try:
            text = urlsplit(text).query
        except ValueError:
            return {}
    return dict(parse_qsl(text.strip().removeprefix("?"), keep_blank_values=True))


def _kind(given: Mapping[str, str]) -> str:
    version = f", signed by the rules of {given['sv']}" if "sv" in given else ""
    if "skoid" in given:
        return f"A user delegation signature of the user {given['skoid']}{version}."
    if "ss" in given:
        services = _words(given["ss"], _SERVICES)
        resources = _words(given.get("srt", ""), _RESOURCES)
        return f"A signature of the account for {services}: {resources}{version}."
    return f"A signature of the table {given.get('tn', '(not named)')}{version}."


def _times(given: Mapping[str, str], now: int) -> list[str]:
    lines = []
    for name, word in (("st", "begins"), ("se", "ends")):
        if name not in given:
            continue
        try:
            at = edm.parse_date_time(given[name])
        except ValueError:
            lines.append(f"The time at which it {word} cannot be read: {given[name]}.")
            continue
        if name == "st":
            state = "not valid yet" if at > now else "valid since then"
        else:
            state = "it has expired" if at <= now else "not expired"
        lines.append(f"It {word} at {given[name]} ({state}).")
    if "se" not in given and "si" not in given:
        lines.append("It has no end, so no service accepts it.")
    return lines


def expired_at(text: str, now: int) -> str | None:
    """The end of a signature if it is before `now`, in ticks; None if it is not, or if there is none to be read."""
    end = parameters_of(text).get("se", "")
    try:
        return end if edm.parse_date_time(end) <= now else None
    except ValueError:
        return None


def _conditions(given: Mapping[str, str]) -> list[str]:
    lines = []
    if "sip" in given:
        lines.append(f"Only clients at {given['sip']} may use it.")
    if given.get("spr") == "https":
        lines.append("It is valid for requests over HTTPS only.")
    return lines


def _keys(given: Mapping[str, str]) -> list[str]:
    """The range of keys, if the signature has one."""
    first, last = (
        [f"{name} {given[key]!r}" for key, name in names if key in given]
        for names in (
            (("spk", "PartitionKey"), ("srk", "RowKey")),
            (("epk", "PartitionKey"), ("erk", "RowKey")),
        )
    )
    if not first and not last:
        return []
    begin = f"from {' and '.join(first)}" if first else "from the first key"
    end = f"through {' and '.join(last)}" if last else "to the last key"
    return [f"It is valid for the keys {begin} {end}."]


def _words(letters: str, known: Mapping[str, str]) -> str:
    words = [known.get(letter, f"{letter!r} (not known)") for letter in letters]
    if len(words) < 2:
        return words[0] if words else "nothing"
    return f"{', '.join(words[:-1])} and {words[-1]}"
