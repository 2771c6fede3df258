"""How quickly the data tools load a table, beside loops over the SDK that people write. Prints a table.

    python -m bench.data_tools [--entities 200000] [--sdk-entities 5000] [--rounds 3]
    python -m bench.data_tools --profile     # where the SDK's own batches spend the client's time
    python -m bench.data_tools --memory 100000,1000000    # the memory of the import, by the number of entities
    python -m bench.data_tools --streamed 10000000        # the same for small entities through standard input

    import          `tablestone import` of JSON lines, one process, from the start of the process to its end
    sdk batches     submit_transaction of 100 entities each, made by hand, one after the other
    sdk entities    create_entity for each entity: the plainest loop

All load entities of 1 KiB into a fresh table of one `tablestone serve` (`pip install .` comes first).
The CPU of the client and of the server is printed too: on a shared machine it says more than the clock.
"""

import argparse
import cProfile
import json
import os
import pstats
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from azure.data.tables import TableClient, TableServiceClient

from bench import paths, processes, servers

PARTITION_ENTITIES: Final = 10_000
WANTED_PER_SECOND: Final = 15_000
TEXT: Final = "x" * 700


class Loaded(NamedTuple):
    """One load: entities, seconds, and seconds of CPU of the client and of the server."""

    entities: int
    seconds: float
    client_cpu: float
    server_cpu: float


def entity(
    number: int, partition_entities: int = PARTITION_ENTITIES, text: str = TEXT
) -> dict[str, Any]:
    """JSON with ten properties, as an export writes it: about 1 KiB, of which 350 bytes are not the text."""
    return {
        "PartitionKey": f"p{number // partition_entities:06}",
        "RowKey": f"{number:09}",
        "Station": "JFK",
        "Name": "John F. Kennedy International",
        "Count": number,
        "Big@odata.type": "Edm.Int64",
        "Big": str(number * 10**9),
        "Temperature": number / 7 + 0.1,
        "Wind": 10.357,
        "Checked": number % 2 == 0,
        "When@odata.type": "Edm.DateTime",
        "When": "2013-01-01T00:00:00.1234567Z",
        "Id@odata.type": "Edm.Guid",
        "Id": "c9da6455-213d-42c9-9a79-3e9149a57833",
        "Text": text,
    }


def sdk_entities(count: int) -> Iterator[dict[str, Any]]:
    """The same as a program has them."""
    for number in range(count):
        raw = entity(number)
        yield {name: value for name, value in raw.items() if "@" not in name}


def lines(count: int, partition_entities: int = PARTITION_ENTITIES, text: str = TEXT) -> Path:
    """A file of entities as JSON lines."""
    path = paths.WORK / f"entities-{count}-{partition_entities}-{len(text)}.jsonl"
    if not path.exists():
        new = path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            for number in range(count):
                each = entity(number, partition_entities, text)
                file.write(json.dumps(each, separators=(",", ":")) + "\n")
        new.replace(path)
    return path


def by_import(connection_string: str, table: str, count: int) -> None:
    """The command, in its own process."""
    import_peak(connection_string, table, count)


def import_peak(
    connection_string: str, table: str, count: int, *, is_streamed: bool = False
) -> int:
    """Run the command in its own process; returns its peak of resident memory, in bytes."""
    source = "-" if is_streamed else str(lines(count))
    given = map(small_line, range(count)) if is_streamed else ()
    return peak_of("import", source, table, "--quiet", given=given, at=connection_string)


def peak_of(*arguments: str, given: Iterable[bytes] = (), at: str = "") -> int:
    """Run a data tool in its own process, with this input; returns its peak of resident memory, in bytes."""
    environment = os.environ | {
        "AZURE_STORAGE_CONNECTION_STRING": at,
        "TABLESTONE_JOURNALS": str(paths.WORK / "journals"),
    }
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("tablestone")), *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    with process.stdin as stream:
        stream.writelines(given)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, ("tablestone", *arguments))
    return used.ru_maxrss * 1024


def by_batches(connection_string: str, table: str, count: int) -> None:
    """Transactions of 100 made by hand."""
    with TableClient.from_connection_string(connection_string, table) as client:
        rows = sdk_entities(count)
        while batch := list(islice(rows, 100)):
            client.submit_transaction([("create", each) for each in batch])


def by_entities(connection_string: str, table: str, count: int) -> None:
    """One request for each entity."""
    with TableClient.from_connection_string(connection_string, table) as client:
        for each in sdk_entities(count):
            client.create_entity(each)


Load = Callable[[str, str, int], None]
LOADS: Final[dict[str, Load]] = {
    "import": by_import,
    "sdk batches": by_batches,
    "sdk entities": by_entities,
}


def cpu_of_this_process() -> float:
    """Seconds of CPU of this process and of those that it waited for."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def measured(load: Load, connection_string: str, tree: list[int], table: str, count: int) -> Loaded:
    """One load into a fresh table."""
    TableServiceClient.from_connection_string(connection_string).create_table(table)
    client, server, started = cpu_of_this_process(), processes.cpu_seconds(tree), time.monotonic()
    load(connection_string, table, count)
    return Loaded(
        count,
        time.monotonic() - started,
        cpu_of_this_process() - client,
        processes.cpu_seconds(tree) - server,
    )


def profile_batches(connection_string: str, count: int) -> None:
    """The CPU of the SDK's batches by function, with what each calls; waiting is not counted."""
    TableServiceClient.from_connection_string(connection_string).create_table("profiled")
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(by_batches, connection_string, "profiled", count)
    pstats.Stats(profiler).sort_stats("cumulative").print_stats("azure|requests|urllib3", 20)


def small_line(number: int) -> bytes:
    """A small entity: with many of these, what is kept for each row shows soonest."""
    partition = number // PARTITION_ENTITIES
    return b'{"PartitionKey":"p%06d","RowKey":"%09d","n":%d}\n' % (partition, number, number)


def print_memory(connection_string: str, counts: list[int], *, is_streamed: bool) -> None:
    """The import's peak of resident memory and its speed, for files or streams with these numbers of entities."""
    service = TableServiceClient.from_connection_string(connection_string)
    print("entities    peak MiB  entities/s")
    for count in counts:
        if not is_streamed:
            lines(count)
        service.create_table(f"memory{count}")
        started = time.monotonic()
        table = f"memory{count}"
        peak = import_peak(connection_string, table, count, is_streamed=is_streamed)
        seconds = time.monotonic() - started
        print(f"{count:>10,}  {peak / 2**20:>8,.0f}  {count / seconds:>10,.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Loading entities of 1 KiB, with the data tools and by hand."
    )
    parser.add_argument("--entities", type=int, default=200_000, help="of the import")
    parser.add_argument("--sdk-entities", type=int, default=5_000, help="of each loop over the SDK")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--profile", action="store_true", help="only a profile of the SDK's batches"
    )
    parser.add_argument(
        "--memory", metavar="N,N", help="only the memory of the import, for these numbers"
    )
    parser.add_argument(
        "--streamed", metavar="N,N", help="the same for small entities through standard input"
    )
    options = parser.parse_args()
    paths.WORK.mkdir(exist_ok=True)
    data = paths.WORK / "data-tools"
    server = servers.start(servers.TABLESTONE, data)
    connection_string = server.connection_string
    try:
        if options.profile:
            profile_batches(connection_string, options.sdk_entities)
        elif options.memory or options.streamed:
            counts = [int(count) for count in (options.memory or options.streamed).split(",")]
            print_memory(connection_string, counts, is_streamed=not options.memory)
        else:
            print_loads(server, connection_string, options)
    finally:
        server.stop()
        shutil.rmtree(data)


def print_loads(
    server: servers.Server, connection_string: str, options: argparse.Namespace
) -> None:
    """Print some rounds of every load."""
    lines(options.entities)
    print("load          round  entities/s  client µs of CPU each  server µs of CPU each")
    for number in range(1, options.rounds + 1):
        for name, load in LOADS.items():
            count = options.entities if name == "import" else options.sdk_entities
            table = f"{name.replace(' ', '')}{number}"
            found = measured(load, connection_string, server.tree(), table, count)
            print(
                f"{name:<12}  {number:>5}  {count / found.seconds:>10,.0f}  "
                f"{found.client_cpu / count * 1e6:>21,.0f}  {found.server_cpu / count * 1e6:>21,.0f}",
                flush=True,
            )
    print(f"wanted of import: {WANTED_PER_SECOND:,} entities/s")


if __name__ == "__main__":
    main()
