"""The Compose file and the Kubernetes file of a Cassandra cluster have the settings of the test nodes."""

import re
import shlex
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
import yaml

from deploy.deployed import DEPLOY, ROOT, needs, run
from storage.cluster.distribution import VERSION
from storage.cluster.settings import REQUIRED
from tablestone import limits
from tablestone.cli.main import commands
from tablestone.cli.options import PORT
from tablestone.engines.cassandra.cluster_url import parse_address
from tablestone.engines.cassandra.layout import (
    COMPACTION,
    GC_GRACE_SECONDS,
    SPECULATIVE_RETRY,
    TABLES,
    keyspace_statement,
    replication,
)
from tablestone.tables.sweeping import NETWORK_PAUSE_SECONDS, PARTITIONS_AT_ONCE

COMPOSE = DEPLOY / "cassandra" / "compose.yaml"
DATACENTER = DEPLOY / "cassandra" / "datacenter.yaml"
GUIDE = "\n".join(
    page.read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs" / "guides").glob("cassandra*.md"))
)
SUPERUSER = "tablestone-superuser"
"""The Secret that cass-operator makes, with `username` and `password`; the user has the same name."""
WITH_GROUPS = {"commitlog_sync_period": "0ms"}
"""What `commitlog_sync: group` needs beside a cassandra.yaml that sets a period."""


def of_compose(node: dict[str, Any]) -> dict[str, str]:
    """The lines of cassandra.yaml that a node in the Compose file overrides."""
    options = node["environment"]["JVM_EXTRA_OPTS"].split()
    assert "-Dcassandra.config.allow_system_properties=true" in options
    found = (re.fullmatch(r"-Dcassandra\.settings\.(\w+)=(\S+)", option) for option in options)
    return {match[1]: match[2] for match in found if match is not None}


def test_the_compose_file_has_the_settings_of_the_test_nodes() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    nodes = {
        name: each for name, each in services.items() if each["image"].startswith("cassandra:")
    }
    assert sorted(nodes) == ["node1", "node2", "node3"]
    for node in nodes.values():
        assert of_compose(node) == {**REQUIRED, **WITH_GROUPS}
        assert VERSION.startswith(node["image"].removeprefix("cassandra:"))
    waits = {name: list(each.get("depends_on", ())) for name, each in nodes.items()}
    assert waits == {"node1": [], "node2": ["node1"], "node3": ["node2"]}, "one joins at a time"


def test_the_nodes_of_the_compose_file_are_one_cluster_with_data_of_their_own() -> None:
    document = yaml.safe_load(COMPOSE.read_text())
    services = document["services"]
    for name in ("node1", "node2", "node3"):
        node = services[name]
        environment = {**node["environment"]}
        del environment["JVM_EXTRA_OPTS"]
        assert environment == {
            "CASSANDRA_CLUSTER_NAME": "tablestone",
            "CASSANDRA_SEEDS": "node1",
            "CASSANDRA_DC": "dc1",
            "CASSANDRA_RACK": "rack1",
            # The image writes CASSANDRA_DC to a file that only this snitch reads.
            "CASSANDRA_ENDPOINT_SNITCH": "GossipingPropertyFileSnitch",
            "CASSANDRA_NUM_TOKENS": "16",
            "MAX_HEAP_SIZE": "1G",
            "HEAP_NEWSIZE": "256M",
        }
        assert node["volumes"] == [f"{name}:/var/lib/cassandra"], "where the image keeps its data"
        assert "ports" not in node, "only the server is reached from outside"
    assert set(document["volumes"]) == {"node1", "node2", "node3"}


def test_the_server_of_the_compose_file_is_for_this_machine_and_starts_last() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    conditions = {
        name: {other: each["condition"] for other, each in service.get("depends_on", {}).items()}
        for name, service in services.items()
    }
    assert conditions == {
        "node1": {},
        "node2": {"node1": "service_healthy"},
        "node3": {"node2": "service_healthy"},
        "init": {"node3": "service_healthy"},
        "server": {"init": "service_completed_successfully"},
    }
    server = services["server"]
    assert server["ports"] == [f"127.0.0.1:{PORT.default}:{PORT.default}"]
    assert server["environment"]["TABLESTONE_ACCOUNT"] == "${TABLESTONE_ACCOUNT-none}"


def test_the_guide_says_what_init_sets() -> None:
    """Every cell of the table, beside the statement that `tablestone cluster init` sends."""
    table = GUIDE.partition("\n| what `cluster init` sets | why |\n")[2].partition("\n\n")[0]
    cells = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[1:]]
    strategy, copies = "NetworkTopologyStrategy", 3
    assert f"'class': '{strategy}', 'dc1': {copies}" in replication({"dc1": copies})
    assert cells == [
        f"`replication`: `{strategy}`, {copies}",
        "`durable_writes = true`",
        "`read_repair = 'BLOCKING'`",
        f"`speculative_retry = '{SPECULATIVE_RETRY}'`",
        f"`compaction`: `{COMPACTION}`",
        f"`gc_grace_seconds = {GC_GRACE_SECONDS}`",
    ]
    assert keyspace_statement("k", {"dc1": 3}).endswith("durable_writes = true")
    for statement in TABLES.values():
        for cell in cells[2:4] + cells[5:]:
            assert cell.strip("`") in statement
        assert f"compaction = {{'class': '{COMPACTION}'}}" in statement


def test_the_thresholds_of_the_guide_are_those_of_the_program() -> None:
    pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")
    from tablestone.engines.cassandra import checks  # noqa: PLC0415 - needs the driver

    text = " ".join(GUIDE.split())
    clocks = (checks.CLOCK_SECONDS_ADVISED, checks.CLOCK_SECONDS_MAX)
    sweep = (limits.SWEEP_ROWS_PER_STEP, PARTITIONS_AT_ONCE, NETWORK_PAUSE_SECONDS)
    for sentence, said, value in (
        ("is below 8 MiB, the checks warn", 8 << 20, checks.MUTATION_BYTES_ADVISED),
        ("clocks 1 s apart (warning), twelve hours (refused)", (1, 12 * 3600), clocks),
        ("Twelve hours off, a server refuses to start.", 12 * 3600, clocks[1]),
        ("500 rows and eight partitions at a time with a pause of 50 ms", (500, 8, 0.05), sweep),
        ("less than three hours is refused", 3 * 3600, checks.GC_GRACE_SECONDS_MIN),
    ):
        assert sentence in text
        assert said == value, sentence


def test_the_guide_names_the_settings_of_the_compose_file() -> None:
    """`test_secured_node.py` starts a node with them, on top of the cassandra.yaml that is delivered."""
    table = GUIDE.partition("\n## Settings of the nodes\n")[2].partition(
        "\n\n| what `cluster init` sets"
    )[0]
    cells = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    named = dict(re.findall(r"`(\w+): ([^`]+)`", " ".join(cells)))
    assert named == {**REQUIRED, **WITH_GROUPS}


def test_the_compose_file_makes_and_uses_one_keyspace() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    made = parse_address(services["init"]["command"][-1])
    used = parse_address(services["server"]["environment"]["TABLESTONE_ENGINE"])
    datacenter = services["node1"]["environment"]["CASSANDRA_DC"]
    assert (made.hosts, made.keyspace, made.datacenter) == (used.hosts, used.keyspace, datacenter)
    assert (made.replication, used.datacenter) == (3, datacenter)
    assert {host for host, _ in used.hosts} <= set(services)


def test_the_compose_file_has_what_the_guide_names() -> None:
    lines = lines_of_the_guide("docker")
    for line in lines:
        assert line[1:4] == ["compose", "--file", COMPOSE.relative_to(ROOT).as_posix()]
        assert f"#   {' '.join(line)}\n" in COMPOSE.read_text()
    assert [line[4] for line in lines] == ["up", "exec"]
    assert lines[1][5:7] == ["server", "tablestone"]


def test_the_lines_of_the_guide_for_three_machines_are_commands() -> None:
    """One URL, to which `cluster init` adds the copies; no server with the public key is open to the network."""
    lines = [line[1:] for line in lines_of_the_guide("tablestone") if "node1" in line[-1]]
    assert [line[0] for line in lines] == ["cluster", "account", "serve", "account"]
    urls = {line[-1].removesuffix("&replication=3") for line in lines}
    assert len(urls) == 1
    assert parse_address(urls.pop()).datacenter == "dc1"
    assert {line[-2] for line in lines} == {"--engine"}
    for line in lines:
        context = click.Context(commands)
        command: click.Command = commands
        words = list(line)
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, line
            command = found
        command.make_parser(context).parse_args(words)
    assert lines[2][lines[2].index("--account") + 1] == "none"


def test_the_datacenter_has_the_settings_of_the_test_nodes() -> None:
    spec = yaml.safe_load(DATACENTER.read_text())["spec"]
    settings = spec["config"]["cassandra-yaml"]
    assert settings == {
        **REQUIRED,
        **WITH_GROUPS,
        "authenticator": "PasswordAuthenticator",
        "authorizer": "CassandraAuthorizer",
        "role_manager": "CassandraRoleManager",
        "num_tokens": 16,
    }
    assert set(spec["config"]) == {"cassandra-yaml", "jvm-server-options"}
    assert set(spec["config"]["jvm-server-options"]) == {"initial_heap_size", "max_heap_size"}
    assert (spec["serverVersion"], spec["size"], len(spec["racks"])) == (VERSION, 3, 3)
    kind = yaml.safe_load(DATACENTER.read_text())
    assert (kind["apiVersion"], kind["kind"]) == (
        "cassandra.datastax.com/v1beta1",
        "CassandraDatacenter",
    )


def test_the_guide_names_the_service_that_the_operator_makes() -> None:
    datacenter = yaml.safe_load(DATACENTER.read_text())
    service = f"{datacenter['spec']['clusterName']}-{datacenter['metadata']['name']}-service"
    [url] = re.findall(rf"cassandra://\S*{service}\S*datacenter=\w+", GUIDE)
    address = parse_address(url)
    assert (urlsplit(url).scheme, address.datacenter) == (
        "cassandra",
        datacenter["metadata"]["name"],
    )
    assert (address.user, address.password_file) == (SUPERUSER, None)


def lines_of_the_guide(program: str) -> list[list[str]]:
    """The words of the guide's command lines that start with this program."""
    text = GUIDE.replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(rf"^    ({program} .+)$", text, re.MULTILINE)]


def test_the_lines_for_kubernetes_are_in_one_namespace_that_is_made_first() -> None:
    repository, *installed = lines_of_the_guide("helm")
    assert repository[:3] == ["helm", "repo", "add"]
    assert [line[2] for line in installed] == ["cass-operator", "tables"]
    assert installed[0][3].startswith(f"{repository[3]}/")
    assert ["--create-namespace" in line for line in installed] == [True, False]
    assert GUIDE.index("--create-namespace") < GUIDE.index("    kubectl ")
    lines = [*installed, *lines_of_the_guide("kubectl")]
    assert {line[line.index("--namespace") + 1] for line in lines} == {"tables"}
    assert len(lines) == 5
    kind, name = yaml.safe_load(DATACENTER.read_text())["kind"], "dc1"
    assert [f"{kind.lower()}/{name}" in line for line in lines].count(True) == 1


@needs("helm")
def test_the_guide_gives_the_chart_the_password_of_the_operator() -> None:
    [made] = [line for line in lines_of_the_guide("kubectl") if line[1:3] == ["create", "secret"]]
    [installed] = [line for line in lines_of_the_guide("helm") if line[2] == "tables"]
    assert installed[1] == "install"
    rendered = run(
        "helm", "template", *(word.replace("deploy/", f"{DEPLOY}/") for word in installed[2:])
    )
    assert rendered.returncode == 0, rendered.stdout
    pods = [
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all(rendered.stdout)
        if each["kind"] in {"StatefulSet", "Job"}
    ]
    assert len(pods) == 2
    for pod in pods:
        [container] = pod["containers"]
        read = {
            each["name"]: each["valueFrom"]["secretKeyRef"]
            for each in container["env"]
            if "valueFrom" in each
        }
        assert read["TABLESTONE_ENGINE"] == {"name": made[4], "key": made[-1].partition("=")[0]}
        assert read["CASSANDRA_PASSWORD"] == {"name": SUPERUSER, "key": "password"}


@pytest.mark.parametrize("planted", ["commitlog_sync=periodic", "paxos_variant=v1"])
def test_another_setting_is_found(planted: str) -> None:
    name = planted.partition("=")[0]
    text = re.sub(rf"{name}=\w+", planted, COMPOSE.read_text())
    node = yaml.safe_load(text)["services"]["node2"]
    assert of_compose(node) != {**REQUIRED, **WITH_GROUPS}


@needs("check-jsonschema")
def test_the_compose_file_is_one() -> None:
    checked = run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE))
    assert checked.returncode == 0, checked.stdout
