"""Values in shared access signatures and stored access policies: dates and client addresses.

The service accepts a signature with any value, and then refuses each request that has it (auth 2.1, 3.1). So whoever
makes a signature checks its values first.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from tablestone.model.edm import DATE_TIME_MAX, parse_date_time

_TIME: Final = r"T\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)"
_INSTANT = re.compile(rf"\d{{4}}-\d\d-\d\d(?:{_TIME})?", re.ASCII)


def parse_instant(text: str) -> int:
    """The ticks of a date, with or without a time and its zone; `ValueError` for any other text.

    A fraction may have up to nine digits, because one SDK sends nine in policies (auth 7); digits after the seventh are
    dropped. In UTC, the date must be in the years 1 to 9999.
    """
    if not _INSTANT.fullmatch(text):
        raise ValueError(text)
    ticks = parse_date_time(text)
    if not 0 <= ticks <= DATE_TIME_MAX:
        raise ValueError(text)
    return ticks


def is_client_addresses(text: str) -> bool:
    """Whether this is an address, or two of one kind with a hyphen between (`sip`); an address with a zone is none."""
    try:
        kinds = {ipaddress.ip_address(each).version for each in text.split("-")}
    except ValueError:
        return False
    return len(kinds) == 1 and text.count("-") <= 1 and "%" not in text
