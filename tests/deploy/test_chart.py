"""The Helm chart: Kubernetes accepts what Helm renders, and a wrong value is named in one line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from deploy.deployed import CHART, needs, run
from deploy.install import missing
from tablestone import __version__
from tablestone.cli.commands.cluster import cluster, init
from tablestone.cli.commands.postgresql import init as init_schema
from tablestone.cli.commands.postgresql import postgresql
from tablestone.cli.option_sources import read_configuration
from tablestone.engines.cassandra.cluster_url import NOT_REPEATED
from tablestone.engines.postgresql.address import NO_PASSWORD, parse_address

pytestmark = needs("helm")
KUBERNETES = "1.33"
PASSWORD_VARIABLE = "CASSANDRA_PASSWORD"


def rendered(*words: str) -> list[dict[str, Any]]:
    """The manifests that `helm template` renders."""
    made = run("helm", "template", "tables", str(CHART), "--namespace", "prod", *words)
    assert made.returncode == 0, made.stdout
    return [each for each in yaml.safe_load_all(made.stdout) if each is not None]


def one(kind: str, manifests: Sequence[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [each for each in manifests if each["kind"] == kind]
    return found


VALUES: dict[str, tuple[str, ...]] = {
    "the defaults": (),
    "everything": (
        *("--set", "accounts.secretName=tables", "--set", "tls.secretName=certificate"),
        *("--set", "serviceMonitor.enabled=true", "--set", "serviceMonitor.labels.release=p"),
        *("--set", "image.pullSecrets={registry}", "--set", "persistence.storageClass=fast"),
        *(
            "--set",
            "nodeSelector.disk=ssd",
            "--set",
            "podAnnotations.a=b",
            "--set",
            "podLabels.c=d",
        ),
        *("--set", "options.workers=2", "--set", "podDisruptionBudget.maxUnavailable=50%"),
    ),
    "a cluster": ("--set", "engine.secretName=cassandra", "--set", "replicas=3"),
    "a cluster with a password and TLS, to be prepared": (
        *("--set", "engine.secretName=cassandra", "--set", "engine.initialize=true"),
        *("--set", "engine.passwordSecretName=superuser", "--set", "engine.tlsSecretName=nodes"),
        *("--set", "image.pullSecrets={registry}", "--set", "nodeSelector.disk=ssd"),
        *("--set", "podAnnotations.a=b", "--set", "podLabels.c=d"),
        *("--set", "tolerations[0].key=k", "--set", "tolerations[0].operator=Exists"),
    ),
}


@pytest.mark.parametrize("words", VALUES.values(), ids=VALUES)
def test_kubernetes_takes_it(words: tuple[str, ...]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=missing("helm") or "")
    manifests = rendered(*words)
    for manifest in manifests:
        if manifest["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    kinds = sorted(each["kind"] for each in manifests)
    expected = ["PodDisruptionBudget", "Service", "Service", "ServiceAccount", "StatefulSet"]
    monitored = ["ServiceMonitor"] if "serviceMonitor.enabled=true" in words else []
    prepared = ["Job"] if "engine.initialize=true" in words else []
    assert kinds == sorted([*expected, *monitored, *prepared])


def test_a_wrong_manifest_is_found() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    manifest = one("StatefulSet", rendered())
    manifest["spec"]["replicas"] = "one"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_helm_lints_it() -> None:
    linted = run("helm", "lint", "--strict", str(CHART))
    assert linted.returncode == 0, linted.stdout


def environment_of(*words: str, kind: str = "StatefulSet") -> dict[str, Any]:
    """The variables of the container; one from a secret has the secret's name and key."""
    (container,) = one(kind, rendered(*words))["spec"]["template"]["spec"]["containers"]
    return {
        each["name"]: each["value"]
        if "value" in each
        else tuple(each["valueFrom"]["secretKeyRef"][part] for part in ("name", "key"))
        for each in container["env"]
    }


def test_the_server_is_told_what_the_values_say() -> None:
    environment = environment_of("--set", "options.workers=2", "--set", "options.https-only=true")
    configuration = read_configuration({}, environment)
    assert configuration.warnings == ()
    assert configuration.data_directory == Path("/data")
    assert (configuration.host, configuration.port, configuration.workers) == ("0.0.0.0", 10002, 2)
    assert (configuration.accounts, configuration.has_development_account) == ((), False)
    assert configuration.https_only
    assert (configuration.log_level, configuration.log_format) == ("info", "json")


def test_secrets() -> None:
    words = ("--set", "accounts.secretName=tables", "--set", "engine.secretName=cassandra")
    environment = environment_of(*words)
    assert environment["TABLESTONE_ACCOUNT"] == ("tables", "accounts")
    assert environment["TABLESTONE_ENGINE"] == ("cassandra", "url")
    engine = "cassandra://a,b/tables?datacenter=dc1"
    told = environment | {"TABLESTONE_ENGINE": engine, "TABLESTONE_ACCOUNT": "weather:a2V5"}
    assert read_configuration({}, told).data_directory is None
    assert "volumeClaimTemplates" not in one("StatefulSet", rendered(*words))["spec"]


CLUSTER = ("--set", "engine.secretName=cassandra", "--set", "engine.initialize=true")
BOTH = pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
"""The servers, and the Job that prepares the keyspace."""


@BOTH
def test_the_password_of_the_cluster_is_in_a_secret(kind: str) -> None:
    assert f"set {PASSWORD_VARIABLE}" in NOT_REPEATED
    assert PASSWORD_VARIABLE not in environment_of(*CLUSTER, kind=kind)
    words = (*CLUSTER, "--set", "engine.passwordSecretName=superuser")
    environment = environment_of(*words, kind=kind)
    assert environment["TABLESTONE_ENGINE"] == ("cassandra", "url")
    assert environment[PASSWORD_VARIABLE] == ("superuser", "password")
    named = environment_of(*words, "--set", "engine.passwordSecretKey=p", kind=kind)
    assert named[PASSWORD_VARIABLE] == ("superuser", "p")


@BOTH
def test_a_database_gets_its_own_password_and_command(kind: str) -> None:
    words = ("--set", "engine.kind=postgresql", "--set", "engine.passwordSecretName=role")
    environment = environment_of(*CLUSTER, *words, kind=kind)
    assert environment["PGPASSWORD"] == ("role", "password")
    assert "set PGPASSWORD" in NO_PASSWORD
    assert PASSWORD_VARIABLE not in environment
    job = one("Job", rendered(*CLUSTER, *words))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [postgresql.name, init_schema.name]
    parse_address("postgresql://r@db/t?sslmode=verify-full&sslrootcert=/engine-tls/ca.crt")
    assert (
        "?sslmode=verify-full&sslrootcert=/engine-tls/ca.crt" in (CHART / "values.yaml").read_text()
    )


@BOTH
def test_the_certificates_of_the_cluster_are_in_a_secret(kind: str) -> None:
    pods = [
        one(kind, rendered(*CLUSTER, *words))["spec"]["template"]["spec"]
        for words in ((), ("--set", "engine.tlsSecretName=nodes"))
    ]
    (without, mounts), (no_volumes, volumes) = (
        [[each["name"] for each in place] for place in places]
        for places in (
            [pod["containers"][0]["volumeMounts"] for pod in pods],
            [pod["volumes"] for pod in pods],
        )
    )
    assert (without, no_volumes) == (["tmp"], ["tmp"])
    assert (mounts, volumes) == (["tmp", "engine-tls"], ["tmp", "engine-tls"])
    mount, volume = pods[1]["containers"][0]["volumeMounts"][1], pods[1]["volumes"][1]
    assert (mount["mountPath"], volume["secret"]["secretName"]) == ("/engine-tls", "nodes")
    assert f"ca-file={mount['mountPath']}/ca.crt" in (CHART / "values.yaml").read_text()


def test_a_job_prepares_the_keyspace_before_the_servers_start() -> None:
    manifests = rendered(*CLUSTER)
    job, servers = one("Job", manifests), one("StatefulSet", manifests)
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == servers["spec"]["template"]["spec"]["containers"][0]["image"]
    command = click.Group(commands={"cluster": cluster})
    for word in container["args"]:
        assert isinstance(command, click.Group)
        command = command.commands[word]  # type: ignore[assignment]
    assert command is init
    # Helm runs hooks before it creates the rest of the chart.
    assert "serviceAccountName" not in job["spec"]["template"]["spec"]
    labels = job["spec"]["template"]["metadata"]["labels"].items()
    for each in manifests:
        if each["kind"] in {"Service", "PodDisruptionBudget"}:
            selector = each["spec"]["selector"]
            assert not selector.get("matchLabels", selector).items() <= labels


@BOTH
def test_the_pod_has_no_rights(kind: str) -> None:
    pod = one(kind, rendered(*CLUSTER))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_admin_port_is_probed_and_scraped_and_not_for_clients() -> None:
    manifests = rendered("--set", "serviceMonitor.enabled=true", "--set", "admin.port=9000")
    (container,) = one("StatefulSet", manifests)["spec"]["template"]["spec"]["containers"]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness")}
    assert list(probes.values()) == [{"path": "/health/ready", "port": "admin"}] * 2
    assert container["livenessProbe"]["httpGet"] == {"path": "/health/live", "port": "admin"}
    services = {each["metadata"]["name"]: each for each in manifests if each["kind"] == "Service"}
    ports = {
        name: [port["name"] for port in each["spec"]["ports"]] for name, each in services.items()
    }
    assert ports == {"tables-tablestone": ["table"], "tables-tablestone-admin": ["admin"]}
    selected = one("ServiceMonitor", manifests)["spec"]["selector"]["matchLabels"].items()
    chosen = [
        name for name, each in services.items() if selected <= each["metadata"]["labels"].items()
    ]
    assert chosen == ["tables-tablestone-admin"]


REFUSED: dict[str, tuple[str, str]] = {
    "a number": ("replicas=two", "- at '/replicas': got string, want integer"),
    "several servers on one directory": ("replicas=2", "- at '/replicas': maximum: got 2, want 1"),
    "a truth value": (
        "serviceMonitor.enabled=1",
        "- at '/serviceMonitor/enabled': got number, want boolean",
    ),
    "a keyspace without a cluster": (
        "engine.initialize=true",
        "- at '/engine/initialize': value must be false",
    ),
    "a password without a cluster": (
        "engine.passwordSecretName=superuser",
        "- at '/engine/passwordSecretName': value must be ''",
    ),
    "an unknown value": ("replica=1", "- at '': additional properties 'replica' not allowed"),
    "an unknown option": (
        "options.log-levl=info",
        "- at '/options': additional properties 'log-levl' not allowed",
    ),
    "an option of a few words": (
        "options.any-version=newest",
        "- at '/options/any-version': value must be one of 'later', true, false",
    ),
    "a port": ("service.port=70000", "- at '/service/port': maximum: got 70,000, want 65,535"),
    "a size": (
        "persistence.size=ten",
        "- at '/persistence/size': 'ten' does not match pattern '^[0-9]+([.][0-9]+)?([KMGTPE]i?)?$'",
    ),
}


@pytest.mark.parametrize(("value", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_value_is_refused(value: str, sentence: str) -> None:
    refused = run("helm", "template", "tables", str(CHART), "--set", value)
    assert refused.returncode != 0
    lines = [line for line in refused.stdout.splitlines() if line.startswith("- ")]
    assert lines == [sentence]


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
