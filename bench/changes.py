"""What it costs to read a feed of changes and to follow it: `python -m bench.changes [--entities 1000000]`.

Entities are imported into a server that keeps no changes, and into one that does. Of the latter, all query
pages and the whole feed are read in turn, both as a program reads them, parsed. Then `copy --follow` applies the feed
to a third server, and `diff` compares the two. The memory of server and command has bounds that do not depend on the
number of changes; the server's is measured at each tenth of a reading.

    python -m bench.changes --partition 10000    # in key order, so what is followed goes to one partition at a time
    python -m bench.changes --entities 200000 --text 0    # small entities
    python -m bench.changes --entities 20000 --one-by-one    # a record for each entity, not for each transaction

Exits with 1 if anything is missing or differs, takes too much memory, or is slower than it has to be.
"""

import argparse
import math
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final

from bench import machine, paths, processes, servers
from bench.data_tools import TEXT, lines, peak_of
from bench.options import how_many
from tablestone.tools import odata
from tablestone.tools.changes import pages_of_changes
from tablestone.tools.client import Operation, Query, TableEndpoint
from tablestone.tools.connection import Connection, Scheme
from tablestone.tools.errors import read_json

TABLE: Final = "Bench"
READ_CPU_MOST: Final = 1.3
"""The most CPU of the server for a change in the feed, where an entity of a page takes 1; the best rounds count."""
FOLLOWED_LEAST: Final = 0.6
"""The least speed of `copy --follow`, as a share of the import into the server that keeps no changes."""
SERVER_MIB_MAX: Final = 192.0
FOLLOWER_MIB_MAX: Final = 256.0
WORKERS: Final = "2"


def query_pages(endpoint: TableEndpoint) -> Iterator[int]:
    """The number of entities of each page of the table."""
    token = None
    while True:
        page = endpoint.page(Query(TABLE), token)
        yield len(page.entities)
        token = page.next_token
        if token is None:
            return


def feed(endpoint: TableEndpoint) -> Iterator[int]:
    """The number of changes of each page of the table's feed."""
    for page in pages_of_changes(endpoint, TABLE, None, follows=False):
        yield len([read_json(line) for line in page.lines])


READINGS: Final[dict[str, Callable[[TableEndpoint], Iterator[int]]]] = {
    "query pages": query_pages,
    "feed": feed,
}


def reading(name: str, server: servers.Server, entities: int) -> Generator[str, None, float]:
    """Read all entities in one way, and print the figures; yields what is wrong, returns the server's CPU."""
    tree = server.tree()
    memory: list[float] = []
    read, tenths = 0, 1
    started, cpu = time.monotonic(), processes.cpu_seconds(tree)
    with opened(server) as endpoint:
        for number in READINGS[name](endpoint):
            read += number
            if read >= tenths * entities // 10:
                memory.append(processes.resident_mib(tree))
                tenths += 1
    seconds, cpu = time.monotonic() - started, processes.cpu_seconds(tree) - cpu
    first, most = memory[0], max(memory)
    print(
        f"{name:<12}  {read / seconds:>10,.0f}  {cpu / read * 1e6:>17.1f}  {first:>9.0f}  {most:>8.0f}",
        flush=True,
    )
    if read != entities:
        yield f"{name}: {read:,} of {entities:,} entities"
    if most > SERVER_MIB_MAX:
        yield f"{name}: the server takes {most:.0f} MiB"
    return cpu / read


def imported(server: servers.Server, options: argparse.Namespace) -> float:
    """Import the entities, or insert them one by one; returns how many a second."""
    source = lines(options.entities, options.partition, "x" * options.text)
    started = time.monotonic()
    if options.one_by_one:
        with opened(server) as endpoint, source.open("rb") as file, ThreadPoolExecutor(16) as pool:
            endpoint.create_table(TABLE)
            for _ in pool.map(partial(insert, endpoint), file):
                pass
    else:
        peak_of("import", str(source), TABLE, "--quiet", at=server.connection_string)
    return int(options.entities) / (time.monotonic() - started)


def insert(endpoint: TableEndpoint, line: bytes) -> None:
    endpoint.write(TABLE, Operation("POST", odata.key_of(read_json(line)), line))


def opened(server: servers.Server) -> TableEndpoint:
    url = f"http://{server.address}{server.base_path}"
    return TableEndpoint(Connection(url, servers.ACCOUNT, Scheme.ACCOUNT_KEY, servers.KEY))


def followed(source: servers.Server, target: servers.Server, *more: str) -> tuple[float, float]:
    """Apply all changes that there are; returns the seconds, and the most memory of the command in MiB."""
    ends = ("--from", source.connection_string, "--to", target.connection_string)
    started = time.monotonic()
    peak = peak_of("copy", *ends, "--follow", "--until-caught-up", "--quiet", *more)
    return time.monotonic() - started, peak / 2**20


def bench(options: argparse.Namespace) -> Iterator[str]:
    """Print the figures; yields what is wrong."""
    entities: int = options.entities
    shutil.rmtree(paths.DATA, ignore_errors=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, paths.DATA)

        def start(name: str, *more: str) -> servers.Server:
            server = servers.start_tablestone(name, paths.DATA / name, WORKERS, *more)
            stack.callback(server.stop)
            return server

        plain, target = start("plain"), start("target")
        source = start("source", "--keep-changes", "7d,100GiB")
        # An import makes its table, and the follower begins before the entities: all of them come as changes.
        followed(source, target, "--restart")
        beside, kept = (imported(server, options) for server in (plain, source))
        print(f"{'':<12}  entities/s  server µs of CPU  MiB first  MiB most")
        least = dict.fromkeys(READINGS, math.inf)
        for name in options.rounds * list(READINGS):
            least[name] = min(least[name], (yield from reading(name, source, entities)))
        if least["feed"] > READ_CPU_MOST * least["query pages"]:
            yield f"the feed takes more than {READ_CPU_MOST:.0%} of the CPU of query pages"
        seconds, peak = followed(source, target)
        share = entities / seconds / beside
        print(
            f"import {beside:,.0f} entities/s, {kept:,.0f} where changes are kept; copy --follow"
            f" {entities / seconds:,.0f} changes/s, {share:.0%} of import, with {peak:.0f} MiB at the most",
            flush=True,
        )
        if share < FOLLOWED_LEAST:
            yield f"copy --follow is slower than {FOLLOWED_LEAST:.0%} of import"
        if peak > FOLLOWER_MIB_MAX:
            yield f"copy --follow takes {peak:.0f} MiB"
        peak_of("diff", source.connection_string, target.connection_string, "--quiet")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entities", type=how_many, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--rounds", type=how_many, default=3, help="default: %(default)s")
    parser.add_argument(
        "--partition",
        type=how_many,
        default=1000,
        metavar="N",
        help="its entities; default: %(default)s",
    )
    parser.add_argument(
        "--text",
        type=int,
        default=len(TEXT),
        metavar="N",
        help="the length of the text in an entity",
    )
    parser.add_argument(
        "--one-by-one",
        action="store_true",
        help="insert each entity by itself in place of an import",
    )
    options = parser.parse_args()
    paths.WORK.mkdir(exist_ok=True)
    for name, version in machine.versions([servers.TABLESTONE]).items():
        print(f"{name} {version}")
    wrong = list(bench(options))
    for sentence in wrong:
        print(f"wrong: {sentence}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
