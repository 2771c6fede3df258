"""A workload for the tests of insight: a hot partition and a query that scans, over connections to all workers."""

from __future__ import annotations

from typing import Final

from cli.worker_processes import connections
from server_process import ServerProcess

SECRET_VALUE: Final = "31415"
"""A value of a property and of a filter."""


def work(server: ServerProcess) -> None:
    """28 reads and 33 writes of 3 partitions with 10 entities each, and a conflict."""
    with connections(server, 4) as opened:
        opened[0].send("POST", "/Tables", b'{"TableName":"Orders"}', expected=201)
        for number in range(30):
            body = b'{"PartitionKey":"customer%d","RowKey":"row-%d","Price":%d}' % (
                *(1 + number % 3, number),
                int(SECRET_VALUE) + 1 if number == 0 else number,
            )
            opened[number % 4].send("POST", "/Orders", body, expected=201)
            if number == 0:
                opened[1].send("POST", "/Orders", body, expected=409)
        for number in range(20):
            key = f"/Orders(PartitionKey='customer1',RowKey='row-{number % 10 * 3}')"
            opened[number % 4].send("GET", key, expected=200)
        for number in range(4):
            key = f"/Orders(PartitionKey='customer2',RowKey='row-{1 + number * 3}')"
            opened[number].send("GET", key, expected=200)
        opened[0].send("GET", "/Orders(PartitionKey='customer2',RowKey='row-none')", expected=404)
        opened[0].send("GET", "/MadeUp(PartitionKey='customer2',RowKey='row-none')", expected=404)
        for each in opened[:3]:
            each.send("GET", f"/Orders()?$filter=Price%20gt%20{SECRET_VALUE}", expected=200)
        body = b'{"PartitionKey":"passing","RowKey":"row-1"}'
        opened[1].send("POST", "/Orders", body, expected=201)
        key = "/Orders(PartitionKey='passing',RowKey='row-1')"
        opened[2].send("MERGE", key, b'{"a":1}', expected=204, headers={"If-Match": "*"})
        opened[3].send("DELETE", key, expected=204, headers={"If-Match": "*"})
