"""A workload for the tests of insight: a hot partition and a query that scans, over connections to all workers."""

from typing import Final

from cli.worker_processes import connections
from server_process import ServerProcess

REQUESTS: Final = 28 + 33 + 4
"""Reads, writes, and refused requests."""
LARGE: Final = 700_000
"""The length of a property that is too long."""
SECRET_VALUE: Final = "31415"
"""A value that entities and filters have."""


def work(server: ServerProcess) -> None:
    """28 reads, 33 writes of 3 partitions with 10 entities each, and refused requests, a conflict among them."""
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
        wrong = (
            b'{"PartitionKey":"customer1","RowKey":"x","Price@odata.type":"Edm.Int32","Price":"zz"}'
        )
        opened[0].send("POST", "/Orders", wrong, expected=400)
        large = b'{"PartitionKey":"customer1","RowKey":"y","Text":"%s"}' % (b"x" * LARGE)
        opened[2].send("POST", "/orders", large, expected=400)
        group = (
            b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n"
            b"--c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
            b"POST http://localhost/%s/Orders HTTP/1.1\r\nAccept: application/json\r\n"
            b"Content-Type: application/json\r\n\r\n%s\r\n"
            b"--c--\r\n--b--\r\n" % (server.account_name.encode(), wrong)
        )
        kind = "multipart/mixed; boundary=b"
        opened[1].send("POST", "/$batch", group, expected=202, content_type=kind)
        changed = {"x-ms-date": "Sun, 22 Nov 2026 00:00:00 GMT"}
        opened[3].send("POST", "/Orders", wrong, expected=403, headers=changed)
        body = b'{"PartitionKey":"passing","RowKey":"row-1"}'
        opened[1].send("POST", "/Orders", body, expected=201)
        key = "/Orders(PartitionKey='passing',RowKey='row-1')"
        opened[2].send("MERGE", key, b'{"a":1}', expected=204, headers={"If-Match": "*"})
        opened[3].send("DELETE", key, expected=204, headers={"If-Match": "*"})
