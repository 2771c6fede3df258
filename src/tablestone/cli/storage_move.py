"""Moves everything between a data directory and what servers share: a keyspace of a cluster, a schema of a database."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    closing,
    contextmanager,
)
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

import click

from tablestone.accounts.stored_accounts import rules_in_words
from tablestone.cli import options
from tablestone.cli.data_options import advising_after_interrupt, together
from tablestone.cli.local_directory import SCHEME as DIRECTORY_SCHEME
from tablestone.cli.local_directory import LocalDirectory, tell_rules
from tablestone.cli.option_sources import KEY_VARIABLE, key_of_directory, read_configuration
from tablestone.clock import system_clock
from tablestone.configuration import DEVELOPMENT_ACCOUNT_NAME
from tablestone.engines.contract import Engine, StorageId
from tablestone.engines.kind import EngineUrl
from tablestone.engines.registry import held_for_processes, open_engine
from tablestone.tables.catalog import TableRecord, every_table
from tablestone.tables.indexes import IndexState
from tablestone.tables.storage_migration import (
    Progress,
    RowTarget,
    StorageComparison,
    compare,
    move,
)
from tablestone.tools.progress import Reached, progress_for, shown_bytes, shown_count


class Filling(RowTarget, Protocol):
    async def keep_rules(self) -> None:
        """Accounts have rules: give it the format of those."""

    async def finish(self) -> None:
        """Everything was compared: let servers use it."""


OpenTarget = Callable[[StorageId, Engine], AbstractAsyncContextManager[tuple[Engine, Filling]]]
"""Opens what is filled from the storage with this id, which the engine reads; no server can use it meanwhile."""
OpenSource = Callable[[], AbstractAsyncContextManager[tuple[Engine, StorageId]]]
"""Opens what is read, with its id; no server uses it. Its end fails if one may have come in meanwhile."""


def engine_option(what: str, form: str) -> tuple[options.Option, ...]:
    return (replace(options.ENGINE, help=f"The {what}: {form}.", default="none"),)


def engine_url(given: dict[str, Any], scheme: str, what: str, form: str) -> str:
    """The URL in the options; `BrokenOption` if it is of another engine."""
    # A data directory or a key in the environment is for a move, or for another server.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(KEY_VARIABLE) and name != options.DATA.variable
    }
    configuration = read_configuration(given, environment)
    if EngineUrl.parse(configuration.engine).scheme != scheme:
        raise options.BrokenOption(f"Say which {what}: --engine '{form}'.")
    return configuration.engine


def moving(flag: str, text: str, engine: tuple[options.Option, ...]) -> Callable[[Any], Any]:
    """The options of a move."""
    kind = click.Path(path_type=Path)
    return together(
        options.with_options(engine),
        click.option(flag, "directory", metavar="DIR", required=True, type=kind, help=text),
        options.key_file_option("the data directory"),
        options.quiet_option,
    )


FROM: Final = ("--from", "The data directory; it must not be in use by a server.")
TO: Final = ("--to", "The data directory to make; it must not exist, or be empty.")


def load(
    directory: Path, key_file: str | None, target: OpenTarget, name: str, *, quiet: bool
) -> int:
    """Fill the target, which `name` names, from a data directory; the exit status."""
    local = LocalDirectory(directory, key_of_directory(key_file))
    place = f"{DIRECTORY_SCHEME}:{directory}"
    # Refuse a directory without data: locking it would create a database there.
    asyncio.run(open_engine(place, system_clock, read_only=True, key=local.key).close())
    with advising_after_interrupt(), held_for_processes(place, local.key) as storage:
        return asyncio.run(_load(local, storage, target, name, quiet=quiet))


async def _load(
    local: LocalDirectory, storage: StorageId, open_target: OpenTarget, name: str, *, quiet: bool
) -> int:
    from tablestone.engines.sqlite.backup import count_rows  # noqa: PLC0415 - for this command only

    directory, key = local
    async with AsyncExitStack() as ends:
        source = open_engine(
            f"{DIRECTORY_SCHEME}:{directory}", system_clock, shared=True, storage=storage, key=key
        )
        ends.push_async_callback(source.close)
        target, filled = await ends.enter_async_context(open_target(storage, source))
        rows = count_rows(directory, key)
        left = count_rows(directory, key, filled.reached)
        with _progress("load", left, quiet=quiet) as tell:
            await move(source, filled, tell)
        advice = f"The {name} is not as {directory}: drop it, make it again, and repeat the load."
        found = await _compared(source, target, rows, advice, quiet=quiet)
        if found.differences:
            return 1
        if rules := await rules_in_words(source):
            await filled.keep_rules()
        await filled.finish()
        print(f"The {name} holds what {directory} holds: {_counted(found)}.")
        tell_rules(rules)
        _tell_expiry(await _what_expires(source))
        if not target.capabilities.keeps_entries and (
            indexed := await in_words(source, indexes_of)
        ):
            print(
                f"A cluster keeps no indexes, so the queries that these served will scan: {indexed}."
            )
        return 0


def unload(
    directory: Path, key_file: str | None, source: OpenSource, name: str, *, quiet: bool
) -> int:
    """Make a data directory of the source, which `name` names; the exit status."""
    local = LocalDirectory(directory, key_of_directory(key_file))
    with advising_after_interrupt():
        return asyncio.run(_unload(local, key_file, source, name, quiet=quiet))


async def _unload(
    local: LocalDirectory, key_file: str | None, open_source: OpenSource, name: str, *, quiet: bool
) -> int:
    from tablestone.engines.sqlite.backup import NewDirectory  # noqa: PLC0415 - for this command only

    directory, key = local
    with ExitStack() as ends:
        async with open_source() as (source, storage):
            target = ends.enter_context(NewDirectory(directory, storage, key))
            with _progress("unload", None, quiet=quiet) as tell:
                await move(source, target, tell)
            copy = open_engine(
                f"{DIRECTORY_SCHEME}:{target.partial}", system_clock, read_only=True, key=key
            )
            advice = (
                f"The {name} has changed meanwhile: stop every server, remove {target.partial}, and repeat the "
                "command."
            )
            try:
                found = await _compared(source, copy, None, advice, quiet=quiet)
                repairs = [
                    ("index", "check", record.name, name, "--data", str(directory))
                    + ("--account", account) * (account != DEVELOPMENT_ACCOUNT_NAME)
                    + ("--encryption-key-file", str(key_file)) * (key_file is not None)
                    async for account, record in every_table(copy)
                    for name in indexes_of(record)
                ]
            finally:
                await copy.close()
            if found.differences:
                return 1
            if rules := await rules_in_words(source):
                await target.keep_rules()
            expires = await _what_expires(source)
        target.finish()  # after the look that comes at the source's end
        print(f"{directory} holds what the {name} holds: {_counted(found)}.")
        tell_rules(rules)
        _tell_expiry(expires)
        if repairs:
            print("No query uses the indexes until these have made them again, with exit status 1:")
        for words in repairs:
            print(f"tablestone {shlex.join(words)}")
        return 0


async def in_words(engine: Engine, words_of: Callable[[TableRecord], Iterable[str]]) -> str:
    """What `words_of` says of each table, such as its indexes, in a line; empty if it says nothing."""
    return ", ".join(
        [
            f"{record.name} {words}"
            + (f" of account {account}" * (account != DEVELOPMENT_ACCOUNT_NAME))
            async for account, record in every_table(engine)
            for words in words_of(record)
        ]
    )


def indexes_of(record: TableRecord) -> list[str]:
    ended = (IndexState.READY, IndexState.BROKEN)
    return [each.property for each in record.indexes if each.state in ended]


async def _what_expires(engine: Engine) -> str:

    def words_of(table: TableRecord) -> list[str]:
        return [] if table.acting_expiry is None else [table.acting_expiry.in_words]

    return await in_words(engine, words_of)


def _tell_expiry(found: str) -> None:
    """Say what will expire. Unlike a restore, a move brings the last state of a storage, so it suspends no policy."""
    if found:
        print(
            "Entities go on to expire, and a server removes them from an hour after its start on; `tablestone expiry "
            f"suspend` keeps them: {found}."
        )


async def _compared(
    source: Engine, copy: Engine, rows: int | None, advice: str, *, quiet: bool
) -> StorageComparison:
    """Compare both, and print the differences and then the advice if there are some."""
    with _progress("compare", rows, quiet=quiet) as tell:
        found = await compare(source, copy, tell)
    for sentence in found.described:
        print(sentence)
    if found.differences > len(found.described):
        print(f"… and {found.differences - len(found.described):,} more differences.")
    if found.differences:
        print(advice)
    return found


def _counted(found: StorageComparison) -> str:
    counts = found.counts
    parts = (
        shown_count(counts.accounts, "account"),
        shown_count(counts.tables, "table"),
        shown_count(counts.entities, "entity", "entities"),
        shown_count(counts.others, "other row"),
    )
    return f"{', '.join(parts)}, {shown_bytes(counts.size)}, every row compared"


@contextmanager
def _progress(title: str, rows: int | None, *, quiet: bool) -> Iterator[Progress]:
    """Show the progress in rows, of which there are `rows` if that is known."""
    with closing(progress_for(title, quiet=quiet, counted="rows")) as progress:
        yield lambda count, size: progress.update(Reached(count, size, position=count, length=rows))
