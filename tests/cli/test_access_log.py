"""The access log as an operator reads it: what a line says, what it never says, and where the lines go."""

import http.client
import json
import os
import re
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from azure.data.tables import TableClient, TableServiceClient

from cli.worker_processes import connections, wait_until
from server_process import NotReady, ServerProcess, start_server
from stress.crash.writers import Connection

StartServer = Callable[..., ServerProcess]

BATCH = (
    b'--b\r\nContent-Type: multipart/mixed; boundary="c"\r\n\r\n--c\r\nContent-Type: application/http\r\n'
    b"Content-Transfer-Encoding: binary\r\n\r\nPOST %b/Weather HTTP/1.1\r\nContent-Type: application/json\r\n"
    b"Accept: application/json;odata=nometadata\r\nDataServiceVersion: 3.0\r\n\r\n"
    b'{"PartitionKey":"sekretpk","RowKey":"sekretrow2","P":"sekretvalue"}\r\n--c--\r\n--b--\r\n'
)
BROKEN_BATCH = BATCH.replace(b'"sekretvalue"}', b'"sekretvalue"')
QUERY_BATCH = (
    b"--b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    b"GET %b/Weather()?$filter=sekret%%20eq HTTP/1.1\r\nAccept: application/json\r\n\r\n--b--\r\n"
)
BATCHES = (BATCH, BROKEN_BATCH, QUERY_BATCH)
POINT = "/Weather(PartitionKey='sekretpk',RowKey='sekretrow')"
FILTER = quote("PartitionKey eq 'sekretpk' and P eq 'sekretvalue'")

LINES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    # the request: method, path, body, status; then what its line says
    "a table": (
        ("POST", "/Tables", b'{"TableName":"Weather"}', 201),
        {"operation": "CreateTable", "table": "Weather", "entities": 0, "bytes_in": 23},
    ),
    "an insert": (
        ("POST", "/Weather", b'{"PartitionKey":"sekretpk","RowKey":"sekretrow","P":"x"}', 201),
        {"operation": "InsertEntity", "table": "Weather", "entities": 1, "bytes_in": 56},
    ),
    "a point read": (
        ("GET", POINT, b"", 200),
        {"operation": "GetEntity", "table": "Weather", "entities": 1, "plan": "point"},
    ),
    "a query": (
        ("GET", f"/Weather()?$filter={FILTER}", b"", 200),
        {"operation": "QueryEntities", "entities": 0, "plan": "partition"},
    ),
    "a batch": (
        ("POST", "/$batch", BATCH, 202),
        {"operation": "EntityGroupTransaction", "table": "Weather", "entities": 1},
    ),
    "the same batch": (
        ("POST", "/$batch", BATCH, 202),
        {"operation": "EntityGroupTransaction", "entities": 0, "error": "EntityAlreadyExists"},
    ),
    "an entity that is there": (
        ("POST", "/Weather", b'{"PartitionKey":"sekretpk","RowKey":"sekretrow"}', 409),
        {"operation": "InsertEntity", "error": "EntityAlreadyExists"},
    ),
    "a body that is no JSON": (
        ("POST", "/Weather", b'{"sekretvalue', 400),
        {"operation": "InsertEntity", "table": "Weather", "error": "InvalidInput"},
    ),
    "a replacement that is no JSON": (
        ("PUT", POINT, b'{"sekretvalue', 400),
        {"operation": "InsertOrReplaceEntity", "table": "Weather", "error": "InvalidInput"},
    ),
    "a merge that is no JSON": (
        ("MERGE", POINT, b'{"sekretvalue', 400),
        {"operation": "InsertOrMergeEntity", "table": "Weather", "error": "InvalidInput"},
    ),
    "a deletion without a condition": (
        ("DELETE", POINT, b"", 400),
        {"operation": "DeleteEntity", "table": "Weather", "error": "InvalidInput"},
    ),
    "a filter that cannot be read": (
        ("GET", "/Weather()?$filter=sekret%20eq", b"", 400),
        {"operation": "QueryEntities", "table": "Weather", "error": "InvalidInput"},
    ),
    "a name that no table has": (
        ("POST", "/Tables", b'{"TableName":"1sekret"}', 400),
        {"operation": "CreateTable", "table": "", "error": "InvalidResourceName"},
    ),
    "a method that a table has not": (
        ("PUT", "/Tables('Weather')", b"", 405),
        {"operation": "", "table": "Weather", "error": "MethodNotAllowed"},
    ),
    "policies that are no XML": (
        ("PUT", "/Weather?comp=acl", b"<sekretvalue", 400),
        {"operation": "SetTableAcl", "table": "Weather", "error": "InvalidXmlDocument"},
    ),
    "service properties that are no XML": (
        ("PUT", "/?restype=service&comp=properties", b"<sekretvalue", 400),
        {"operation": "SetServiceProperties", "table": "", "error": "InvalidXmlDocument"},
    ),
    "a resource that is none": (
        ("GET", "/Weather?comp=sekret", b"", 400),
        {"operation": "", "table": "Weather", "error": "InvalidQueryParameterValue"},
    ),
    "a feed that is none": (
        ("GET", "/Weather?comp=changes", b"", 400),
        {"operation": "ReadTableChanges", "table": "Weather"},
    ),
    "a batch with a body that is no JSON": (
        ("POST", "/$batch", BROKEN_BATCH, 202),
        {"operation": "EntityGroupTransaction", "table": "Weather", "error": "InvalidInput"},
    ),
    "a query in a batch that cannot be read": (
        ("POST", "/$batch", QUERY_BATCH, 202),
        {"operation": "QueryEntities", "table": "Weather", "error": "InvalidInput"},
    ),
    "service properties": (
        ("GET", "/?restype=service&comp=properties", b"", 200),
        {"operation": "GetServiceProperties", "table": ""},
    ),
    "no such table": (
        ("GET", "/Absent()", b"", 404),
        {"operation": "QueryEntities", "table": "Absent", "error": "TableNotFound"},
    ),
}


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def logged(server: ServerProcess, number: int) -> list[dict[str, Any]]:
    """The lines of a JSON log on standard output, as soon as there are this many."""
    wait_until(lambda: len(lines_of("".join(server.stdout))) >= number)
    return lines_of("".join(server.stdout))


def test_each_request_has_a_line_without_secrets(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--access-log=json", "--workers=1")
    given = {"x-ms-client-request-id": "mine"}
    with Connection(server) as client:
        for (method, path, body, status), _ in LINES.values():
            sent = body % client.base.encode() if body in BATCHES else body
            kind = "multipart/mixed; boundary=b" if body in BATCHES else "application/json"
            client.send(method, path, sent, expected=status, content_type=kind, headers=given)
    lines = logged(server, len(LINES))
    for line, ((method, _, _, status), told) in zip(lines, LINES.values(), strict=True):
        assert line | told == line
        common = {
            "client": "127.0.0.1",
            "client_request": "mine",
            "account": "devstoreaccount1",
            "caller": "shared-key",
            "method": method,
            "status": status,
            "process": server.process.pid,
        }
        assert line | common == line
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert re.fullmatch(r"[0-9a-f-]{36}", line["request"])
        assert line["milliseconds"] > 0
        assert bool(line["reason"]) == bool(line["error"])
        assert line["bytes_out"] > 0
    assert "json_payload." in lines[list(LINES).index("a body that is no JSON")]["reason"]
    printed = "".join(server.stdout)
    for secret in ("sekret", "$filter", "sig="):
        assert secret not in printed


REFUSED_CALLERS = {
    "/Tables": "QueryTables",
    "/Weather(PartitionKey='p',RowKey='r')": "GetEntity",
    "/?restype=service&comp=properties": "GetServiceProperties",
    "/?restype=service&comp=stats": "GetServiceStats",
    "/Weather?comp=acl": "GetTableAcl",
    "/?comp=changes": "ReadAccountChanges",
    "/$batch": "Batch",
}


def test_a_refused_caller_has_a_line_with_the_operation(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--access-log=json", "--workers=1")
    for path in REFUSED_CALLERS:
        method = "POST" if path == "/$batch" else "GET"
        with closing(http.client.HTTPConnection(*server.address)) as connection:
            headers = {"x-ms-version": "2019-02-02"}
            connection.request(method, f"/devstoreaccount1{path}", b"", headers)
            assert connection.getresponse().status in (401, 403, 404)
    lines = logged(server, len(REFUSED_CALLERS))
    assert [line["operation"] for line in lines] == list(REFUSED_CALLERS.values())


def test_the_kinds_of_callers(private_server: StartServer, tmp_path: Path) -> None:
    from azure.core.credentials import AzureNamedKeyCredential  # noqa: PLC0415
    from azure.data.tables import TableSasPermissions, generate_account_sas, generate_table_sas  # noqa: PLC0415

    server = private_server(tmp_path, "--access-log=json", "--workers=1")
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        service.create_table("Weather")
    key = AzureNamedKeyCredential(server.account_name, server.account_key)
    whole: dict[str, Any] = {"permission": "rl", "expiry": "2999-01-01"}
    account_sas = generate_account_sas(key, resource_types="sco", **whole)  # type: ignore[arg-type]
    table_sas = generate_table_sas(
        key, "Weather", permission=TableSasPermissions(read=True), expiry="2999-01-01"
    )
    for signature in (account_sas, table_sas):
        with TableClient(f"{server.endpoint}?{signature}", "Weather") as table:
            assert list(table.list_entities()) == []
    assert [line["caller"] for line in logged(server, 3)] == [
        "shared-key",
        "account-sas",
        "table-sas",
    ]
    assert "sig=" not in "".join(server.stdout)


def test_a_line_of_text(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--access-log=text", "--workers=1")
    with Connection(server) as client:
        client.send("GET", "/Absent()", expected=404, headers={"x-ms-client-request-id": 'a "b"=c'})
    wait_until(lambda: "operation=" in "".join(server.stdout))
    (line,) = [each for each in server.stdout if "operation=" in each]
    assert re.fullmatch(
        rf"\S+Z process={server.process.pid} request=\S+ "
        r'client_request="a \\"b\\"=c" client=127\.0\.0\.1 method=GET account=devstoreaccount1 caller=shared-key '
        r'operation=QueryEntities table=Absent status=404 error=TableNotFound reason="The table specified does not '
        r'exist\. \(catalog\.require\)" milliseconds=\S+ entities=0 bytes_in=0 bytes_out=\d+ plan=-\n',
        line,
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_a_file_is_opened_again_at_sighup_and_no_line_is_lost_or_broken(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    path, moved = tmp_path / "access.log", tmp_path / "access.log.1"
    server = private_server(
        tmp_path / "data", f"--access-log={path}", "--log-format=json", f"--workers={workers}"
    )
    requests = 150

    def ask(client: Connection) -> None:
        for _ in range(requests):
            client.send("GET", "/Tables", expected=200)

    with connections(server, 4) as opened:
        asking = [threading.Thread(target=ask, args=(each,)) for each in opened]
        for each in asking:
            each.start()
        wait_until(lambda: path.stat().st_size > 1000)
        path.rename(moved)
        os.kill(server.process.pid, signal.SIGHUP)
        for each in asking:
            each.join()
        wait_until(path.exists)
        for client in opened:
            client.send("GET", "/Tables", expected=200)
    assert server.stop() == 0
    assert server.stderr == ""
    lines = [*moved.read_text().splitlines(), *path.read_text().splitlines()]
    assert len(lines) == 4 * (1 + requests + 1)
    assert {json.loads(line)["operation"] for line in lines} == {"QueryTables"}
    assert moved.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
def test_a_full_disk_costs_lines_and_no_answers(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--access-log=/dev/full")
    with Connection(server) as client:
        for _ in range(5):
            client.send("GET", "/Tables", expected=200)
    assert server.stop() == 0
    (line,) = server.stderr.splitlines()
    assert line.endswith("Lines of the access log are lost: No space left on device.")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "absent" / "access.log"
    with pytest.raises(NotReady) as refused:
        start_server(tmp_path / "data", f"--access-log={path}", f"--workers={workers}")
    assert str(refused.value) == (
        f"exit status 2: tablestone: The access log {path} cannot be written: No such file or directory.\n"
    )
