"""Traces of a real server: spans for each request and its steps, the client's context, no secrets; none when off."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tablestone
from cli.trace_collector import CollectedSpan, Collector, collecting
from cli.worker_processes import wait_until
from server_process import ServerProcess, clean_environment, needs_console_script
from stress.crash.writers import BATCH_TYPE, Connection
from tablestone.extras import pip_install

StartServer = Callable[..., ServerProcess]
INTERNAL, SERVER, CLIENT = 1, 2, 3
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
AT_LENGTH = 60.0
POINT = "/Secrets(PartitionKey='hiddenkey',RowKey='r')"
BATCH = (
    "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n"
    "--c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    "POST {}/Secrets HTTP/1.1\r\nAccept: application/json\r\nContent-Type: application/json\r\n\r\n"
    '{{"PartitionKey":"hiddenkey","RowKey":"s"}}\r\n--c--\r\n--b--\r\n'
)


PAGE = Path(__file__).parents[2] / "docs" / "guides" / "monitoring.md"
(VARIABLE,) = re.findall(
    r"^    (\w+)=http://127\.0\.0\.1:4318 tablestone serve$",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE,
)
"""The variable of the guide's command, which switches traces on here."""


def environment(collector: Collector, **more: str) -> dict[str, str]:
    return {
        VARIABLE: collector.endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "TABLESTONE_LOG_LEVEL": "warning",
        **more,
    }


def work(server: ServerProcess) -> None:
    with Connection(server) as one:
        one.send("POST", "/Tables", b'{"TableName":"Secrets"}', expected=201)
        body = b'{"PartitionKey":"hiddenkey","RowKey":"r","a":1}'
        one.send("POST", "/Secrets", body, expected=201)
        traced = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        one.send("GET", POINT, expected=200, headers=traced)
        one.send("GET", "/Secrets()?$filter=a%20eq%202", expected=200)
        one.send("GET", "/Secrets(PartitionKey='hiddenkey',RowKey='none')", expected=404)
        one.send(
            "POST",
            "/$batch",
            BATCH.format(server.endpoint).encode(),
            expected=202,
            content_type=BATCH_TYPE.partition("=")[0] + "=b",
        )
        one.send("GET", "/Tables", expected=403, headers={"Authorization": "SharedKey a:b"})


REQUESTS = 7


def of_requests(collector: Collector) -> list[CollectedSpan]:
    return sorted((span for span in collector.spans if span.kind == SERVER), key=lambda s: s.start)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_is_a_span_with_its_steps(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    with collecting() as collector:
        server = private_server(
            tmp_path, f"--workers={workers}", environment=environment(collector)
        )
        work(server)
        wait_until(lambda: len(of_requests(collector)) == REQUESTS, AT_LENGTH)
        assert server.stop() == 0
    assert server.stderr_without("authentication failed") == ""
    spans = of_requests(collector)
    assert [span.name for span in spans] == [
        "POST /{account}/Tables",
        "POST /{account}/{table}",
        "GET /{account}/{table}(PartitionKey,RowKey)",
        "GET /{account}/{table}()",
        "GET /{account}/{table}(PartitionKey,RowKey)",
        "POST /{account}/$batch",
        "GET /{account}/",
    ]
    assert [span.attributes["http.response.status_code"] for span in spans] == [
        *(201, 201, 200, 200, 404, 202, 403)
    ]
    assert not any(span.error for span in spans)
    point, scan, missing, batch, refused = spans[2:]
    assert (point.trace, point.parent) == (TRACE, PARENT)
    assert all(span.parent == "" for span in spans if span is not point)
    host, port = server.address
    assert point.attributes | {"http.response.body.size": 0} == {
        "http.request.method": "GET",
        "http.route": "/{account}/{table}(PartitionKey,RowKey)",
        "http.response.status_code": 200,
        "http.request.body.size": 0,
        "http.response.body.size": 0,
        "url.scheme": "http",
        "server.address": host,
        "server.port": port,
        "client.address": "127.0.0.1",
        "tablestone.account": "devstoreaccount1",
        "tablestone.operation": "GetEntity",
        "tablestone.table": "Secrets",
        "tablestone.plan": "point",
        "tablestone.entities": 1,
        "tablestone.request_id": point.attributes["tablestone.request_id"],
    }
    assert missing.attributes["error.type"] == "ResourceNotFound"
    assert refused.attributes["error.type"] == "AuthenticationFailed"
    assert scan.attributes["tablestone.plan"] == "table"
    assert batch.attributes["tablestone.operation"] == "EntityGroupTransaction"


@pytest.mark.slow
def test_steps_and_calls_of_the_engine(private_server: StartServer, tmp_path: Path) -> None:
    with collecting() as collector:
        server = private_server(tmp_path, "--workers=1", environment=environment(collector))
        work(server)
        wait_until(lambda: len(of_requests(collector)) == REQUESTS, AT_LENGTH)
        assert server.stop() == 0
    _, insert, point, scan, *_ = of_requests(collector)

    def children(of: CollectedSpan) -> list[CollectedSpan]:
        found = [span for span in collector.spans if span.parent == of.span]
        assert all(of.trace == span.trace and of.start <= span.end <= of.end for span in found)
        return sorted(found, key=lambda span: span.start)

    for request, operation, call in (
        (insert, "InsertEntity", "commit"),
        (point, "GetEntity", "get"),
        (scan, "QueryEntities", "read"),
    ):
        steps = {span.name: span for span in children(request) if span.kind == INTERNAL}
        assert list(steps) == ["authenticate", "decode", f"execute {operation}", "encode"]
        *_, called = children(steps[f"execute {operation}"])
        assert (called.name, called.kind) == (call, CLIENT)
        rows = {} if call == "commit" else {"db.response.returned_rows": int(call == "get")}
        assert called.attributes == {"db.system.name": "sqlite", "db.operation.name": call, **rows}
    (resource, *_) = collector.resources
    assert resource["service.name"] == "tablestone"
    assert resource["service.version"] == tablestone.__version__


def test_nothing_secret_is_exported(private_server: StartServer, tmp_path: Path) -> None:
    with collecting() as collector:
        server = private_server(tmp_path, "--workers=1", environment=environment(collector))
        work(server)
        wait_until(lambda: len(of_requests(collector)) == REQUESTS, AT_LENGTH)
        assert server.stop() == 0
    exported = b"".join(collector.raw)
    assert b"Secrets" in exported
    for secret in (b"hiddenkey", b"filter", b"SharedKey", server.account_key.encode()):
        assert secret not in exported


@pytest.mark.slow
def test_the_standard_variables(private_server: StartServer, tmp_path: Path) -> None:
    with collecting() as collector:
        server = private_server(
            tmp_path,
            "--workers=1",
            environment=environment(
                collector,
                OTEL_SERVICE_NAME="weather-tables",
                OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
                OTEL_TRACES_SAMPLER="parentbased_always_off",
            ),
        )
        work(server)  # only the request that its client decided to sample
        wait_until(lambda: len(of_requests(collector)) == 1, AT_LENGTH)
        assert server.stop() == 0
    assert {span.trace for span in collector.spans} == {TRACE}
    (resource, *_) = collector.resources
    assert resource["service.name"] == "weather-tables"
    assert resource["deployment.environment.name"] == "test"


@pytest.mark.slow
def test_a_collector_that_is_gone_costs_no_answer(
    private_server: StartServer, tmp_path: Path
) -> None:
    gone = Collector("http://127.0.0.1:9")
    server = private_server(tmp_path, "--workers=1", environment=environment(gone))
    work(server)
    assert server.stop() == 0


@needs_console_script
def test_without_the_package_a_sentence_says_so(
    private_server: StartServer, tmp_path: Path
) -> None:
    (tmp_path / "opentelemetry.py").write_text("raise ModuleNotFoundError(name='opentelemetry')")
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    gone = Collector("http://127.0.0.1:9")
    server = private_server(
        tmp_path / "data", "--workers=2", environment=environment(gone, PYTHONPATH=path)
    )
    work(server)
    assert server.stop() == 0
    line = server.stderr_without("authentication failed")
    assert line.endswith(
        f"Sending traces, as the environment asks, needs opentelemetry: {pip_install('otel')}\n"
    )
    assert line.count("\n") == 1


def test_nothing_is_imported_unless_it_is_asked_for(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from tablestone.configuration import Configuration\n"
        "from tablestone.server.worker_slot import WorkerSlot\n"
        "from tablestone.server.application import Application\n"
        f"given = Configuration('', 0, None, 'sqlite:{tmp_path}/data', (), 'error')\n"
        "async def run():\n"
        "    application = Application(given, WorkerSlot())\n"
        "    await application.startup()\n"
        "    await application.shutdown()\n"
        "asyncio.run(run())\n"
        "print({'opentelemetry', 'prometheus_client'} & set(sys.modules))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=clean_environment(),
    )
    assert ran.stdout == "set()\n"
