"""`python -m bench.idle_connections`: the memory of 10,000 connections, without sockets, before and after a request."""

import asyncio
import tracemalloc

from bench.floor import Constant
from bench.in_process import address, request
from bench.steps import ask, connections

SERVERS, EACH = 10, 1_000
"""More connections would reach the limit of one server."""
CONNECTIONS = SERVERS * EACH


async def main() -> None:
    read = request("GET", address(1))
    (first,) = connections(Constant(), 1)
    await ask(first, read)  # what is made once
    tracemalloc.start()
    made = [each for _ in range(SERVERS) for each in connections(Constant(), EACH)]
    print(f"{tracemalloc.get_traced_memory()[0] / CONNECTIONS:,.0f} bytes each when it is made")
    for connection in made:
        await ask(connection, read)
    print(f"{tracemalloc.get_traced_memory()[0] / CONNECTIONS:,.0f} bytes after a request")


if __name__ == "__main__":
    asyncio.run(main())
