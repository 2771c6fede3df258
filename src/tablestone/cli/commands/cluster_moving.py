"""`tablestone cluster load` and `unload`: a whole data directory into a keyspace, and back.

Knows the order of the steps and the printed text. `tables.storage_migration` brings the rows and compares them; the two
engines know how to take rows that have versions already.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tablestone.cli.commands.cluster_address import CLUSTER_OPTIONS, cluster_address, opening
from tablestone.cli.encryption_keys import key_of_directory
from tablestone.cli.local_directory import SCHEME, LocalDirectory
from tablestone.cli.parameters import key_file_option, with_options
from tablestone.clock import monotonic_seconds, system_clock
from tablestone.engines.contract import Engine, EngineRefused, EngineUnavailable, StorageId
from tablestone.engines.registry import held_for_processes, open_engine
from tablestone.tables.storage_migration import Comparison, Tell, compare, is_empty, move
from tablestone.tools.progress import Reached, progress_for, shown_bytes

if TYPE_CHECKING:
    from tablestone.engines.cassandra.cluster_url import ClusterAddress
    from tablestone.engines.cassandra.engine import CassandraEngine
    from tablestone.engines.encryption_key import EncryptionKey

DIFFERENT: Final = 1
ROWS: Final = "rows"
LEAVING_SECONDS_MAX: Final = 5.0
"""For so long the nodes may still tell of the connections of a server that has stopped."""

quiet_option = click.option("--quiet", is_flag=True, help="No progress on standard error.")


def _directory_option(flag: str, text: str) -> Callable[[Any], Any]:
    return click.option(
        flag,
        "directory",
        metavar="DIR",
        required=True,
        type=click.Path(path_type=Path),
        help=text,
    )


@click.command(
    epilog="Example: tablestone cluster load --from ./data "
    "--engine 'cassandra://node1,node2,node3/tablestone?datacenter=dc1'"
)
@with_options(CLUSTER_OPTIONS)
@_directory_option("--from", "The data directory; it must not be in use by a server.")
@key_file_option("the data directory")
@quiet_option
def load(directory: Path, encryption_key_file: str | None, *, quiet: bool, **given: Any) -> int:
    """Bring a data directory into a cluster.

    Accounts, policies, service properties, roles, tables and entities come with their versions, so
    ETags stay good. The keyspace must be new (`tablestone cluster init`), and no server can use
    it until everything was compared. After an interruption, the same command continues.

    Exit status: 0 if both hold the same, 1 if not or if it failed, 2 if it could not begin.
    """
    address = cluster_address(given)
    source = LocalDirectory(directory, key_of_directory(encryption_key_file))
    place = f"{SCHEME}:{directory}"
    _require_there(place, source.key)
    with _telling_how_to_go_on(), held_for_processes(place, source.key) as storage:
        return asyncio.run(_load(address, storage, source, quiet=quiet))


@click.command(
    epilog="Example: tablestone cluster unload --to ./data "
    "--engine 'cassandra://node1,node2,node3/tablestone?datacenter=dc1'"
)
@with_options(CLUSTER_OPTIONS)
@_directory_option("--to", "The data directory to make; it must not exist, or be empty.")
@key_file_option("the data directory")
@quiet_option
def unload(directory: Path, encryption_key_file: str | None, *, quiet: bool, **given: Any) -> int:
    """Bring the content of a cluster into a new data directory.

    Everything comes with its versions, so ETags stay good. Stop every server first. DIR appears
    when everything was compared. After an interruption, the same command continues.

    Exit status: 0 if both hold the same, 1 if not or if it failed, 2 if it could not begin.
    """
    address = cluster_address(given)
    target = LocalDirectory(directory, key_of_directory(encryption_key_file))
    with _telling_how_to_go_on():
        return asyncio.run(_unload(address, target, quiet=quiet))


async def _load(
    address: ClusterAddress, storage: StorageId, local: LocalDirectory, *, quiet: bool
) -> int:
    from tablestone.engines.sqlite.copies import count_rows  # noqa: PLC0415 - for this command only

    directory, key = local
    opened = opening()
    target = opened.open_cassandra(address, system_clock, may_be_loading=True)
    try:
        if not opened.is_loading(target) and not await is_empty(target):
            raise EngineRefused(
                f"The keyspace {address.keyspace} holds data already: load into a new one."
            )
        await _require_alone(target, address)
        source = open_engine(
            f"{SCHEME}:{directory}", system_clock, shared=True, storage=storage, key=key
        )
        try:
            rows = count_rows(directory, key)
            filled = opened.begin_load(target, storage)
            left = count_rows(directory, key, filled.reached)
            with _told("load", left, quiet=quiet) as tell:
                await move(source, filled, tell)
            found = await _compared(source, target, rows, quiet=quiet)
            if found.differences:
                _print_differences(found)
                print(
                    f"The keyspace {address.keyspace} is not as {directory}: drop it, make it again, and repeat the "
                    "load."
                )
                return DIFFERENT
            await filled.finish()
            print(
                f"The keyspace {address.keyspace} holds what {directory} holds: {_counted(found)}."
            )
            return 0
        finally:
            await source.close()
    finally:
        await target.close()


async def _unload(address: ClusterAddress, local: LocalDirectory, *, quiet: bool) -> int:
    from tablestone.engines.sqlite.copies import NewDirectory  # noqa: PLC0415 - for this command only

    directory, key = local
    opened = opening()
    source = opened.open_cassandra(address, system_clock, read_only=True)
    try:
        await _require_alone(source, address)
        with NewDirectory(directory, opened.storage_id(source.connection), key) as target:
            with _told("unload", None, quiet=quiet) as tell:
                await move(source, target, tell)
            copy = open_engine(f"{SCHEME}:{target.partial}", system_clock, read_only=True, key=key)
            try:
                found = await _compared(source, copy, None, quiet=quiet)
            finally:
                await copy.close()
            if found.differences:
                _print_differences(found)
                print(
                    f"{address.keyspace} has changed meanwhile: stop every server, remove {target.partial}, and repeat "
                    "the command."
                )
                return DIFFERENT
            target.finish()
        print(f"{directory} holds what the keyspace {address.keyspace} holds: {_counted(found)}.")
        return 0
    finally:
        await source.close()


async def _compared(source: Engine, target: Engine, rows: int | None, *, quiet: bool) -> Comparison:
    with _told("compare", rows, quiet=quiet) as tell:
        return await compare(source, target, tell)


def _require_there(place: str, key: EncryptionKey | None) -> None:
    """Refuse a directory without data: holding it would make it one."""
    asyncio.run(open_engine(place, system_clock, read_only=True, key=key).close())


async def _require_alone(engine: CassandraEngine, address: ClusterAddress) -> None:
    """Refuse while a server is connected: it would change rows that have been read or written already."""
    for datacenter in engine.connection.every_node.silent_datacenters():
        print(
            f"tablestone: No node of datacenter {datacenter} answers, so a server there would not be seen: make sure "
            "that none runs.",
            file=sys.stderr,
        )
    deadline = monotonic_seconds() + LEAVING_SECONDS_MAX
    while clients := engine.connection.other_clients():
        if monotonic_seconds() < deadline:  # a server that has just stopped
            await asyncio.sleep(0.5)
            continue
        raise EngineRefused(
            f"The keyspace {address.keyspace} is in use from {', '.join(clients)}: stop every server first."
        )


def _print_differences(found: Comparison) -> None:
    for sentence in found.told:
        print(sentence)
    if found.differences > len(found.told):
        print(f"… and {found.differences - len(found.told):,} more differences.")


def _counted(found: Comparison) -> str:
    counts = found.counts
    numbers = {
        "account": counts.accounts,
        "table": counts.tables,
        "entity": counts.entities,
        "other row": counts.others,
    }
    plural = {"entity": "entities"}
    parts = [
        f"{number:,} {noun if number == 1 else plural.get(noun, noun + 's')}"
        for noun, number in numbers.items()
    ]
    return f"{', '.join(parts)}, {shown_bytes(counts.size)}, every row compared"


@contextmanager
def _told(title: str, rows: int | None, *, quiet: bool) -> Iterator[Tell]:
    progress = progress_for(title, quiet=quiet, counted=ROWS)

    def tell(count: int, size: int) -> None:
        progress.update(Reached(count, size, position=count, length=rows))

    try:
        yield tell
    finally:
        progress.close()


@contextmanager
def _telling_how_to_go_on() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print("\ntablestone: Stopped. The same command continues.", file=sys.stderr)
        raise
    except EngineUnavailable:
        print(
            "tablestone: This did not come to its end. The same command continues.", file=sys.stderr
        )
        raise
