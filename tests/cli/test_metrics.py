"""`/metrics` of a real server: one answer for all workers, every metric, no keys, and counts that outlive a worker."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cli.admin_pages import page
from cli.worker_processes import connections, wait_until, workers_of
from own_metrics import OWN_METRICS
from server_process import ServerProcess, needs_console_script
from stress.crash.writers import Connection
from tablestone.engines.registry import kind_of
from tablestone.extras import pip_install
from tablestone.server.admin.prometheus_page import metric_of
from tablestone.telemetry.metrics import MetricKind

StartServer = Callable[..., ServerProcess]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
AT_LENGTH = 60.0
"""How long a condition may take on a busy machine."""


def scraped(server: ServerProcess) -> Samples:
    """All samples, by name and labels."""
    status, text = page(server, "/metrics")
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(server: ServerProcess, name: str, **labels: str) -> float:
    """The sum of the samples with this name and at least these labels."""
    wanted = labels.items()
    return sum(
        number
        for (found, its), number in scraped(server).items()
        if found == f"tablestone_{name}" and wanted <= its
    )


def work(server: ServerProcess) -> None:
    """Send requests of most kinds, over connections to all workers."""
    with connections(server, 4) as opened:
        one, *others = opened
        one.send("POST", "/Tables", b'{"TableName":"Secret"}', expected=201)
        for number, each in enumerate(opened):
            body = b'{"PartitionKey":"hiddenkey","RowKey":"%d","a":1}' % number
            each.send("POST", "/Secret", body, expected=201)
            each.send("GET", f"/Secret(PartitionKey='hiddenkey',RowKey='{number}')", expected=200)
        others[0].send("GET", "/Secret()?$filter=a%20eq%202", expected=200)
        others[0].send("GET", "/Secret(PartitionKey='hiddenkey',RowKey='none')", expected=404)
        others[1].send("GET", "/MadeUpByAClient()", expected=404)
        others[2].send("GET", "/Tables", expected=403, headers={"Authorization": "SharedKey a:b"})


@pytest.mark.parametrize("names_tables", ["false", "true"])
def test_metrics_of_all_workers(
    private_server: StartServer, tmp_path: Path, names_tables: str
) -> None:
    server = private_server(
        tmp_path, "--admin=0", "--workers=2", f"--metrics-tables={names_tables}"
    )
    work(server)
    wait_until(lambda: value(server, "requests_total") == 17, AT_LENGTH)
    found = scraped(server)
    text = page(server, "/metrics")[1]

    def number(name: str, **labels: str) -> float:
        return found[f"tablestone_{name}", frozenset(labels.items())]

    ok = {"status": "200", "error": ""}
    assert number("requests_total", operation="GetEntity", **ok) == 4
    assert number("requests_total", operation="QueryTables", **ok) == 4
    assert number("request_duration_seconds_count", operation="GetEntity") == 5
    assert number("queries_total", plan="table") == 1
    assert number("entities_written_total", operation="InsertEntity") == 4
    assert number("workers_ready") == 2
    assert number("connections_accepted_total") >= 4
    assert number("storage_ready") == 1
    assert number("sqlite_commit_group_write_sets_sum") >= 5
    assert number("sqlite_database_bytes") > 0
    assert (
        sum(
            each
            for (name, _), each in found.items()
            if name == "tablestone_authentication_failures_total"
        )
        == 1
    )
    assert "hiddenkey" not in text
    assert "MadeUpByAClient".lower() not in text.lower()
    assert ("secret" in text.lower()) == (names_tables == "true")
    if names_tables == "true":
        table = {"account": "devstoreaccount1", "table": "secret"}
        assert number("table_requests_total", **table) == 11


@pytest.mark.parametrize("engine", ["sqlite", "memory"])
def test_every_metric_is_shown(private_server: StartServer, tmp_path: Path, engine: str) -> None:
    archive = [f"--archive={tmp_path.parent / (tmp_path.name + '-archive')}"]
    place = archive if engine == "sqlite" else [f"--engine={engine}"]
    server = private_server(tmp_path, "--admin=0", "--workers=1", "--metrics-tables=true", *place)
    work(server)
    wait_until(lambda: value(server, "requests_total") == 17, AT_LENGTH)
    status, text = page(server, "/metrics")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    expected = [
        *(each for each in OWN_METRICS if engine == "sqlite" or "_archive_" not in each.name),
        *map(metric_of, kind_of(engine).figures),
    ]
    assert set(families) == {metric.name.removesuffix("_total") for metric in expected}
    for metric in expected:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind.value, metric.help)
        assert family.samples, metric.name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)
        if metric.kind is MetricKind.HISTOGRAM:
            bounds = [sample for sample in family.samples if sample.name.endswith("_bucket")]
            assert len(bounds) % (len(metric.bounds) + 1) == 0


def test_counts_outlive_a_worker(private_server: StartServer, tmp_path: Path) -> None:
    """Prometheus takes a falling count for a restart, and adds all of it again."""
    server = private_server(tmp_path, "--admin=0", "--workers=2")
    work(server)
    wait_until(lambda: value(server, "requests_total") == 17, AT_LENGTH)
    before = workers_of(server)
    for process in before:
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: len(workers_of(server) - before) == len(before), AT_LENGTH)

    def answers() -> bool:
        try:
            return value(server, "workers_ready") == 2
        except OSError:
            return False

    wait_until(answers, AT_LENGTH)
    with Connection(server) as one:
        one.send("GET", "/Tables", expected=200)
    wait_until(lambda: value(server, "requests_total") == 18, AT_LENGTH)


def test_deleted_tables_are_swept(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--admin=0", "--workers=2")
    work(server)
    with Connection(server) as one:
        one.send("DELETE", "/Tables('Secret')", expected=204)
    wait_until(lambda: value(server, "swept_rows_total") == 4, AT_LENGTH)


def test_changes_and_how_far_readers_are_behind(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--admin=0", "--workers=2", "--keep-changes=1h")
    work(server)
    wait_until(lambda: value(server, "changes_records") == 5, AT_LENGTH)
    assert value(server, "changes_lag_seconds") == 0
    wait_until(lambda: value(server, "changes_oldest_seconds") > 2, AT_LENGTH)
    with connections(server, 4) as opened:
        opened[0].send("GET", "/Secret?comp=changes", expected=200)
        for each in opened:
            each.send("GET", "/Secret?comp=changes&since=now", expected=200)
    wait_until(lambda: value(server, "changes_lag_seconds") > 1, AT_LENGTH)
    wait_until(  # each worker reports when its time has come
        lambda: value(server, "requests_total", operation="ReadTableChanges", status="200") == 5,
        AT_LENGTH,
    )
    assert value(server, "changes_lag_seconds") < value(server, "changes_oldest_seconds")


@needs_console_script
def test_without_the_library_only_metrics_are_missing(
    private_server: StartServer, tmp_path: Path
) -> None:
    (tmp_path / "prometheus_client.py").write_text(
        "raise ModuleNotFoundError(name='prometheus_client')"
    )
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    server = private_server(
        tmp_path / "data", "--admin=0", "--workers=1", environment={"PYTHONPATH": path}
    )
    assert page(server, "/metrics") == (
        501,
        f"This page needs prometheus_client: {pip_install('metrics')}\n",
    )
    wait_until(lambda: page(server, "/health/ready")[0] == 200, AT_LENGTH)
