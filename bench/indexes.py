"""What an index gives to queries, and what it costs an insert: `python -m bench.indexes [--entities 200000]`.

Tablestone and Azurite get the same entities of 1 KiB: 20 of each customer, all over the table; 20,000 in one partition;
and as many in a partition each. The load generator asks each query over 16 connections. Then two Tablestone servers
take inserts in turn, one of which has an index on their Name (977 names).

Exits with 1 if an answer has other entities, or a figure does not reach its floor.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from bench import generator, machine, paths, servers
from bench.data_tools import TEXT, peak_of
from bench.generator import Job, Measured
from bench.options import how_many
from tablestone.clock import system_clock
from tablestone.engines.registry import open_engine
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog
from tablestone.tables.index_building import IndexWork
from tablestone.tables.storage_keys import fresh_table_id

TABLE: Final = "Bench"
OF_A_CUSTOMER: Final = 20
IN_A_PARTITION: Final = 20_000
TIMES_AZURITE: Final = 50
TIMES_PARTITION_READ_MAX: Final = 3.0
INSERT_COST_MAX: Final = 0.2
SECONDS: Final = 1.5
"""Of one question, and of a round of inserts."""
TURNS: Final = 3
"""In which Azurite and the index are asked, one after the other: the figures are medians."""


class Question(NamedTuple):
    """A query that an index serves, the number of matches, and the table that it is of."""

    title: str
    filter: str
    matches: int
    table: str = TABLE


def questions(entities: int) -> list[Question]:
    customer = f"c{entities // OF_A_CUSTOMER // 2:06}"
    return [
        Question("20 of one customer", f"customer eq '{customer}'", OF_A_CUSTOMER),
        Question("no match in a partition", "PartitionKey eq 'one' and amount ge 100000000", 0),
        Question(
            "RowKey over partitions", "RowKey ge '000005000' and RowKey lt '000005020'", 20, "Apart"
        ),
        Question("a partition of 20", "PartitionKey eq 'twenty'", OF_A_CUSTOMER),
    ]


def entity(partition: str, number: int, customer: str) -> dict[str, Any]:
    row, amount = f"{number:09}", number * 7919 % 1_000_003
    return {
        "PartitionKey": partition, "RowKey": row, "customer": customer, "amount": amount, "Text": TEXT,
    }  # fmt: skip


def written(entities: int) -> dict[str, Path]:
    """The files of the entities, by table."""
    customers = entities // OF_A_CUSTOMER
    tables = {
        TABLE: [
            *(entity(f"p{n % 1999:05}", n, f"c{n % customers:06}") for n in range(entities)),
            *(entity("one", n, "of one partition") for n in range(IN_A_PARTITION)),
            *(entity("twenty", n, "of twenty") for n in range(OF_A_CUSTOMER)),
        ],
        "Apart": [entity(f"p{n:09}", n, "apart") for n in range(IN_A_PARTITION)],
    }
    files: dict[str, Path] = {}
    for table, those in tables.items():
        files[table] = paths.WORK / f"{table}.jsonl"
        ordered = sorted(those, key=lambda each: (each["PartitionKey"], each["RowKey"]))
        files[table].write_text("".join(json.dumps(each) + "\n" for each in ordered))
    return files


def make_index(data: Path, table: str, name: str) -> float:
    """Make an index beside the server; returns the seconds."""

    async def making() -> None:
        engine = open_engine(f"sqlite:{data}", system_clock, shared=True)
        catalog = Catalog(engine, system_clock, fresh_table_id)
        await IndexWork(catalog, Named(servers.ACCOUNT), table, name).create()
        await engine.close()

    started = time.monotonic()
    asyncio.run(making())
    return time.monotonic() - started


def asked(server: servers.Server, entities: int) -> dict[str, float]:
    """By questions, how many answers a second; `WrongAnswerError` for an answer with other entities."""
    return {
        question.title: generator.run(
            server,
            Job(
                question.table,
                {"page": 1},
                query=f"$filter={quote(question.filter)}",
                warmup=0.5,
                seconds=SECONDS,
                expect_entities=question.matches,
            ),
        ).per_second
        for question in questions(entities)
    }


def inserts(stack: ExitStack, rounds: int) -> Iterator[str]:
    """Print what an index costs an insert."""
    both = {}
    for name in ("plain", "indexed"):
        both[name] = servers.start_tablestone(name, paths.DATA / name, "")
        stack.callback(both[name].stop)
    measured: dict[str, list[Measured]] = {name: [] for name in both}
    for number in range(rounds + 1):
        table = f"Inserts{number}"
        for name, server in list(both.items())[:: 1 if number % 2 else -1]:
            generator.generate(server, Job(table, {"create_table": 1}, connections=1, requests=1))
            if name == "indexed":
                make_index(paths.DATA / name, table, "Name")
            job = Job(table, {"insert": 1}, unique=f"{number}", warmup=0.5, seconds=SECONDS)
            found = generator.run(server, job)
            if number:
                measured[name].append(found)
    rate = {name: statistics.median(m.per_second for m in of) for name, of in measured.items()}
    cpu = {name: statistics.median(m.server_cpu for m in of) for name, of in measured.items()}
    both_rates = zip(measured["indexed"], measured["plain"], strict=True)
    cost = 1 - statistics.median(one.per_second / other.per_second for one, other in both_rates)
    print(
        f"inserts: {rate['plain']:,.0f}/s and {cpu['plain']:.0f} µs of CPU; with an index {rate['indexed']:,.0f}/s and "
        f"{cpu['indexed']:.0f} µs: {cost:.0%} fewer"
    )
    if cost > INSERT_COST_MAX:
        yield f"an index costs an insert {cost:.0%}"


def bench(entities: int, rounds: int) -> Iterator[str]:
    """Print the figures; yields what is wrong."""
    shutil.rmtree(paths.DATA, ignore_errors=True)
    files = written(entities)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, paths.DATA)
        data = paths.DATA / "queries"
        tablestone = servers.start_tablestone("tablestone", data, "")
        stack.callback(tablestone.stop)
        azurite = servers.start(servers.AZURITE, paths.DATA / servers.AZURITE)
        stack.callback(azurite.stop)
        for server in (tablestone, azurite):
            for table, file in files.items():
                peak_of("import", str(file), table, "--quiet", at=server.connection_string)
        turns = {"scan": [asked(tablestone, entities)], "azurite": [], "index": []}
        for table, indexed in ((TABLE, "customer"), (TABLE, "amount"), ("Apart", "RowKey")):
            seconds = make_index(data, table, indexed)
            print(f"the index on {indexed} of {table} was made in {seconds:.1f} s", flush=True)
        for _ in range(TURNS):
            turns["azurite"].append(asked(azurite, entities))
            turns["index"].append(asked(tablestone, entities))
        azurite.stop()
        found = {
            name: {title: statistics.median(each[title] for each in of) for title in of[0]}
            for name, of in turns.items()
        }
        print(f"{'answers a second':<24} {'azurite':>10} {'scan':>10} {'index':>10}  times azurite")
        for question in questions(entities):
            of = {name: rates[question.title] for name, rates in found.items()}
            times = of["index"] / of["azurite"]
            print(
                f"{question.title:<24} {of['azurite']:>10,.1f} {of['scan']:>10,.1f} {of['index']:>10,.1f}  {times:,.0f}"
            )
        yield from _too_slow(found)
        yield from inserts(stack, rounds)


def _too_slow(found: dict[str, dict[str, float]]) -> Iterator[str]:
    for title in ("20 of one customer", "no match in a partition"):
        if found["index"][title] < TIMES_AZURITE * found["azurite"][title]:
            yield f"{title}: less than {TIMES_AZURITE} times Azurite"
    by_index, read = (found["index"][each] for each in ("20 of one customer", "a partition of 20"))
    if TIMES_PARTITION_READ_MAX * by_index < read:
        yield f"20 of one customer take {read / by_index:.1f} times a partition of 20"
    if found["index"]["RowKey over partitions"] < found["scan"]["RowKey over partitions"]:
        yield "RowKey over partitions is slower than its scan"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entities", type=how_many, default=200_000, help="default: %(default)s")
    parser.add_argument(
        "--rounds", type=how_many, default=5, help="of inserts; default: %(default)s"
    )
    options = parser.parse_args()
    paths.WORK.mkdir(exist_ok=True)
    for name, version in machine.versions([servers.TABLESTONE, servers.AZURITE]).items():
        print(f"{name} {version}")
    wrong = list(bench(options.entities, options.rounds))
    for sentence in wrong:
        print(f"wrong: {sentence}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
