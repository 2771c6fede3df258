"""Where data is in a cluster: the share of each node, the nodes of a partition, and the rows of every partition.

The nodes' own figures are estimates from their disks, renewed every few minutes. `count_partitions` reads everything
and is exact.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from cassandra import ConsistencyLevel
from cassandra.cluster import ResultSet
from cassandra.query import SimpleStatement

from tablestone.clock import monotonic_seconds
from tablestone.engines.cassandra.connection import Connection
from tablestone.engines.cassandra.layout import ROWS
from tablestone.engines.cassandra.session import PASSING, Row

PAGE_SECONDS_MAX: Final = 15.0
"""How long a page may take: longer than the nodes' own time-out for a range, 10 s, whose error says more."""
TRIES_SECONDS_MAX: Final = 60.0
"""How long to ask for a page again, each time with fewer rows."""
PAGE_SECONDS_ADVISED: Final = 1.0
"""After a slower page, ask for a smaller one."""


def pages(
    connection: Connection, text: str, parameters: Sequence[Any] = (), *, rows_max: int
) -> Iterator[Sequence[Row]]:
    """Read rows in pages, at a quorum. Ask for a late page again with fewer rows; `EngineBusy` if that fails too."""
    rows = next_rows = rows_max
    state: bytes | None = None

    def ask() -> ResultSet:
        nonlocal rows, next_rows
        rows, next_rows = next_rows, max(next_rows // 10, 1)
        statement = SimpleStatement(
            text, consistency_level=ConsistencyLevel.QUORUM, fetch_size=rows
        )
        return connection.session.execute(
            statement, parameters, timeout=PAGE_SECONDS_MAX, paging_state=state
        )

    while True:
        asked = monotonic_seconds()
        page = connection.waited_for(ask, TRIES_SECONDS_MAX)
        is_slow = monotonic_seconds() - asked > PAGE_SECONDS_ADVISED
        next_rows = max(rows // 2, 1) if is_slow else min(rows * 2, rows_max)
        state = page.paging_state
        yield page.current_rows
        if state is None:
            return


TOKENS: Final = 1 << 64
"""The length of the ring."""
KEYS_PER_PAGE: Final = 1000
SAMPLE_ROWS: Final = 100
SAMPLE_ROWS_AT_ONCE: Final = 10
"""Ten of the longest values are 10 MiB."""
_MEBIBYTE: Final = 1 << 20


@dataclass(slots=True)
class NodeUse:
    """A node and its part of the keyspace. None: the node does not say."""

    address: str
    datacenter: str
    rack: str
    version: str
    is_up: bool
    share: float
    """The part of all partitions with a copy here, from 0 to 1, by the ring."""
    size: int | None = None
    """Bytes on disk, by the node's figures in whole MiB."""
    partitions: int | None = None
    """The node's estimate of the partitions with their first copy here."""
    largest: int | None = None
    """Bytes of the largest partition on disk, by the node's figures in whole MiB."""


def node_uses(connection: Connection) -> list[NodeUse]:
    """All nodes of all datacenters, by address. Blocks: asks every node a few questions."""
    shares = _shares(connection)
    found = []
    nodes = connection.every_node
    for host in nodes.all():
        use = NodeUse(
            str(host.endpoint),
            str(host.datacenter),
            str(host.rack),
            str(host.release_version),
            nodes.is_up(host),
            shares.get(str(host.endpoint), 0.0),
        )
        if use.is_up:
            _ask(connection, host, use)
        found.append(use)
    return found


def nodes_of(connection: Connection, partition: bytes) -> dict[str, list[str]]:
    """The sorted addresses of the nodes with a copy of a partition, by datacenter."""
    found: dict[str, list[str]] = {}
    hosts = connection.cluster.metadata.get_replicas(connection.keyspace, partition)
    for host in sorted(hosts, key=lambda host: (str(host.datacenter), str(host.endpoint))):
        found.setdefault(str(host.datacenter), []).append(str(host.endpoint))
    return found


def count_partitions(
    connection: Connection, tell: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[bytes, int]]:
    """Every partition with rows, and their number, in the order of the ring. The nodes read all rows for it.

    Calls `tell` after each page with its number of rows. The keys are counted here, because a node that counts has one
    time-out for a whole partition, however large.
    """

    def keys() -> Iterator[Row]:
        for page in pages(connection, f"SELECT partition, row FROM {ROWS}", rows_max=KEYS_PER_PAGE):
            yield from page
            tell(len(page))

    for partition, found in groupby(keys(), key=lambda key: key[0]):
        # Static columns without rows are one key without a row.
        if rows := sum(row is not None for _, row in found):
            yield partition, rows


def mean_row_size(connection: Connection, partition: bytes) -> int:
    """The mean length of a partition's first values, in bytes."""
    sizes = [
        len(value)
        for page in pages(
            connection,
            f"SELECT value FROM {ROWS} WHERE partition = %s LIMIT {SAMPLE_ROWS}",
            (partition,),
            rows_max=SAMPLE_ROWS_AT_ONCE,
        )
        for (value,) in page
        if value is not None
    ]
    return sum(sizes) // len(sizes) if sizes else 0


def _shares(connection: Connection) -> dict[str, float]:
    """The part of the ring with a copy on each node."""
    token_map = connection.cluster.metadata.token_map
    shares: dict[str, float] = {}
    if token_map is None:
        return shares
    ring = [token.value for token in token_map.ring]
    for before, token in zip([ring[-1] - TOKENS, *ring], token_map.ring, strict=False):
        for host in token_map.get_replicas(connection.keyspace, token):
            address = str(host.endpoint)
            shares[address] = shares.get(address, 0.0) + (token.value - before) / TOKENS
    return shares


def _ask(connection: Connection, host: Any, use: NodeUse) -> None:
    place = "WHERE keyspace_name = %s AND table_name = %s"
    keys = (connection.keyspace, ROWS)
    ask = connection.every_node.ask
    try:
        estimates = ask(host, f"SELECT partitions_count FROM system.size_estimates {place}", keys)
        [(size,)] = ask(host, f"SELECT mebibytes FROM system_views.disk_usage {place}", keys)
        [(largest,)] = ask(
            host, f"SELECT mebibytes FROM system_views.max_partition_size {place}", keys
        )
    except (*PASSING, ValueError):  # a node that goes now, or a user who may not read these
        return
    use.partitions = sum(partitions for (partitions,) in estimates)
    use.size, use.largest = size * _MEBIBYTE, largest * _MEBIBYTE
