"""Examines a database on each connection to it: after a failover it is another one, perhaps with other settings.

A state in which data could be mixed up, or nothing would work, is refused; what could lose data is a warning.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import asyncpg

from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS, monotonic_seconds
from tablestone.engines.contract import EngineRefused, NothingStored, StorageId
from tablestone.engines.postgresql.schema import FORMAT, RULES_FORMAT

if TYPE_CHECKING:
    from tablestone.clock import Clock
    from tablestone.engines.postgresql.address import DatabaseAddress

VERSION_MIN: Final = 14
CLOCK_SECONDS_MAX: Final = 60.0
"""A server whose clock differs by more from the database's goes by that one."""
LEAVING_SECONDS_MAX: Final = 3.0
NO_STANDBY: Final = (
    "Too few synchronous standbys answer PostgreSQL now: writes are refused until enough do."
)
_WARNINGS: Final = (
    (
        "current_setting('fsync') = 'off'",
        "PostgreSQL has fsync = off: writes that were acknowledged are lost if its machine stops. Set fsync = on.",
    ),
    (
        "current_setting('full_page_writes') = 'off'",
        "PostgreSQL has full_page_writes = off: a page may be damaged if its machine stops. Set full_page_writes = on.",
    ),
    (
        "current_setting('synchronous_standby_names') = ''",
        "PostgreSQL waits for no standby: a failover may lose writes that were acknowledged. Set "
        "synchronous_standby_names.",
    ),
    (
        # 'ANY 2 (…)' waits for two. A role without pg_read_all_stats sees that there are standbys, and not which of
        # them are synchronous.
        # One that hangs is connected for a minute. Then commits of servers wait, as they do for one that is missing.
        "current_setting('synchronous_standby_names') <> '' AND ((SELECT count(*) FROM pg_stat_replication "
        "WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum')) < coalesce(substring("
        "current_setting('synchronous_standby_names') "
        "FROM '(?i)^[[:space:]]*(?:(?:any|first)[[:space:]]+)?([0-9]+)[[:space:]]*[(]')::integer, 1) "
        "OR EXISTS (SELECT FROM pg_stat_activity "
        "WHERE application_name = 'tablestone' AND wait_event = 'SyncRep' "
        "AND query_start < clock_timestamp() - interval '5 s'))",
        NO_STANDBY,
    ),
)
"""Conditions, and what each means."""
UNFENCED: Final = (
    "Nothing says that an old primary of PostgreSQL is stopped before a failover: it could take writes that are lost. "
    "If your failover fences it, say fenced=yes in the engine's URL."
)
# transaction_timeout came with 17: a connection that asks older ones for it is refused.
EXAMINE: Final = f"""
SELECT extract(epoch FROM clock_timestamp()), current_setting('server_version_num')::integer / 10000,
    current_setting('search_path') || ' ' || current_setting('synchronous_commit'),
    ARRAY[{", ".join(condition for condition, _sentence in _WARNINGS)}],
    CASE WHEN current_setting('server_version_num')::integer >= 170000
        THEN set_config('transaction_timeout', '0', false) END
"""


class Examination(NamedTuple):
    unix_seconds: float
    """The database's time."""
    settings: list[str]
    """A sentence for each setting that may lose data."""

    def ticks_behind(self, clock: Clock) -> int:
        """What to add to a clock that differs much from the database's."""
        ticks = int(self.unix_seconds * TICKS_PER_SECOND) + UNIX_EPOCH_TICKS - clock()
        return ticks if abs(ticks) > CLOCK_SECONDS_MAX * TICKS_PER_SECOND else 0

    def warnings(self, clock: Clock) -> list[str]:
        minutes = round(self.ticks_behind(clock) / TICKS_PER_SECOND / 60)
        if not minutes:
            return self.settings
        return [
            *self.settings,
            f"The clock of this server is about {abs(minutes):,} min {'behind' if minutes > 0 else 'ahead of'} "
            "PostgreSQL's: entities get PostgreSQL's time. Set both by NTP.",
        ]


async def examine(
    driver: asyncpg.Connection[Any], address: DatabaseAddress, seconds: float
) -> Examination:
    """Look at the database, and keep its `transaction_timeout` from acting."""
    found = await driver.fetchrow(EXAMINE, timeout=seconds)
    unix_seconds, version, settings, conditions, _timeout = found
    if version < VERSION_MIN:
        raise EngineRefused(
            f"{address.shown} is PostgreSQL {version}: {VERSION_MIN} or later is needed."
        )
    if settings != f'"{address.schema}" on':
        raise EngineRefused(
            f"The settings of a connection do not reach {address.shown}: name PostgreSQL itself, and no pooler such as "
            "PgBouncer."
        )
    warnings = [each for (_, each), holds in zip(_WARNINGS, conditions, strict=True) if holds]
    return Examination(float(unix_seconds), warnings + [UNFENCED] * (not address.is_fenced))


async def require_own(driver: asyncpg.Connection[Any], address: DatabaseAddress) -> asyncpg.Record:
    """The row of `storage`; `EngineRefused` if the schema is another program's or a newer version's."""
    row = None
    with suppress(asyncpg.UndefinedTableError):
        row = await driver.fetchrow(f'SELECT * FROM "{address.schema}".storage')
    if row is None or not {"format", "id"} <= set(row.keys()):
        if not await driver.fetchval("SELECT to_regnamespace($1) IS NOT NULL", address.schema):
            raise NothingStored(
                f"{address.in_words} does not exist: `tablestone postgresql init` makes it."
            )
        raise EngineRefused(
            f"{address.in_words} is another program's: choose one with schema=NAME."
        )
    if row["format"] > RULES_FORMAT:
        raise EngineRefused(
            f"{address.in_words} has the format {row['format']}, and this Tablestone reads {RULES_FORMAT}: use the "
            "version that made it, or a newer one."
        )
    return row


async def require_storage(
    driver: asyncpg.Connection[Any],
    address: DatabaseAddress,
    expected: StorageId | None = None,
    *,
    is_alone: bool = False,
) -> StorageId:
    """The id of a schema that a server can use; `EngineRefused` if it is another than the expected one.

    The connection keeps programs that need to be alone out (`lock_alone`), unless it is one of them itself.
    """
    row = await require_own(driver, address)
    if row["format"] < FORMAT:
        raise EngineRefused(
            f"{address.in_words} has the format {row['format']}, of an older version of Tablestone: stop all servers, "
            "and run `tablestone postgresql init`, which upgrades it."
        )
    storage = StorageId(row["id"])
    if expected is not None and storage != expected:
        raise EngineRefused(f"{address.in_words} is not the one that the server was started on.")
    if is_alone:
        return storage
    require_loaded(row, address)
    in_use, knows_rules = _lock_of(storage), _lock_of(storage, knows_rules=True)
    await driver.execute("SELECT pg_advisory_lock_shared({}, {})".format(*knows_rules))
    if not await _had(driver, "SELECT pg_try_advisory_lock_shared($1, $2)", in_use):
        raise EngineRefused(
            f"{address.in_words} is in use by a `tablestone postgresql` command: wait for it."
        )
    return storage


def require_loaded(row: asyncpg.Record, address: DatabaseAddress) -> None:
    if row["source"] is not None:
        raise EngineRefused(
            f"{address.in_words} is being loaded: wait for `tablestone postgresql load`, or run it again if it was "
            "interrupted."
        )


async def lock_alone(
    driver: asyncpg.Connection[Any], address: DatabaseAddress, storage: StorageId
) -> None:
    """Keep servers out for as long as the connection lives; `EngineRefused` while one is connected."""
    if not await _had(driver, "SELECT pg_try_advisory_lock($1, $2)", _lock_of(storage)):
        places = await _users(driver, storage) or "somewhere"
        raise EngineRefused(f"{address.in_words} is in use from {places}: stop every server first.")


async def _had(driver: asyncpg.Connection[Any], tries: str, lock: tuple[int, int]) -> bool:
    """Whether the lock was free. PostgreSQL may keep one for a moment after its program has ended."""
    until = monotonic_seconds() + LEAVING_SECONDS_MAX
    while not await driver.fetchval(tries, *lock):
        if monotonic_seconds() > until:
            return False
        await asyncio.sleep(0.1)
    return True


async def _users(
    driver: asyncpg.Connection[Any], storage: StorageId, *, without_rules: bool = False
) -> str:
    """Where the programs are that use the schema, or only those that do not know rules of accounts."""
    locks = (_lock_of(storage), _lock_of(storage, knows_rules=without_rules))
    users = await driver.fetch(
        "SELECT DISTINCT coalesce(host(client_addr), 'an address that only a role with pg_read_all_stats sees (role '"
        " || usename || ')') FROM pg_locks AS held JOIN pg_stat_activity USING (pid) "
        "WHERE locktype = 'advisory' AND objsubid = 2 AND classid::bigint = $1 AND objid::bigint = $2 AND granted "
        "AND ($2 = $3 OR NOT EXISTS (SELECT FROM pg_locks AS also WHERE also.pid = held.pid "
        "AND also.locktype = 'advisory' AND also.objsubid = 2 AND also.classid::bigint = $1 "
        "AND also.objid::bigint = $3))",
        *(number & 0xFFFFFFFF for number in (*locks[0], locks[1][1])),
    )
    return ", ".join(sorted(place for (place,) in users))


async def keep_rules(
    driver: asyncpg.Connection[Any],
    address: DatabaseAddress,
    storage: StorageId,
    *,
    all_upgraded: bool,
) -> str | None:
    """As the engine's."""
    if await driver.fetchval("SELECT format FROM storage") >= RULES_FORMAT:
        return None

    async def require_upgraded() -> None:
        if not all_upgraded and (places := await _users(driver, storage, without_rules=True)):
            raise EngineRefused(
                f"{address.in_words} is in use by a server of an earlier version, from {places}, which would not keep "
                "to rules of accounts: restart it with this version first, or say --all-servers-upgraded."
            )

    await require_upgraded()
    try:
        await driver.execute("UPDATE storage SET format = $1 WHERE format < $1", RULES_FORMAT)
    except asyncpg.InsufficientPrivilegeError as error:
        raise EngineRefused(
            f"{address.in_words} gets another format by the first rule, which only its owner may change: set the rule "
            "as that role."
        ) from error
    await require_upgraded()  # one may have connected meanwhile
    return f"{address.in_words} has the format {RULES_FORMAT} now"


def _lock_of(storage: StorageId, *, knows_rules: bool = False) -> tuple[int, int]:
    """The two numbers of an advisory lock; those of partitions have one. Who knows rules of accounts has a second."""
    first, second = struct.unpack_from("!ii", storage)
    return first, second ^ knows_rules
