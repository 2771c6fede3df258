"""The cost of a page newest first beside one in order, in this process: `python -m bench.newest_first [--turns 30]`.

Prints the least time for an entity, in memory and in SQLite; the two orders take turns.
"""

import argparse
import asyncio
import itertools
import tempfile
import time
from typing import Final

from bench.options import how_many
from tablestone.clock import monotonic_seconds
from tablestone.engines.registry import open_engine
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import members
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    EntitiesPage,
    EntityGroupTransaction,
    InsertEntity,
    QueryEntities,
)
from tablestone.query.filter_parser import parse_filter
from tablestone.tables.account_incarnation import Named
from tablestone.tables.service import TableService

OWNER: Final = Named("account")
PARTITIONS: Final = 4
ENTITIES: Final = 5000
"""Of each partition, with 250 characters."""
PAGES: Final = 3
QUERIES: Final[dict[str, tuple[str | None, int]]] = {
    "pages of 1000": (None, 1000),
    "pages of 10": (None, 10),
    "a partition": ("PartitionKey eq 'p1'", 1000),
    "a filter": ("n eq 5", 1000),
    "a filter in a partition": ("PartitionKey eq 'p2' and n lt 3", 1000),
}


async def filled(url: str) -> TableService:
    ids, ticks = itertools.count(1), itertools.count(638_000_000_000_000_000)
    engine = open_engine(url, lambda: next(ticks))
    service = TableService(
        engine, lambda: next(ticks), monotonic_seconds, lambda: next(ids).to_bytes(8, "big")
    )
    await service.catalog.create(OWNER, "Readings")
    text = EdmValue(EdmType.STRING, "x" * 250)
    for partition in (f"p{number}" for number in range(PARTITIONS)):
        for first in range(0, ENTITIES, 100):
            writes = [
                InsertEntity(
                    "Readings",
                    Entity(
                        EntityKey(partition, f"{number:06}"),
                        members({"n": EdmValue(EdmType.INT32, number % 97), "s": text}),
                    ),
                )
                for number in range(first, first + 100)
            ]
            await service.execute(OWNER, EntityGroupTransaction("Readings", partition, writes))
    return service


async def seconds_an_entity(
    service: TableService, text: str | None, top: int, *, reverse: bool
) -> float:
    """The time of a few pages, for each entity in them."""
    tree = None if text is None else parse_filter(text)
    began, count, token = time.perf_counter(), 0, None
    for _ in range(PAGES):
        asked = QueryEntities("Readings", tree, top, None, token, reverse=reverse)
        page = await service.execute(OWNER, asked)
        assert isinstance(page, EntitiesPage)
        count, token = count + len(page.stored), page.token
        if token is None:
            break
    return (time.perf_counter() - began) / count


async def bench(url: str, turns: int) -> None:
    service = await filled(url)
    for name, (text, top) in QUERIES.items():
        found: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(turns):
            for reverse, seconds in found.items():
                seconds.append(await seconds_an_entity(service, text, top, reverse=reverse))
        forwards, backwards = map(min, found.values())
        print(
            f"{url.partition(':')[0]:<8}{name:<25}{forwards * 1e6:>9.2f} µs in order"
            f"{backwards * 1e6:>9.2f} newest first, {backwards / forwards:.2f} times",
            flush=True,
        )
    await service.catalog.engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=how_many, default=30, help="default: %(default)s")
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as directory:
        for url in ("memory:", f"sqlite:{directory}/data"):
            asyncio.run(bench(url, turns))


if __name__ == "__main__":
    main()
