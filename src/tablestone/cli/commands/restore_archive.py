"""`tablestone restore --archive`, and `serve --from-archive`: fill a new data directory from an archive."""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from tablestone.accounts.stored_accounts import rules_in_words
from tablestone.archive.going_back import (
    MomentRefused,
    NothingArchived,
    find_goal,
    restore,
    shown,
    ticks_of_unix,
)
from tablestone.archive.objects import ObjectDamaged, ObjectRefused
from tablestone.archive.store import Store, StoreRefused, StoreUnavailable, open_store
from tablestone.cli.commands.check import problems_of
from tablestone.cli.data_options import advising_after_interrupt
from tablestone.cli.local_directory import SCHEME, BackupFailed, suspend_expiry, tell_rules
from tablestone.cli.option_sources import key_in_file
from tablestone.cli.options import ARCHIVE_KEY_FILE, BrokenOption, archive_from, path_from
from tablestone.clock import system_clock, unix_seconds
from tablestone.configuration import Configuration
from tablestone.engines.contract import EngineRefused, EngineUnavailable
from tablestone.engines.kind import EncryptionKey, EngineUrl, Opening
from tablestone.engines.registry import open_engine
from tablestone.engines.sqlite.data_directory import DATABASE_NAME, was_used
from tablestone.engines.sqlite.engine import SqliteEngine
from tablestone.engines.sqlite.restored_directory import RestoredDirectory
from tablestone.model.expiry import SECONDS_IN
from tablestone.server.worker import StartRefused
from tablestone.tables.index_building import entries_of_storage
from tablestone.tools.progress import Progress, Reached, progress_for

WAIT_SECONDS: Final = 5.0
"""Seconds between two attempts to reach the archive."""
AGO: Final = re.compile(r"(\d+)\s*(s|m|h|d|seconds?|minutes?|hours?|days?)\s+ago")

SECONDS_MAX: Final = 253_402_300_799
"""The end of the year 9999."""

log = logging.getLogger(__name__)


def keys_of(files: tuple[str, ...]) -> list[EncryptionKey]:
    """The keys in these files, or in those that the environment names for a server."""
    named = os.environ.get(ARCHIVE_KEY_FILE.variable, "")
    files = files or tuple(filter(None, named.split(";")))
    return [key_in_file(path_from(file, Path.cwd())) for file in files]


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Turn what an archive answers into a sentence and an exit status."""
    try:
        yield
    except NothingArchived as nothing:
        raise BrokenOption(f"{url}: {nothing}") from None
    except (StoreRefused, ObjectRefused, MomentRefused) as refused:
        raise BrokenOption(str(refused)) from None
    except (StoreUnavailable, ObjectDamaged) as failed:
        raise BackupFailed(f"The archive {url} cannot be read: {failed}") from None


def absolute(url: str) -> str:
    """A URL as it is, or the absolute path of a directory."""
    if not url:
        raise BrokenOption("The URL of the archive must not be empty.")
    return archive_from(url, Path.cwd())


def opened(url: str, data: Path | None = None) -> Store:
    return open_store(absolute(url), data, must_exist=True)


def parse_moment(text: str | None) -> tuple[int | None, int | None]:
    """A number of a record, or the ticks of a moment: ISO with or without a zone, or such as `10 minutes ago`."""
    if text is None:
        return None, None
    if text.isascii() and text.isdigit():
        return int(text), None
    has_zone = True
    try:
        if found := AGO.fullmatch(text.strip()):
            seconds = unix_seconds() - int(found[1]) * SECONDS_IN[found[2][0]]
        else:
            moment = datetime.fromisoformat(text)
            has_zone = moment.tzinfo is not None
            seconds = (moment if has_zone else moment.astimezone()).timestamp()
    except (ValueError, OverflowError):
        raise BrokenOption(
            f"--to must be a moment such as 2026-11-28T14:02:00Z or '10 minutes ago', or the number of a record, not "
            f"{text!r}."
        ) from None
    ticks = _ticks(seconds)
    if not has_zone:
        print(f"--to has no zone, so it is local time: {shown(ticks)}.")
    return None, ticks


def _ticks(seconds: float) -> int:
    """The ticks of a moment; the nearest one that can be shown."""
    return ticks_of_unix(min(max(seconds, 0), SECONDS_MAX))


def told(progress: Progress) -> Callable[[int, int], None]:
    return lambda done, whole: progress.update(Reached(done, 0, position=done, length=whole))


def restore_archive(
    url: str,
    directory: Path,
    key: EncryptionKey | None,
    archive_keys: tuple[str, ...],
    *,
    life: str | None,
    to: str | None,
    quiet: bool,
) -> list[tuple[str, str]]:
    """Fill a new directory from an archive, and say up to which moment; returns the tables with suspended expiry."""
    keys = keys_of(archive_keys) + ([key] if key is not None else [])
    moment = parse_moment(to)
    with (
        reading(url),
        advising_after_interrupt(),
        closing(progress_for("restore", quiet=quiet, counted="steps")) as progress,
    ):
        filled = asyncio.run(
            fill(absolute(url), keys, directory, key, life, moment, told(progress))
        )
    print(f"{directory}: restored from {url}, {filled.in_words}, checked")
    if keys and key is None:
        print("The archive is encrypted and the directory is not: `tablestone encrypt` does it.")
    if to is not None:
        print("Accounts, their keys, access policies and roles are those of that moment.")
    tell_rules(filled.rules)
    return filled.suspended


def restore_if_empty(configuration: Configuration) -> None:
    """For `serve --from-archive`: restore an empty data directory first. Waits for the archive; `StartRefused`."""
    settings, directory = configuration.archive, configuration.data_directory
    assert settings is not None
    assert directory is not None
    if was_used(directory) or (directory / DATABASE_NAME).exists():
        return
    while True:
        try:
            filled = asyncio.run(
                fill(settings.url, list(settings.keys), directory, configuration.encryption_key)
            )
        except NothingArchived:
            log.warning(
                "The archive %s holds nothing: this server begins without data.", settings.url
            )
        except StoreUnavailable as error:
            log.warning(
                "Waits for the archive %s, to restore the data directory. %s", settings.url, error
            )
            time.sleep(WAIT_SECONDS)
            continue
        except (
            *(StoreRefused, ObjectRefused, ObjectDamaged, MomentRefused),
            *(EngineRefused, EngineUnavailable),
        ) as error:
            by_hand = " `tablestone restore --archive` takes it." if "--life" in str(error) else ""
            raise StartRefused(
                f"The data cannot be restored from {settings.url}: {error}{by_hand}"
            ) from None
        else:
            log.warning("Restored from %s, %s.", settings.url, filled.in_words)
            for rules in filled.rules:
                log.warning("Rules of an account, which act at once: %s.", rules)
        return


class Filled(NamedTuple):
    """What a directory was filled with."""

    life: str
    number: int
    """The last record."""
    time: int
    """Of the last commit, in ticks."""
    rules: list[str]
    """A line for each account with rules."""
    suspended: list[tuple[str, str]]
    """Accounts and tables whose expiry was suspended."""
    later: str
    """What to say if the moment is later than the archive."""

    @property
    def in_words(self) -> str:
        return f"life {self.life}, up to record {self.number}, {shown(self.time)}{self.later}"


async def fill(
    archive: str,
    keys: list[EncryptionKey],
    directory: Path,
    key: EncryptionKey | None,
    life: str | None = None,
    to: tuple[int | None, int | None] = (None, None),
    progress: Callable[[int, int], None] = lambda _done, _whole: None,
) -> Filled:
    """Fill a new directory from an archive, or go on with one that was interrupted. `to`: as `parse_moment`."""
    store = open_store(archive, directory, must_exist=True)
    goal = await find_goal(store, keys, life, *to, unix_seconds())
    with RestoredDirectory(directory, key) as target:
        newest = await restore(store, keys, goal, target, archive, progress)
        url = str(EngineUrl(SCHEME, str(target.partial)))
        engine = open_engine(url, system_clock, read_only=True, key=key)
        try:
            async for entries in entries_of_storage(engine):  # the archive has none
                await asyncio.to_thread(target.add_entries, entries)
            if rules := await rules_in_words(engine):
                await target.keep_rules()
        finally:
            await engine.close()
        target.close()
        suspended = []
        if to != (None, None):
            suspended = await suspend_expiry(
                SqliteEngine(
                    *(target.partial, system_clock, Opening.SHARED), key=key, may_be_unfinished=True
                )
            )
        problems = await asyncio.to_thread(problems_of, url, key)
        if problems:
            raise ObjectDamaged(f"What was restored is damaged: {problems[0]}.")
        target.finish()
    written, later = ticks_of_unix(goal.history.line.lives[goal.history.life].written), ""
    if to[1] is not None and to[1] > written:
        later = f"; the archive was written last at {shown(written)}"
    return Filled(goal.history.life, goal.number, newest.time, rules, suspended, later)
