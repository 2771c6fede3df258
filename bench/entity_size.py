"""The memory that entities of 2 MiB cost a server with `--entity-size 2MiB`, and a copy of them.

    python -m bench.entity_size [--connections 16] [--seconds 5]

Each entity has one text of 2 MiB, which is 6 MiB as it is stored. One worker serves the connections, of which each
sends its next request when it has the answer. Prints the most memory of the server (PSS) during each kind of request.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from typing import Final

from bench import paths, processes, servers
from bench.changes import opened
from bench.data_tools import peak_of
from bench.options import how_many
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.keys import EntityKey
from tablestone.tools import odata
from tablestone.tools.changes import pages_of_changes
from tablestone.tools.client import Operation, Query, TableEndpoint

TABLE: Final = "Large"
ENTITIES: Final = 16
SAMPLE_SECONDS: Final = 0.02
OPTIONS: Final = ("--entity-size", "2MiB", "--keep-changes", "1GiB")
Ask = Callable[[TableEndpoint, int], object]


def write(endpoint: TableEndpoint, number: int) -> None:
    """Replace an entity of this connection's own."""
    key = EntityKey(f"p{number:02}", "r")
    text = EdmValue(EdmType.STRING, "\x01" * ((1 << 20) - 20))
    body = odata.write_body(odata.TypedEntity(key, {"V": text}))
    endpoint.write(TABLE, Operation("PUT", key, body))


def transact(endpoint: TableEndpoint, number: int) -> None:
    """Merge two entities of 6 MiB each: with a third, the transaction would be refused."""
    keys = [EntityKey(f"t{number:02}", row) for row in "ab"]
    endpoint.transact(TABLE, [Operation("MERGE", key, b'{"Other":1}') for key in keys])


def page(endpoint: TableEndpoint, _number: int) -> None:
    """A page ends with the entity that reaches 4 MiB, so it has one of these."""
    endpoint.page(Query(TABLE), None)


def feed(endpoint: TableEndpoint, _number: int) -> None:
    next(iter(islice(pages_of_changes(endpoint, TABLE, None, follows=False), 1)))


ASKED: Final[dict[str, Ask]] = {
    "a page": page,
    "a feed's answer": feed,
    "a write": write,
    "a transaction": transact,
}


def most_memory(server: servers.Server, ask: Ask, connections: int, seconds: float) -> float:
    """The most memory in MiB while the connections ask."""
    tree = server.tree()
    until = time.monotonic() + seconds
    most = 0.0

    def go_on(number: int) -> None:
        with opened(server) as endpoint:
            while time.monotonic() < until:
                ask(endpoint, number)

    with ThreadPoolExecutor(connections) as pool:
        asking = [pool.submit(go_on, number) for number in range(connections)]
        while not all(each.done() for each in asking):
            most = max(most, processes.resident_mib(tree))
            time.sleep(SAMPLE_SECONDS)
        for each in asking:
            each.result()
    return most


def fill(server: servers.Server, connections: int) -> None:
    with opened(server) as endpoint:
        endpoint.create_table(TABLE)
        for number in range(max(ENTITIES, connections)):
            write(endpoint, number)
        for number in range(connections):
            for row in "ab":
                key = EntityKey(f"t{number:02}", row)
                text = EdmValue(EdmType.STRING, "\x01" * ((1 << 20) - 40))
                body = odata.write_body(odata.TypedEntity(key, {"V": text}))
                endpoint.write(TABLE, Operation("PUT", key, body))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--connections", type=how_many, default=16, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=5.0, help="default: %(default)s")
    options = parser.parse_args()
    paths.WORK.mkdir(exist_ok=True)
    shutil.rmtree(paths.DATA, ignore_errors=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, paths.DATA)

        def start(name: str) -> servers.Server:
            server = servers.start_tablestone(name, paths.DATA / name, "1", *OPTIONS)
            stack.callback(server.stop)
            return server

        print(
            f"{'MiB at the most':<18}{'1 connection':>14}{f'{options.connections} connections':>17}"
        )
        for name, ask in ASKED.items():
            found = []
            for connections in (1, options.connections):
                server = start(f"{name.replace(' ', '-')}-{connections}".replace("'", ""))
                fill(server, options.connections)
                found.append(most_memory(server, ask, connections, options.seconds))
                server.stop()
            print(f"{name:<18}{found[0]:>14,.0f}{found[1]:>17,.0f}", flush=True)
        source, target = start("source"), start("target")
        fill(source, options.connections)
        ends = ("--from", source.connection_string, "--to", target.connection_string)
        peak = peak_of("copy", *ends, TABLE, "--quiet")
        print(f"a copy: the command {peak / 2**20:,.0f}, with 4 requests in flight")
    return 0


if __name__ == "__main__":
    sys.exit(main())
