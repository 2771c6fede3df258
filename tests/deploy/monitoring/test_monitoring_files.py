"""The dashboard and the alerts of deploy/: every metric in them exists, and Prometheus' own tool accepts them."""

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.admin_pages import page
from cli.test_metrics import AT_LENGTH, StartServer, value, work
from cli.worker_processes import wait_until
from deploy.monitoring.install import missing, program
from own_metrics import OWN_METRICS
from tablestone.engines.registry import OWN_KINDS, kind_of
from tablestone.server.admin.prometheus_page import metric_of
from tablestone.telemetry.metrics import Metric, MetricKind

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "tablestone.rules.yml"
RULES_TEST = DEPLOY / "prometheus" / "tablestone.rules.test.yml"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "tablestone.json").read_text("utf-8"))
GUIDES = DEPLOY.parent / "docs" / "guides"
GUIDE = (GUIDES / "monitoring.md").read_text("utf-8")
METRICS: list[Metric] = [
    *OWN_METRICS,
    *(metric_of(figure) for scheme in OWN_KINDS for figure in kind_of(scheme).figures),
]
NAME = re.compile(r"\btablestone_\w+")
LABELS = re.compile(r"\b(tablestone_\w+)\{([^}]*)\}")
needs_promtool = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def series_of(metric: Metric) -> list[str]:
    """The names of a metric's samples."""
    if metric.kind is not MetricKind.HISTOGRAM:
        return [metric.name]
    return [metric.name + ending for ending in ("_bucket", "_sum", "_count")]


SERIES = {name: metric for metric in METRICS for name in series_of(metric)}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DASHBOARD["panels"]
    return found


def expressions_of_panels() -> Iterator[tuple[str, str]]:
    for panel in panels():
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


EXPRESSIONS = [*expressions_of_panels(), *((rule["alert"], rule["expr"]) for rule in alerts())]


def unknown_in(expression: str) -> list[str]:
    """The metrics and labels in an expression that no server exports."""
    wrong = [name for name in NAME.findall(expression) if name not in SERIES]
    for name, matchers in LABELS.findall(expression):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", matchers)) - {"instance", "job", "le"}
        if name in SERIES:
            wrong += [f"{name}{{{label}}}" for label in labels - set(SERIES[name].labels)]
    return wrong


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS, ids=lambda text: text[:40])
def test_every_metric_exists(title: str, expression: str) -> None:
    assert NAME.search(expression) or title == "TablestoneDown"
    assert unknown_in(expression) == []


def test_a_metric_that_does_not_exist_is_found() -> None:
    assert unknown_in("rate(tablestone_request_total[5m])") == ["tablestone_request_total"]
    assert unknown_in('tablestone_requests_total{kind="a", operation="b"}') == [
        "tablestone_requests_total{kind}"
    ]


def test_the_dashboard_shows_every_metric() -> None:
    """The metrics that it leaves out are listed here."""
    shown = {
        SERIES[name].name for _, text in expressions_of_panels() for name in NAME.findall(text)
    }
    left_out = {metric.name.removeprefix("tablestone_") for metric in METRICS} - {
        name.removeprefix("tablestone_") for name in shown
    }
    assert left_out == {
        *("changes_records", "changes_oldest_seconds", "changes_lag_seconds"),
        *("build_info", "memory_rows", "connections_accepted_total"),
        *("table_request_bytes_total", "table_response_bytes_total"),
        *("table_request_seconds_total", "table_request_failures_total"),
    }


def test_the_panels_do_not_overlap() -> None:
    places = sorted(
        (panel["gridPos"]["y"], panel["gridPos"]["x"], panel["gridPos"]["w"], panel["gridPos"]["h"])
        for panel in panels()
    )
    for (y, x, width, height), (next_y, next_x, _, _) in pairwise(places):
        assert next_x == x + width if next_y == y else next_y == y + height
        assert x + width <= 24
    numbers = [panel["id"] for panel in panels()]
    assert len(set(numbers)) == len(numbers)


def test_every_alert_is_tested_and_documented() -> None:
    tests = yaml.safe_load(RULES_TEST.read_text("utf-8"))["tests"]
    tested = {each["alertname"] for test in tests for each in test["alert_rule_test"]}
    named = {rule["alert"] for rule in alerts()}
    assert tested == named
    assert set(re.findall(r"^\| `(Tablestone\w+)` \|", GUIDE, re.MULTILINE)) == named


def test_every_metric_is_documented() -> None:
    listed = (GUIDES / "metrics.md").read_text("utf-8").replace("\n", " ")
    families = (
        "tablestone_worker_",
        "tablestone_sqlite_",
        "tablestone_postgresql_",
        "tablestone_cassandra_",
        "tablestone_table_",
    )
    for metric in METRICS:
        if not metric.name.startswith((*families, "tablestone_memory_")):
            assert f"`{metric.name}`" in listed, metric.name
    assert all(f"`{family}…`" in listed for family in families)


def run_promtool(*arguments: str, directory: Path) -> str:
    command = [str(program("promtool")), *arguments]
    ended = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@needs_promtool
def test_promtool_accepts_the_rules_and_their_tests() -> None:
    check, test = re.findall(r"^    promtool (.*)$", GUIDE, re.MULTILINE)
    run_promtool(*check.split(), directory=DEPLOY.parent)
    assert "SUCCESS" in run_promtool(*test.split(), directory=DEPLOY.parent)


@needs_promtool
def test_promtool_accepts_the_metrics_of_a_server(
    private_server: StartServer, tmp_path: Path
) -> None:
    """Promtool checks names, units and help against Prometheus' conventions."""
    server = private_server(tmp_path, "--admin=0", "--workers=1", "--metrics-tables=true")
    work(server)
    wait_until(lambda: value(server, "table_requests_total") > 0, AT_LENGTH)
    checked = subprocess.run(
        [str(program("promtool")), "check", "metrics"],
        input=page(server, "/metrics")[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@needs_promtool
def test_promtool_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    """Promtool checks rules, so each query becomes one."""
    rules = [
        {"record": f"panel:{number}", "expr": text.replace("$__rate_interval", "1m")}
        for number, (_, text) in enumerate(expressions_of_panels())
    ]
    group = {"groups": [{"name": "dashboard", "rules": rules}]}
    (tmp_path / "dashboard.yml").write_text(yaml.safe_dump(group))
    said = run_promtool("check", "rules", "dashboard.yml", directory=tmp_path)
    assert f"SUCCESS: {len(rules)} rules found" in said
