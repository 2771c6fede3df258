"""Removes partitions without rows from the directory, and then leaves without partitions, safely beside writers.

A partition is first marked as not listed, so that a writer has to list it again, under a later epoch, before it
commits. Only then is its entry removed, with the epoch under which it was listed: a removal that comes late does no
harm to a later entry. The rest of the partition's state expires after two days; by then every clock is past all
versions that were given in the partition. How a leaf goes is in `directory`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tablestone.engines.cassandra.commit import FORGOTTEN_SECONDS, Commits, State
from tablestone.engines.cassandra.connection import Connection, OutcomeInDoubt
from tablestone.engines.cassandra.directory import Directory
from tablestone.engines.cassandra.keyspace import ROWS
from tablestone.engines.contract import EngineUnavailable

log = logging.getLogger(__name__)

KEPT_MAX: Final = 100_000
"""Partitions that wait to be examined. Further ones are not noted; later reads find them again."""
PAUSE_SECONDS: Final = 5.0
"""The shortest time for which an empty partition stays listed: an emptied partition is often filled again."""


class Emptied:
    """Partitions that seem to have no rows, and what is done about them."""

    def __init__(self, connection: Connection, directory: Directory, commits: Commits) -> None:
        self._connection = connection
        self._directory = directory
        self._commits = commits
        self._noted: dict[bytes, None] = {}
        self._any_row = connection.prepare(
            f"SELECT row FROM {ROWS} WHERE partition = ? LIMIT 1", serial=True
        )

    def note(self, partition: bytes) -> None:
        """This partition may be empty."""
        if len(self._noted) < KEPT_MAX:
            self._noted[partition] = None

    async def watch(self) -> None:
        """Look after what is noted, one partition after the other, for as long as the server runs."""
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            noted, self._noted = self._noted, {}
            for partition in noted:
                try:
                    await self.clean(partition)
                except (EngineUnavailable, OutcomeInDoubt) as error:
                    log.info("an empty partition stays in the directory for now: %s", error)
            try:
                await self._directory.join_empty()
            except (EngineUnavailable, OutcomeInDoubt) as error:
                log.info("empty nodes of the directory stay for now: %s", error)

    async def clean(self, partition: bytes) -> bool:
        """Take the partition out of the directory if it is empty; whether it was taken out."""
        state = await self._commits.state(partition)
        if await self._has_row(partition):
            return False
        epoch = abs(state.listed)
        if state.listed > 0 or (state.mark and not epoch):
            # Without an epoch, the first write was given up after its partition had been listed.
            epoch = epoch or max(self._directory.epoch_now(), 1)
            # Every commit moves the mark: if the state is still the one that was read first, there is still no row.
            unlisted = State(state.mark + 1, state.floor, -epoch)
            if not await self._commits.change_state(partition, state, unlisted, FORGOTTEN_SECONDS):
                return False
        elif state.mark == 0:
            # The server that began this died before the end, and the state has expired since.
            epoch = self._directory.epoch_now() - FORGOTTEN_SECONDS * 1_000_000
        await self._directory.remove(partition, epoch)
        return True

    async def _has_row(self, partition: bytes) -> bool:
        """Whether there is a row, after every commit that was begun. A state without rows is a line without a row."""
        answer = await self._connection.read(self._any_row, (partition,))
        return bool(answer) and answer[0][0] is not None
