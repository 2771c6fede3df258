"""The list of a table's indexes: `GET /TABLE?comp=indexes` (docs/protocol/indexes.md)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from sas_signing import completed, query_of, signed
from server_process import start_server
from tablestone.cli.main import main
from tablestone.model.operations import IndexFound
from tablestone.query.filter_parser import parse_filter
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import Connection, Scheme
from tablestone.tools.queries import planned
from wire.test_changes import Client


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("indexes") / "data"


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[Client]:
    """A server with two tables, of which Orders has indexes."""
    server = start_server(data, "--workers", "2", "--access-log", str(data.parent / "access.log"))
    client = Client(server)
    for table in ("Orders", "Plain"):
        client.create(table)
        client.insert(table, "p", "r", customer="c")
    for options in (("customer",), ("RowKey", "--partition")):
        assert main(["index", "create", "Orders", *options, "--data", str(data)]) == 0
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


def test_what_the_tools_know(client: Client) -> None:
    """A caller who may not ask knows nothing, and where there are none there may be some."""
    server = client.server
    account, key = server.account_name, server.account_key
    query = query_of(signed(account, key, completed({"tn": "Orders", "sp": "r"})))
    by_key = Connection(server.endpoint, account, Scheme.ACCOUNT_KEY, key)
    by_signature = Connection(server.endpoint, account, Scheme.SHARED_ACCESS_SIGNATURE, query)
    with TableEndpoint(by_key) as endpoint:
        found = endpoint.indexes("Orders")
        assert found == [
            IndexFound("customer", False, "ready"),
            IndexFound("RowKey", True, "ready"),
        ]
        assert endpoint.indexes("Plain") == []
    with TableEndpoint(by_signature) as endpoint:
        assert endpoint.indexes("Orders") is None


@pytest.mark.parametrize(
    ("content", "found"),
    [
        # It took the question for a query, as Azurite does: it has none.
        (b'{"value":[{"PartitionKey":"p","RowKey":"r","property":"x"}]}', None),
        (b'{"indexes":[{"name":"x"}]}', None),
        (b'{"indexes":[5]}', None),
        (b"[]", None),
        (b"<feed/>", None),
    ],
)
def test_answers_of_other_services(
    content: bytes, found: list[IndexFound] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableEndpoint, "_send", lambda *_: (None, content))
    with TableEndpoint(
        Connection("http://127.0.0.1:9/x", "x", Scheme.ACCOUNT_KEY, "a2V5")
    ) as other:
        assert other.indexes("Orders") == found


@pytest.mark.parametrize("host", ["x.table.core.windows.net", "x.table.cosmos.azure.com"])
def test_azure_is_not_asked(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(TableEndpoint, "_send")
    with TableEndpoint(Connection(f"https://{host}", "x", Scheme.ACCOUNT_KEY, "a2V5")) as azure:
        assert azure.indexes("Orders") is None


PLANS = [
    ("customer eq 'c'", "index"),
    ("customer eq 'c' and amount gt 1", "index"),
    ("RowKey ge 'a' and amount eq 1", "table"),
    ("PartitionKey eq 'p' and not (RowKey eq 'q') and customer eq 'c'", "index"),
    ("customer ne 'c'", "table"),
    ("PartitionKey eq 'p'", "partition"),
]


@pytest.mark.parametrize(("text", "plan"), PLANS)
def test_the_plan_that_the_tools_show_is_that_of_the_server(
    client: Client, data: Path, text: str, plan: str
) -> None:
    indexes = [IndexFound("customer", False, "ready"), IndexFound("RowKey", True, "ready")]
    assert planned(parse_filter(text), indexes)[0].kind.value == plan
    client.send(
        "GET",
        f"/Orders()?$filter={quote(text)}",
        x_ms_client_request_id=f"query{PLANS.index((text, plan))}",
    )
    lines = (data.parent / "access.log").read_text().splitlines()
    (line,) = [each for each in lines if f"query{PLANS.index((text, plan))} " in each]
    assert line.endswith(f"plan={plan}")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD"])
def test_another_method_is_answered_as_for_any_other_comp(client: Client, method: str) -> None:
    answers = [client.send(method, f"/Orders?comp={each}")[0] for each in ("indexes", "indexez")]
    assert answers == [400, 400]


@pytest.mark.parametrize(
    "given", [{"ss": "t", "srt": "sco", "sp": "rwdlacu"}, {"tn": "Orders", "sp": "raud"}]
)
def test_a_signature_does_not_suffice(client: Client, given: dict[str, str]) -> None:
    server = client.server
    query = query_of(signed(server.account_name, server.account_key, completed(given)))
    refused = client.signed_by_sas(f"/Orders?comp=indexes&{query}")
    assert refused.status == 403
    assert "customer" not in refused.error
    assert client.signed_by_sas(f"/Plain?comp=indexes&{query}").status in (400, 403)
