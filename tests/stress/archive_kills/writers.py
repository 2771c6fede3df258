"""Writers whose journals know when each state came, and what an archive may restore of a moment."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stress.crash.journal import Journal
from stress.crash.writers import QUIET, EntityWriter, UntilKilled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stress.crash.journal import Change, Properties, Stored

SESSIONS: Final = "CrashSessions"
EXPIRY_SECONDS: Final = 1.5
SWEPT_SECONDS: Final = 30.0
"""An expired entity may stay until its server has swept, which may have been killed."""

Rows = dict[str, dict[str, "Properties"]]
"""The properties of restored entities, by partition and row."""


class Came(NamedTuple):
    """A state of a partition: it came after `began` and before `ended`, in seconds since 1970."""

    began: float
    ended: float
    state: dict[str, Properties]


@dataclass
class TimedJournal(Journal):
    """Knows every state and when it came."""

    states: list[Came] = field(default_factory=lambda: [Came(0.0, 0.0, {})])
    began: float = 0.0

    def begin(self, changes: Sequence[Change]) -> None:
        self.began = time.time()
        super().begin(changes)

    def _continue_from(self, state: dict[str, Stored]) -> None:
        plain = {row: stored.properties for row, stored in state.items()}
        if plain != self.states[-1].state:
            self.states.append(Came(self.began, time.time(), plain))
        super()._continue_from(state)

    def complaints_of_moment(self, found: Rows, moment: float) -> Iterator[str]:
        """Where what was restored of a moment, in seconds since 1970, is not what was there."""
        index = max(i for i, came in enumerate(self.states) if came.ended <= moment)
        allowed = [came.state for came in self.states[index : index + 2] if came.began <= moment]
        here = found.get(self.partition_key, {})
        if here not in allowed:
            place = [i for i, came in enumerate(self.states) if came.state == here]
            yield (
                f"{self.partition_key}: restored is state {place or 'none'} of {len(self.states)}, "
                f"allowed are {len(allowed)} from {index} on"
            )

    def complaints_of_loss(self, found: Rows, moment: float) -> Iterator[str]:
        """Where what was restored lacks something that was acknowledged before a moment."""
        here = found.get(self.partition_key, {})
        newest = max(i for i, came in enumerate(self.states) if came.ended <= moment)
        if all(came.state != here for came in self.states[newest:]):
            seconds = moment - self.states[newest].ended
            place = [i for i, came in enumerate(self.states) if came.state == here]
            yield (
                f"{self.partition_key}: state {newest} of {len(self.states)} is not archived, though it was "
                f"acknowledged {seconds:.3f} s before the moment that the lag told; restored is state {place or 'none'}"
            )


class TimedWriter(EntityWriter):
    journal: TimedJournal


class Session(NamedTuple):
    """An entity that expires; it was written after `began` and before `ended`, if it was acknowledged."""

    began: float
    ended: float | None
    expires: float


@dataclass
class Sessions:
    """The journal of entities that expire."""

    partition_key: str = "sessions"
    written: dict[str, Session] = field(default_factory=dict)
    in_flight: str = ""
    operations_acknowledged: int = 0

    def begin(self, row: str, expires: float) -> None:
        self.in_flight = row
        self.written[row] = Session(time.time(), None, expires)

    def acknowledge(self) -> None:
        self.written[self.in_flight] = self.written[self.in_flight]._replace(ended=time.time())
        self.operations_acknowledged += 1
        self.in_flight = ""

    def forget(self) -> None:
        del self.written[self.in_flight]

    def settle(self, _found: Any) -> None:
        self.in_flight = ""

    def complaints(self, _found: Any) -> Iterator[str]:
        yield from ()

    def complaints_of_moment(self, found: Rows, moment: float) -> Iterator[str]:
        here: Mapping[str, Any] = found.get(self.partition_key, {})
        for row, (began, ended, expires) in self.written.items():
            if row in here and began > moment:
                yield f"session {row} is of after the moment"
            if row not in here and ended is not None and ended <= moment < expires:
                yield f"session {row} was acknowledged before the moment, and lives"
            if row in here and expires + SWEPT_SECONDS < moment:
                yield f"session {row} was never swept"
        for row in here.keys() - self.written.keys():
            yield f"nobody wrote session {row}"


class SessionWriter(UntilKilled):
    """Inserts entities that expire soon."""

    journal: Sessions

    def read(self) -> None:
        return

    def send_next(self) -> None:
        row = f"{len(self.journal.written):06}"
        expires = time.time() + EXPIRY_SECONDS
        body = {
            "PartitionKey": self.journal.partition_key,
            "RowKey": row,
            "expires": datetime.fromtimestamp(expires, UTC).isoformat().replace("+00:00", "Z"),
            "expires@odata.type": "Edm.DateTime",
        }
        self.journal.begin(row, expires)
        target = f"/{SESSIONS}"
        self.connection.send("POST", target, json.dumps(body).encode(), expected=204, headers=QUIET)
        self.journal.acknowledge()
        time.sleep(0.02)
