"""The admin address of a server on a cluster: health and metrics, including those of an engine that waits for nodes.

Needs the cluster that ENGINE_UNDER_TEST names. The server is a real process.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cli.admin_pages import json_page, page
from cli.test_metrics import AT_LENGTH, value, work
from cli.worker_processes import connections, wait_until
from own_metrics import OWN_METRICS
from server_process import ServerProcess, start_server
from storage.cluster_engine import URL
from tablestone.engines.registry import kind_of
from tablestone.server.admin.prometheus_page import metric_of

pytestmark = pytest.mark.skipif(
    URL is None, reason="no cluster: python -m tests.storage.cluster up, then set ENGINE_UNDER_TEST"
)
REQUESTS = 17
"""How many requests `work` sends."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of two workers that has answered the requests of `work`."""
    assert URL is not None
    directory: Path = tmp_path_factory.mktemp("server")
    words = ("--engine", URL, "--workers=2", "--admin=0", "--metrics-tables=true")
    started = start_server(directory, *words)
    work(started)
    yield started
    with connections(started, 1) as (one,):
        one.send("DELETE", "/Tables('Secret')", expected=204)
    assert started.stop() == 0


def test_it_is_ready(server: ServerProcess) -> None:
    wait_until(lambda: page(server, "/health/ready")[0] == 200, AT_LENGTH)
    assert json_page(server, "/health/ready")[1]["workers"] == {"ready": 2, "configured": 2}
    assert json_page(server, "/health/live") == (200, {"status": "live"})
    assert json_page(server, "/version")[1]["engine"] == "cassandra"


def test_every_metric_is_shown(server: ServerProcess) -> None:
    wait_until(lambda: value(server, "requests_total") == REQUESTS, AT_LENGTH)
    text = page(server, "/metrics")[1]
    families = {family.name: family for family in text_string_to_metric_families(text)}
    own = (each for each in OWN_METRICS if "_archive_" not in each.name)
    expected = [*own, *map(metric_of, kind_of("cassandra").figures)]
    assert set(families) == {metric.name.removesuffix("_total") for metric in expected}
    for metric in expected:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind.value, metric.help)
        assert family.samples, metric.name
    assert value(server, "storage_ready") == 1
    assert value(server, "cassandra_nodes") == value(server, "cassandra_nodes_up") >= 1
    statements = value(server, "cassandra_request_seconds_count")
    assert statements >= REQUESTS
    assert "hiddenkey" not in text
