"""Expiry: a table's policy, and the time at which it makes an entity expire.

Azure has nothing like it (docs/guides/expiry.md). Servers and data tools share these functions, so they always agree.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS
from tablestone.model.edm import EdmType
from tablestone.model.entity import TIMESTAMP, require_property_name
from tablestone.model.entity_json import RawEntity, typed_property
from tablestone.model.errors import StorageError
from tablestone.model.keys import PARTITION_KEY, ROW_KEY

_SECONDS: Final = (EdmType.INT32, EdmType.INT64, EdmType.DOUBLE)
SECONDS_IN: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
"""By unit, the longest first."""
_SECONDS_MAX: Final = 1 << 40
"""Later than any clock shows. Greater numbers count as this, because their ticks could be infinite."""


@dataclass(frozen=True, slots=True)
class ExpiryPolicy:
    """When the entities of a table expire. Either `after` or `property_name` is None."""

    after: int | None = None
    """Seconds after the Timestamp."""
    property_name: str | None = None
    """The property with the time."""
    suspended: bool = False
    """While this is true, no entity is expired."""

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        """The policy in a JSON object; raises `ValueError` if that is not a valid policy."""
        after, name = members.get("after"), members.get("property")
        if type(after) in (int, type(None)) and isinstance(name, str | None):
            policy = cls(after, name, members.get("suspended") is True)
            if policy.is_valid:
                return policy
        raise ValueError("its expiry policy has neither an age nor a property")

    @property
    def is_valid(self) -> bool:
        """Whether the age, or the name of the property, is one that a policy may have."""
        if self.property_name is None:
            return 1 <= (self.after or 0) <= limits.EXPIRY_AGE_SECONDS_MAX
        try:
            require_property_name(self.property_name)
        except StorageError:
            return False
        return self.after is None and self.property_name not in (PARTITION_KEY, ROW_KEY, TIMESTAMP)

    @property
    def in_words(self) -> str:
        """When entities expire, such as `7d after their Timestamp`."""
        words = f"at the time in {self.property_name}"
        if self.after is not None:
            unit, seconds = next(each for each in SECONDS_IN.items() if self.after % each[1] == 0)
            words = f"{self.after // seconds}{unit} after their Timestamp"
        return f"{words} (suspended)" if self.suspended else words

    def members(self) -> dict[str, Any]:
        """The JSON object in which the policy is stored and sent."""
        by = {"property": self.property_name} if self.after is None else {"after": self.after}
        return {**by, "suspended": self.suspended}

    def end_of(self, raw: RawEntity) -> int | None:
        """When an entity expires, in ticks. None: never, because the property is absent or not a time."""
        name = TIMESTAMP if self.property_name is None else self.property_name
        typed = typed_property(raw, name)
        if typed is None:
            return None
        value: Any = typed.value
        if typed.type is EdmType.DATE_TIME:
            return int(value) + (self.after or 0) * TICKS_PER_SECOND
        if typed.type in _SECONDS and math.isfinite(value):
            return UNIX_EPOCH_TICKS + int(min(max(value, 0), _SECONDS_MAX) * TICKS_PER_SECOND)
        return None

    def has_ended(self, raw: RawEntity, now: int) -> bool:
        """Whether an entity has expired at `now` (ticks)."""
        end = self.end_of(raw)
        return end is not None and end <= now and not self.suspended
