"""The dates of shared access signatures and stored access policies: text to ticks.

Accepts only the formats that the service documents for them (auth 2.5), which are fewer than those of an Edm.DateTime.
Does not know the purpose of a date or the present time.
"""

from __future__ import annotations

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
