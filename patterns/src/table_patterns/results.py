"""What the patterns return."""

from dataclasses import dataclass
from time import monotonic

Place = tuple[str, str]
"""A partition key and a row key."""


@dataclass(frozen=True)
class Checked:
    """What a check found: entities read, index entities that are missing, and ones that no entity has."""

    entities: int
    missing: list[Place]
    wrong: list[Place]


@dataclass(frozen=True)
class Built:
    """Entities that have all their index entities now, and those that other writers kept changing: build again."""

    built: int = 0
    left: int = 0


@dataclass(frozen=True)
class Deleted:
    """How many entities were found, and what became of them."""

    read: int = 0
    deleted: int = 0
    """They are gone: by this call, or by another client meanwhile."""
    left: int = 0
    """They have changed, and the filter does not find them any more."""
    changing: int = 0
    """They changed each time that they were to be deleted."""


@dataclass(frozen=True)
class Copied:
    """How many entities are copied, and the row key of the last: `after` of a call that goes on."""

    copied: int = 0
    row_key: str | None = None


@dataclass(frozen=True)
class Held:
    """A lock that is held: give `number` to the resource with each request."""

    number: int
    token: str
    until: float
    """When the time is over, by `time.monotonic`."""

    @property
    def seconds_left(self) -> float:
        """The time that is left; renew before it is over. Negative afterwards."""
        return self.until - monotonic()


@dataclass(frozen=True)
class Swept:
    """How many writers had given up, and how many parts were deleted."""

    writers: int = 0
    parts: int = 0
