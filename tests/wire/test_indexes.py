"""The list of a table's indexes: `GET /TABLE?comp=indexes` (docs/protocol/indexes.md)."""

import json
import re
from collections.abc import Iterator

import pytest

from cli.command_line import tablestone
from sas_signing import completed, query_of, signed
from server_process import start_server
from wire.test_changes import Client


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with two tables, of which Orders has indexes."""
    data = tmp_path_factory.mktemp("indexes") / "data"
    server = start_server(data, "--workers", "2")
    client = Client(server)
    for table in ("Orders", "Plain"):
        client.create(table)
        client.insert(table, "p", "r", customer="c")
    for options in (("customer",), ("RowKey", "--partition")):
        made = tablestone("index", "create", "Orders", *options, "--data", data)
        assert made.status == 0, made
    yield client
    assert server.stop() == 0, server.stderr


def test_the_list(client: Client) -> None:
    for _ in range(4):  # each of the workers
        status, headers, body = client.send("GET", "/Orders?comp=indexes")
        assert (status, headers["content-type"]) == (200, "application/json")
        assert json.loads(body) == {
            "indexes": [
                {"property": "customer", "withinPartition": False, "state": "ready"},
                {"property": "RowKey", "withinPartition": True, "state": "ready"},
            ]
        }


@pytest.mark.parametrize(
    "target", ["/Plain", "/Absent", "/Tables", "/", "/Orders(PartitionKey='p',RowKey='r')"]
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_without_an_index_the_answer_is_that_of_the_service(
    client: Client, method: str, target: str
) -> None:
    def answer(comp: str) -> tuple[int, list[str], bytes]:
        status, headers, body = client.send(method, f"{target}?comp={comp}")
        return status, sorted(headers), re.sub(rb"(Id|Time):\S+", rb"\1", body)

    assert answer("indexes") == answer("nothing")


def test_another_method(client: Client) -> None:
    assert client.send("PUT", "/Orders?comp=indexes")[0] == 405


@pytest.mark.parametrize(
    "given",
    [
        {"ss": "t", "srt": "sco", "sp": "rwdlacu"},
        {"tn": "Orders", "sp": "raud"},
    ],
)
def test_a_signature_does_not_suffice(client: Client, given: dict[str, str]) -> None:
    server = client.server
    query = query_of(signed(server.account_name, server.account_key, completed(given)))
    refused = client.signed_by_sas(f"/Orders?comp=indexes&{query}")
    assert refused.status == 403
    assert "customer" not in refused.error
    assert client.signed_by_sas(f"/Plain?comp=indexes&{query}").status in (400, 403)
