"""Keys that grow or shrink with time, recognised by their text.

A key of this kind sends all new entities to one end of a table or of a partition. Knows texts of keys only.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Final


class KeyForm(enum.Enum):
    """The order that keys have in time."""

    TIME_ASCENDING = "time, ascending"
    """A date, a time, seconds, milliseconds or ticks: the newest key is the last."""
    TIME_DESCENDING = "time, descending"
    """Inverted ticks of the log tail pattern: the newest key is the first."""
    OTHER = "other"
    """No order in time, or none that the text shows."""

    @property
    def is_time(self) -> bool:
        """Whether new keys are all at one end."""
        return self is not KeyForm.OTHER


_YEAR: Final = r"(?:19|20)\d\d"
_MONTH: Final = r"(?:0[1-9]|1[0-2])"
_DAY: Final = r"(?:0[1-9]|[12]\d|3[01])"
_ASCENDING: Final = re.compile(
    rf"{_YEAR}-{_MONTH}(?:-{_DAY})?(?![0-9A-Za-z])|{_YEAR}-{_MONTH}-{_DAY}T"  # 2013-07, 2013-07-04T15:00
    rf"|{_YEAR}{_MONTH}{_DAY}(?![0-9])|{_YEAR}{_MONTH}{_DAY}[T_-]?\d{{2}}(?:\d\d){{0,2}}(?![0-9])"  # 20130704 and more
    r"|1[0-9]{9}(?![0-9])|1[0-9]{12}(?![0-9])"  # seconds and milliseconds since 1970, from 2001 on
    r"|0?6[0-9]{17}(?![0-9])"  # ticks since year 1, from 1902 to 2219; some programs write a zero first
)
_DESCENDING: Final = re.compile(r"2[45][0-9]{17}(?![0-9])")
"""The largest tick minus the present one, in 19 digits, from 1744 to 2378."""

PART: Final = 0.9
"""The part of the keys that has the form."""


def form_of(keys: Iterable[str]) -> KeyForm:
    """The form of most of the keys; `OTHER` if there are fewer than two different ones."""
    distinct = set(keys)
    if len(distinct) < 2:
        return KeyForm.OTHER
    for form, pattern in (
        (KeyForm.TIME_ASCENDING, _ASCENDING),
        (KeyForm.TIME_DESCENDING, _DESCENDING),
    ):
        if sum(1 for key in distinct if pattern.match(key)) >= PART * len(distinct):
            return form
    return KeyForm.OTHER
