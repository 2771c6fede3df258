"""The dates of signatures that delegate and of stored access policies: text to ticks.

Only the formats that the service names for them (auth 2.5), which are fewer than those of an Edm.DateTime. Knows
neither what a date is for nor what time it is.
"""

from __future__ import annotations

import re
from typing import Final

from tablestone.edm import DATE_TIME_MAX, parse_date_time

_TIME: Final = r"T\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)"
_INSTANT = re.compile(rf"\d{{4}}-\d\d-\d\d(?:{_TIME})?", re.ASCII)


def parse_instant(text: str) -> int:
    """Ticks of a date, alone or with a time and its zone; `ValueError` for every other text.

    A fraction may have up to nine digits, as one SDK sends them in policies (auth 7); those past the seventh are
    dropped. What lies outside the years 1 to 9999 once its zone is taken off is no instant.
    """
    if not _INSTANT.fullmatch(text):
        raise ValueError(text)
    ticks = parse_date_time(text)
    if not 0 <= ticks <= DATE_TIME_MAX:
        raise ValueError(text)
    return ticks
