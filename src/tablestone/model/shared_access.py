"""Values in shared access signatures and stored access policies: permissions, dates and client addresses.

A signature with an invalid value can be made, but the service refuses every request that has it (auth 2.1, 3.1). So our
tools check the values before they sign.
"""

import ipaddress
import re
from typing import Final

from tablestone.clock import TICKS_PER_SECOND
from tablestone.model.edm import DATE_TIME_MAX, format_date_time, parse_date_time
from tablestone.model.keys import encode_key

ACCOUNT_PERMISSIONS: Final = {
    "r": "read",
    "w": "write",
    "d": "delete",
    "l": "list",
    "a": "add",
    "c": "create",
    "u": "update",
    "p": "process messages",
}
"""The permissions of an account SAS by letter, in the order of Azure's documents (auth 2.1)."""
TABLE_PERMISSIONS: Final = {letter: ACCOUNT_PERMISSIONS[letter] for letter in "raud"}
"""The permissions of a table SAS and of a stored access policy, in the order of Azure's documents (auth 3.1)."""
_DURATION: Final = re.compile(r"(\d{1,6})([mhd])", re.ASCII)
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86400}

_TIME: Final = r"T\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)"
_INSTANT = re.compile(rf"\d{{4}}-\d\d-\d\d(?:{_TIME})?", re.ASCII)


def parse_instant(text: str) -> int:
    """The ticks of a date, with or without a time and its zone; `ValueError` for any other text.

    One SDK sends nine digits of a fraction in policies (auth 7): the last two are dropped. In UTC, years are 1 to 9999.
    """
    if not _INSTANT.fullmatch(text):
        raise ValueError(text)
    ticks = parse_date_time(text)
    if not 0 <= ticks <= DATE_TIME_MAX:
        raise ValueError(text)
    return ticks


def key_range_problem(
    start_pk: str | None, start_rk: str | None, end_pk: str | None, end_rk: str | None
) -> str | None:
    """Which end of a range of keys is before its start, "pk" or "rk"; None if the range has keys."""
    if start_pk is None or end_pk is None:
        return None
    first, last = encode_key(start_pk), encode_key(end_pk)
    if first != last:
        return "pk" if first > last else None
    is_empty = end_rk is not None and encode_key(start_rk or "") > encode_key(end_rk)
    return "rk" if is_empty else None


def end_after(duration: str, now: int) -> str | None:
    """The time `30m`, `12h` or `7d` after `now` (ticks), to the second; None if this is not such a duration."""
    found = _DURATION.fullmatch(duration)
    if found is None:
        return None
    seconds = now // TICKS_PER_SECOND + int(found[1]) * _SECONDS[found[2]]
    return format_date_time(seconds * TICKS_PER_SECOND)


def is_client_addresses(text: str) -> bool:
    """Whether `sip` may have this value: an address, or the first and last of one kind with `-` between; no zone."""
    try:
        found = [ipaddress.ip_address(each) for each in text.split("-")]
    except ValueError:
        return False
    first, last = found[0], found[-1]
    is_range = first.version == last.version and int(first) <= int(last)
    return is_range and len(found) <= 2 and "%" not in text
