"""The control API of a server: every operation as its OpenAPI document describes it, every refusal, and who may ask."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient
from openapi_spec_validator import validate

from controlled_process import ControlClient, Ready, served
from server_process import clean_environment
from tablestone.extras import pip_install
from tablestone.testing import SeedRefused, TableStorage
from tablestone.testing.control import Control
from tablestone.testing.control_schema import RULE
from tablestone.testing.fault_rules import Rule

ENTITY = {"PartitionKey": "p", "RowKey": "r", "total": 5}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    errors = tmp_path_factory.mktemp("control") / "errors"
    with served("--control", "0", errors=errors) as ready:
        yield ready


@pytest.fixture
def control(server: Ready) -> Iterator[ControlClient]:
    client = ControlClient(server.said["control"])
    yield client
    client.done("DELETE", "/faults")
    client.done("POST", "/clock/reset")
    client.done("POST", "/reset")


def test_the_document_is_openapi(control: ControlClient) -> None:
    validate(control.document)
    broken = json.loads(json.dumps(control.document))
    broken["paths"]["/faults"]["get"]["responses"] = 5
    with pytest.raises(Exception, match="5 is not of type 'object'"):
        validate(broken)


def test_a_rule_has_the_same_parts_over_http() -> None:
    assert [member.name for member in RULE] == list(Rule.__dataclass_fields__)


CALLS: list[tuple[str, str, Any]] = [
    ("GET", "/", None),
    ("GET", "/openapi.json", None),
    ("POST", "/accounts", {"name": "orders"}),
    ("POST", "/accounts", None),
    ("GET", "/accounts", None),
    ("POST", "/seed?account=orders", {"Orders": [ENTITY, {"PartitionKey": "p", "RowKey": "2"}]}),
    ("GET", "/dump?account=orders", None),
    ("POST", "/indexes", {"account": "orders", "table": "Orders", "property": "total"}),
    ("DELETE", "/indexes?account=orders&table=Orders&property=total", None),
    ("POST", "/reset", {"account": "orders", "table": "Orders"}),
    ("POST", "/reset", {"account": "orders"}),
    ("POST", "/reset", {}),
    ("POST", "/reset", None),
    ("POST", "/snapshots", None),
    ("GET", "/snapshots", None),
    ("GET", "/snapshots/1", None),
    ("POST", "/snapshots/1/restore", None),
    ("DELETE", "/snapshots/1", None),
    ("DELETE", "/accounts/orders", None),
    ("POST", "/faults", {"operation": "GetEntity", "nth": 3, "status": 503, "retry_after": 1}),
    ("POST", "/faults", {"latency": 0.5, "header": {"user-agent": "x"}, "probability": 0.5}),
    ("POST", "/faults", {"latency": {"long_tail": {"median": 0.01, "longest": 1}}}),
    ("POST", "/faults", {"rate": 5, "share": "account", "account": "orders"}),
    ("GET", "/faults", None),
    ("DELETE", "/faults/1", None),
    ("POST", "/faults/azure-like", {"seed": 7}),
    ("DELETE", "/faults?seed=3", None),
    ("PUT", "/secondary", {"seconds": 60}),
    ("PUT", "/secondary", {"seconds": None}),
    ("GET", "/faults", None),
    ("GET", "/clock", None),
    ("POST", "/clock/freeze", None),
    ("POST", "/clock/freeze", {"at": "2031-05-06T07:08:09Z"}),
    ("POST", "/clock/set", {"to": "2031-05-06T09:08:09.5+02:00"}),
    ("POST", "/clock/advance", {"hours": 2, "seconds": 0.5}),
    ("POST", "/clock/tick", {"rate": 60}),
    ("POST", "/clock/reset", None),
    ("GET", "/requests?since=0", None),
    ("POST", "/cost", {"since": 0, "scans": 0}),
]


def test_every_operation_answers_as_the_document_says(control: ControlClient) -> None:
    asked = set()
    for method, path, members in CALLS:
        answer = control.ask(method, path, members)
        assert answer.status < 400, (method, path, answer)
        asked.add((method, control.template(method, path.partition("?")[0])))
    assert asked == control.operations()


@pytest.mark.parametrize(
    ("method", "path", "members", "status", "sentence"),
    [
        (
            "GET",
            "/nothing",
            None,
            404,
            "There is nothing at /nothing: /openapi.json lists the API.",
        ),
        ("PUT", "/clock", {}, 405, "/clock takes GET, not PUT."),
        ("DELETE", "/faults/99", None, 404, "There is no rule '99'."),
        ("POST", "/snapshots/99/restore", None, 404, "There is no snapshot '99'."),
        ("DELETE", "/accounts/nobody", None, 404, "There is no account 'nobody' that was created"),
        ("POST", "/accounts", {"name": "No"}, 400, "'No' is not an account name"),
        (
            "POST",
            "/accounts",
            {"nam": "a"},
            400,
            "There is no member 'nam' here; the members are name.",
        ),
        ("POST", "/clock/reset", {"to": 1}, 400, "There is no member 'to' here; there are none."),
        ("POST", "/reset", {"account": "nobody"}, 400, "There is no account 'nobody' in this"),
        (
            "POST",
            "/reset",
            {"table": "Gone"},
            400,
            "The account devstoreaccount1 has no table Gone.",
        ),
        ("POST", "/reset", ["all"], 400, "The body is a JSON object."),
        ("POST", "/seed?account=nobody", {}, 400, "There is no account 'nobody' in this storage."),
        ("POST", "/seed?table=Orders", {}, 400, "the members are the tables: leave out table."),
        ("POST", "/seed", {"Orders": {}}, 400, "'Orders' is a list of entities, each an object."),
        (
            *("POST", "/seed", {"Orders": [ENTITY, {"RowKey": "r"}]}, 400),
            "entity 2 of Orders has no PartitionKey.",
        ),
        ("GET", "/dump?account=nobody", None, 400, "There is no account 'nobody' in this storage."),
        ("POST", "/faults", {}, 400, "A rule needs something to do: error, status, reset, latency"),
        ("POST", "/faults", {"operation": "Get"}, 400, "operation is one of CountTableExpiry, "),
        ("POST", "/faults", {"error": "Busy"}, 400, "error is one of "),
        ("POST", "/faults", {"nth": "3", "status": 503}, 400, "nth is a whole number."),
        ("POST", "/faults", {"conflict": 1}, 400, "conflict is true or false."),
        (
            "POST",
            "/faults",
            {"header": {"a": 1}, "status": 503},
            400,
            "header is an object of texts",
        ),
        (
            "POST",
            "/faults",
            {"latency": {"flat": {}}},
            400,
            "latency is seconds, or an object such",
        ),
        (
            "POST",
            "/faults",
            {"latency": {"fixed": {}}},
            400,
            "latency is seconds, or an object such",
        ),
        (
            *("POST", "/faults", {"error": "ServerBusy", "reset": "after"}, 400),
            "A rule does one thing: error and reset are 2.",
        ),
        ("POST", "/indexes", {"table": "T"}, 400, "property is missing: it is a text."),
        (
            *("POST", "/indexes", {"table": "Gone", "property": "p"}, 400),
            "The account devstoreaccount1 has no table Gone.",
        ),
        (
            *("POST", "/indexes", {"table": "Gone", "property": "Timestamp"}, 400),
            "An index on Timestamp is not possible: index another property, or RowKey.",
        ),
        ("PUT", "/secondary", {}, 400, "seconds is missing: it is a number of seconds, or null."),
        ("PUT", "/secondary", {"seconds": -1}, 400, "seconds is a number of seconds, or null."),
        ("POST", "/clock/set", {"to": "noon"}, 400, "to is a moment such as 2030-01-01T00:00:00Z."),
        ("POST", "/clock/set", {"to": "2030-01-01"}, 400, "to is a moment such as 2030-01-01T00"),
        ("POST", "/clock/advance", {"hours": -1}, 400, "A clock advances by a time that is not"),
        ("POST", "/clock/advance", {"days": 1e300}, 400, "A clock does not advance beyond"),
        ("POST", "/clock/tick", {"rate": -1}, 400, "A clock ticks at a rate from 0 to 1,000,000"),
        ("GET", "/requests?since=x", None, 400, "since is a whole number."),
        ("POST", "/cost", {}, 400, "Expect something: scans, requests, rows_read or read_ratio."),
    ],
)
def test_a_refusal_is_one_sentence_and_changes_nothing(
    control: ControlClient, method: str, path: str, members: Any, status: int, sentence: str
) -> None:
    before = control.done("GET", "/faults"), control.done("GET", "/dump")
    answer = control.ask(method, path, members)
    assert answer.status == status
    assert sentence in answer.value["error"]
    assert (control.done("GET", "/faults"), control.done("GET", "/dump")) == before


def test_an_index_serves_queries(control: ControlClient) -> None:
    account = control.done("POST", "/accounts")
    name = account["name"]
    control.done("POST", f"/seed?account={name}", {"Orders": [ENTITY]})
    where = {"account": name, "table": "Orders", "property": "total"}

    def plan() -> str:
        with TableServiceClient.from_connection_string(account["connection_string"]) as service:
            assert list(service.get_table_client("Orders").query_entities("total eq 5"))
        return str(control.done("GET", "/requests")["requests"][-1]["plan"])

    assert plan() == "table"
    for partition, expected in ((True, "table"), (False, "index")):
        control.done("POST", "/indexes", {**where, "partition": partition})
        assert plan() == expected
        control.done("DELETE", f"/indexes?account={name}&table=Orders&property=total")
    assert plan() == "table"


def test_a_body_that_is_not_json_is_refused(control: ControlClient) -> None:
    answer = control.send("POST", "/faults", b"{", {})
    assert answer.status == 400
    assert answer.value["error"].startswith("The body is not JSON: ")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:5"}, 200),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "tables.example.com"}, 403),
        ({"Host": "127.0.0.1.example.com:80"}, 403),
    ],
)
def test_a_web_page_is_refused(
    control: ControlClient, headers: dict[str, str], status: int
) -> None:
    answer = control.send("GET", "/accounts", None, headers)
    assert answer.status == status
    assert ("error" in answer.value) is (status == 403)


def test_a_request_for_another_protocol_is_carried_out(control: ControlClient) -> None:
    """Java's HttpClient asks for h2c in its first request."""
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEA"}
    answer = control.send("POST", "/faults", b'{"status": 503}', headers)
    assert answer.status == 201
    assert control.done("GET", "/faults")["rules"] == [{"id": "1", "status": 503}]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_it_listens_on_one_address(server: Ready) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.said["control_port"]), timeout=20)


def test_a_warning_says_what_it_allows(server: Ready, tmp_path: Path) -> None:
    with served("--control", "0", errors=tmp_path / "errors") as ready:
        assert ready.said["control"] == f"http://127.0.0.1:{ready.said['control_port']}"
    assert (
        f"Every program on this machine can erase the data, inject faults and change the clock through "
        f"{ready.said['control']}: --control is for tests only."
        in (tmp_path / "errors").read_text()
    )
    assert server.said["address"].endswith(str(server.said["port"]))


def test_without_the_option_nothing_of_it_is_there() -> None:
    with served() as ready:
        assert (ready.said["control"], ready.said["control_port"]) == (None, None)
    program = (
        "import sys; from tablestone.cli import main; from tablestone.server import start; "
        "print([name for name in sys.modules if name.startswith('tablestone.testing')])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert loaded.stdout == b"[]\n"


def test_without_starlette_its_extra_is_named() -> None:
    hide = "import sys; sys.modules['starlette'] = sys.modules['starlette.applications'] = None; "
    run = "from tablestone.cli.main import main; sys.exit(main())"
    arguments = ["serve", "--port", "0", "--engine", "memory", "--control", "0"]
    ended = subprocess.run(
        [sys.executable, "-c", hide + run, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--control needs starlette" in ended.stderr
    assert pip_install("testing") in ended.stderr


def test_the_lines_for_people_name_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tablestone", "serve", "--engine", "memory", "--port", "0"]
    with (
        (tmp_path / "errors").open("wb") as errors,
        subprocess.Popen(
            [*command, "--control", "0"], stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        process.terminate()
    assert re.fullmatch(r"Control, for tests only: http://127\.0\.0\.1:\d+\n", lines[1])
    assert lines[3].startswith("Connection string: ")


def test_a_taken_port_is_refused(server: Ready) -> None:
    command = [sys.executable, "-m", "tablestone", "serve", "--engine", "memory", "--port", "0"]
    ended = subprocess.run(
        [*command, "--control", str(server.said["control_port"])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"tablestone: Cannot listen on 127\.0\.0\.1:\d+: .*\n", ended.stderr)


def test_state_faults_and_clock_act_on_the_server(control: ControlClient, server: Ready) -> None:
    account = control.done("POST", "/accounts")
    control.done("POST", f"/seed?account={account['name']}", {"Orders": [ENTITY]})
    with TableServiceClient.from_connection_string(account["connection_string"]) as service:
        orders = service.get_table_client("Orders")
        assert orders.get_entity("p", "r") == ENTITY
        control.done("POST", "/faults", {"operation": "GetEntity", "status": 503, "count": 1})
        count = control.done("GET", "/requests")["count"]
        orders.get_entity("p", "r")
        made = control.done("GET", f"/requests?since={count}")["requests"]
        assert [(each["operation"], each["status"]) for each in made] == [
            ("GetEntity", 503),
            ("GetEntity", 200),
        ]
        control.done("POST", "/clock/freeze", {"at": "2031-05-06T07:08:09Z"})
        orders.upsert_entity(ENTITY)
        stamped = orders.get_entity("p", "r").metadata["timestamp"]
        assert str(stamped) == "2031-05-06 07:08:09+00:00"
        list(orders.query_entities("total eq 5"))
        (complaint,) = control.done("POST", "/cost", {"since": count, "scans": 0})["complaints"]
        assert complaint.startswith("1 scan of a whole table, at most 0 expected:")
        control.done("POST", "/reset", {"account": account["name"]})
        with pytest.raises(HttpResponseError, match="TableNotFound"):
            orders.get_entity("p", "r")
    assert server.said["accounts"][0]["name"] == "devstoreaccount1"


def test_realism_is_one_option_of_the_server() -> None:
    """The three parts of tests/testing/test_realism.py, over HTTP."""
    with served("--control", "0", "--realism", "true") as ready:
        control = ControlClient(ready.said["control"])
        rows = [{"PartitionKey": f"{n:02}", "RowKey": "r"} for n in range(50)]
        control.done("POST", "/seed", {"Orders": rows})
        account = ready.said["accounts"][0]
        behind = f"{account['endpoint']}-secondary"
        there = account["connection_string"].replace(account["endpoint"], behind)
        with (
            TableServiceClient.from_connection_string(there, retry_total=0) as secondary,
            TableServiceClient.from_connection_string(
                account["connection_string"], retry_total=0
            ) as service,
        ):
            orders = service.get_table_client("Orders")
            pages = [list(page) for page in orders.query_entities("RowKey ne 'r'").by_page()]
            assert len(pages) > 1
            assert not any(pages)
            orders.create_entity(ENTITY)
            late = secondary.get_table_client("Orders").query_entities("PartitionKey eq 'p'")
            assert list(late) == []
            control.done("POST", "/clock/advance", {"seconds": 61})
            assert list(secondary.get_table_client("Orders").query_entities("total eq 5"))
            service.delete_table("Orders")
            with pytest.raises(HttpResponseError, match="TableBeingDeleted"):
                service.create_table("Orders")
            control.done("POST", "/clock/advance", {"seconds": 41})
            service.create_table("Orders")


@pytest.mark.parametrize(
    ("form", "body", "stored", "error"),
    [
        ("application/jsonl", b'{"PartitionKey":"p","RowKey":"r","total":5}\n', [ENTITY], ""),
        ("text/csv", b"PartitionKey,RowKey,total\np,r,5\n", [ENTITY | {"total": "5"}], ""),
        ("application/jsonl", b'{"PartitionKey":"p","RowKey":"r"}\n{}\n', None, "line 2: there is"),
        ("text/csv", b"PartitionKey,RowKey\np,r\np\n", None, "row 3: "),
    ],
)
def test_a_file_is_a_seed(
    control: ControlClient, form: str, body: bytes, stored: list[Any] | None, error: str
) -> None:
    answer = control.ask("POST", "/seed?table=Orders", body=body, form=form)
    if stored is None:
        assert answer.status == 400
        assert answer.value["error"].startswith(error)
        assert control.done("GET", "/dump") == {}
    else:
        assert answer.value == {"stored": len(stored)}
        assert control.done("GET", "/dump") == {"Orders": stored}
    refused = control.ask("POST", "/seed", body=body, form=form)
    assert refused.value["error"] == f"A seed of {form} needs the table: ?table=Orders."


def test_a_snapshot_goes_to_another_server_as_bytes(control: ControlClient, server: Ready) -> None:
    control.done("POST", "/seed", {"Orders": [ENTITY]})
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        etag = service.get_table_client("Orders").get_entity("p", "r").metadata["etag"]
    taken = control.done("POST", "/snapshots")["id"]
    data: bytes = control.ask("GET", f"/snapshots/{taken}").value
    with served("--control", "0") as other:
        another = ControlClient(other.said["control"])
        brought = another.ask("POST", "/snapshots", body=data, form="application/octet-stream")
        another.done("POST", f"/snapshots/{brought.value['id']}/restore")
        assert another.done("GET", "/dump") == {"Orders": [ENTITY]}
        with TableServiceClient.from_connection_string(other.connection_string) as service:
            again = service.get_table_client("Orders").get_entity("p", "r").metadata["etag"]
            assert again == etag
        for wrong, sentence in (
            (data.replace(b'snapshot":1', b'snapshot":2'), "has version 2, and this Tablestone"),
            (data.rpartition(b"\n")[0].rpartition(b"\n")[0], "is cut off: it has "),
            (b"{}", "This is not a snapshot of the test kit."),
        ):
            refused = another.ask("POST", "/snapshots", body=wrong, form="application/octet-stream")
            assert refused.status == 400
            assert sentence in refused.value["error"]


def test_a_file_that_cannot_be_read_is_named_as_the_body() -> None:
    with TableStorage() as storage:
        control = Control(storage._running.service, storage.address)
        with pytest.raises(
            SeedRefused, match=r"^The body has no column 'RowKey'; it has PartitionKey\."
        ):
            asyncio.run(
                control.seed(table="Orders", body=b"PartitionKey\n", content_type="text/csv")
            )
