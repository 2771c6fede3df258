"""Point reads from asyncio by one driver, in its own process. Imports the driver and nothing else of the project.

`bench.cassandra_other_drivers` runs this file with the Python of the driver's own virtual environment, because two of
the drivers have packages of the same name. Reads a job from standard input, and prints what it measured.
"""

# ruff: noqa: PLC0415 - only one of the drivers is installed
import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

Read = Callable[[bytes, bytes], Awaitable[Any]]
UNDER_WAY = 16
WARMUP_SECONDS = 0.5


async def by_acsylla(job: dict[str, Any]) -> Read:
    import acsylla  # type: ignore[import-not-found, unused-ignore]

    cluster = acsylla.create_cluster(
        job["hosts"], port=job["port"], consistency=acsylla.Consistency.SERIAL
    )
    session = await cluster.create_session(keyspace=job["keyspace"])
    prepared = await session.create_prepared(job["text"])

    async def read(partition: bytes, row: bytes) -> Any:
        statement = prepared.bind()
        statement.bind_list([partition, row])
        return (await session.execute(statement)).first()

    return read


async def by_callbacks(job: dict[str, Any]) -> Read:
    """With cassandra-driver, or its fork scylla-driver, whose futures are not asyncio's."""
    from cassandra import ConsistencyLevel
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import RoundRobinPolicy, TokenAwarePolicy

    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()),
        consistency_level=ConsistencyLevel.SERIAL,
    )
    cluster = Cluster(
        job["hosts"], port=job["port"], execution_profiles={EXEC_PROFILE_DEFAULT: profile}
    )
    session = cluster.connect(job["keyspace"])
    prepared = session.prepare(job["text"])
    prepared.consistency_level = ConsistencyLevel.SERIAL
    loop = asyncio.get_running_loop()

    async def read(partition: bytes, row: bytes) -> Any:
        future: asyncio.Future[Any] = loop.create_future()
        session.execute_async(prepared, (partition, row)).add_callbacks(
            lambda rows: loop.call_soon_threadsafe(future.set_result, rows),
            lambda error: loop.call_soon_threadsafe(future.set_exception, error),
        )
        return (await future)[0]

    return read


async def by_engine(job: dict[str, Any]) -> Read:
    """With this project's engine, which uses cassandra-driver."""
    from tablestone.clock import system_clock
    from tablestone.engines.cassandra import opening
    from tablestone.engines.cassandra.cluster_url import parse_address
    from tablestone.engines.contract import Key

    engine = opening.open_cassandra(parse_address(job["url"]), system_clock)

    async def read(partition: bytes, row: bytes) -> Any:
        return await engine.get(Key(partition, row))

    return read


WAYS = {
    "engine": by_engine,
    "cassandra-driver": by_callbacks,
    "scylla-driver": by_callbacks,
    "acsylla": by_acsylla,
}


async def measure(job: dict[str, Any]) -> dict[str, float]:
    read = await WAYS[job["way"]](job)
    keys = [(bytes.fromhex(partition), bytes.fromhex(row)) for partition, row in job["keys"]]
    count = 0
    is_over = False

    async def work() -> None:
        nonlocal count
        while not is_over:
            assert await read(*random.choice(keys)) is not None
            count += 1

    workers = [asyncio.ensure_future(work()) for _ in range(UNDER_WAY)]
    await asyncio.sleep(WARMUP_SECONDS)
    first, begun, used = count, time.monotonic(), time.process_time()
    await asyncio.sleep(job["seconds"])
    done, elapsed, used = count - first, time.monotonic() - begun, time.process_time() - used
    is_over = True
    await asyncio.gather(*workers)
    return {"per_second": done / elapsed, "cpu": 1e6 * used / max(done, 1)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(json.loads(sys.stdin.read())))), flush=True)
    # Python would wait for the drivers' threads.
    sys.exit(0)
