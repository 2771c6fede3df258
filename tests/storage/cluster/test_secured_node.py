"""A node with passwords, permissions, TLS and low limits: what a server says and answers, and how it goes on.

The test starts a node of its own, and runs only where ENGINE_UNDER_TEST is set.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from azure.core.exceptions import HttpResponseError
from azure.data.tables import RequestTooLargeError, TableServiceClient
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from certificates import certificate_pem, make_key
from server_process import clean_environment, start_server
from storage.cluster.distribution import missing
from storage.cluster.keyspaces import on_a_cluster, tablestone
from storage.cluster.nodes import Cluster
from storage.cluster.settings import secured
from tablestone import limits
from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.engines.cassandra.cluster_url import parse_address
from tablestone.engines.contract import EngineBusy, Key
from tablestone.tables import storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog
from tablestone.tables.sweeping import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from server_process import ServerProcess

pytestmark = [
    on_a_cluster,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.sdk,
]

LOW = {
    "max_mutation_size": "1MiB",
    "tombstone_warn_threshold": "20",
    "tombstone_failure_threshold": "50",
    "read_thresholds_enabled": "true",
    "local_read_size_warn_threshold": "512KiB",
    "local_read_size_fail_threshold": "1MiB",
}
AS_DELIVERED: dict[str, str | None] = {
    "commitlog_sync": "periodic",
    "commitlog_sync_period": "10000ms",
    "commitlog_sync_group_window": None,
    "paxos_variant": "v1",
}
"""Lines of the cassandra.yaml that Cassandra is delivered with."""
COMPOSE = Path(__file__).parents[3] / "deploy" / "cassandra" / "compose.yaml"
OF_COMPOSE = yaml.safe_load(COMPOSE.read_text())["x-node"]["environment"]["JVM_EXTRA_OPTS"].split()
"""The options in the Compose file that override them."""
SOON = {
    "tablestone.engines.cassandra.session.REQUEST_SECONDS_MAX": 1.0,
    "tablestone.engines.cassandra.connection.READ_SECONDS_MAX": 2.0,
    "tablestone.engines.cassandra.engine.COMMIT_SECONDS_MAX": 2.0,
}
"""The server gives a cluster up earlier, so that the tests need not wait."""
PASSWORD = "correct horse"
PATIENCE_SECONDS = 60.0


@dataclass
class Secured:
    """The node, and the parts of a URL for a user with few permissions."""

    cluster: Cluster
    authority: Path
    password: Path

    def url(
        self, user: str = "tablestone@", *, tls: bool = True, password: Path | None = None
    ) -> str:
        url = self.cluster.url.replace("://", f"://{user}")
        if user:
            url += f"&password-file={password or self.password}"
        return url + (f"&tls=yes&ca-file={self.authority}" if tls else "")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver

    directory = tmp_path_factory.mktemp("secured")
    key = make_key("rsa")
    authority = directory / "ca.pem"
    authority.write_bytes(certificate_pem(key, "node"))
    store = directory / "node.p12"
    store.write_bytes(
        serialize_key_and_certificates(
            b"node",
            key,
            load_pem_x509_certificate(authority.read_bytes()),
            None,
            BestAvailableEncryption(b"changeit"),
        )
    )
    (directory / "password").write_text(PASSWORD)
    (directory / "first").write_text("cassandra")
    settings = {**secured(store, "changeit"), **LOW, **AS_DELIVERED}
    cluster = Cluster.create(directory / "nodes", 1, settings, OF_COMPOSE)
    try:
        node = Secured(cluster, authority, directory / "password")
        root = Connection(
            parse_address(node.url("cassandra@", password=directory / "first")), in_keyspace=False
        )
        for statement in (  # the permissions that docs/guides/cassandra-settings.md names
            f"CREATE ROLE IF NOT EXISTS tablestone WITH PASSWORD = '{PASSWORD}' AND LOGIN = true",
            "GRANT CREATE ON ALL KEYSPACES TO tablestone",
            "CREATE ROLE IF NOT EXISTS looking WITH PASSWORD = 'x' AND LOGIN = true",
            "GRANT SELECT ON system_views.settings TO looking",
        ):
            root.define(statement)
        made = tablestone("cluster", "init", "--engine", node.url() + "&replication=1")
        assert (made.returncode, made.stderr) == (0, "")
        assert "does not show its settings to this user" in made.stdout
        root.define("GRANT SELECT ON ALL KEYSPACES TO looking")
        root.close()
        yield node
    finally:
        cluster.remove()


@pytest.fixture(scope="module")
def server(node: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = start_server(
        tmp_path_factory.mktemp("server"), "--engine", node.url(), "--workers", "1", constants=SOON
    )
    yield server
    server.kill()


def service_of(server: ServerProcess) -> TableServiceClient:
    return TableServiceClient.from_connection_string(
        server.connection_string, retry_total=0, read_timeout=60
    )


def refused(act: Callable[[], object]) -> tuple[int | None, str, str | None]:
    with pytest.raises(HttpResponseError) as answered:
        act()
    response: Any = answered.value.response
    code = json.loads(response.text())["odata.error"]["code"]
    return response.status_code, code, response.headers.get("Retry-After")


BUSY = (503, "ServerBusy", "1")
"""The service's answer (wire 9), with the seconds until a retry makes sense."""


def test_the_options_of_the_compose_file_act_on_a_delivered_configuration(
    node: Secured, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("x")
    checked = tablestone("cluster", "check", "--engine", node.url("looking@", password=password))
    assert checked.returncode == 0, checked
    assert "commitlog_sync" not in checked.stdout
    assert "paxos_variant" not in checked.stdout
    assert "asks for no password" not in checked.stdout
    assert "takes writes of at most 1024 KiB" in checked.stdout  # it has read the settings


@pytest.mark.parametrize(
    ("user", "tls", "password", "why"),
    [
        ("", True, None, "refuses the credentials without a user."),
        ("tablestone@", True, "wrong", "refuses the credentials for user 'tablestone'."),
        ("nobody@", True, None, "refuses the credentials for user 'nobody'."),
        ("tablestone@", False, None, "No Cassandra node answers at "),
    ],
)
def test_a_user_who_may_not_connect_gets_a_sentence(
    node: Secured, tmp_path: Path, user: str, *, tls: bool, password: str | None, why: str
) -> None:
    file = None
    if password is not None:
        file = tmp_path / "password"
        file.write_text(password)
    url = node.url(user, tls=tls, password=file)
    for command in (("serve", "--port", "0", "--workers", "2"), ("cluster", "check")):
        ended = tablestone(*command, "--engine", url)
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended
        assert why in ended.stderr


def test_the_job_of_the_chart_has_its_url_and_password_from_the_environment(node: Secured) -> None:
    url = node.url().replace(f"&password-file={node.password}", "")
    told = {"TABLESTONE_ENGINE": url, "CASSANDRA_PASSWORD": PASSWORD}
    made = tablestone("cluster", "init", environment=told)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.startswith("Keyspace tablestone: exists already.\n")
    refused_without = tablestone("cluster", "init", environment={"TABLESTONE_ENGINE": url})
    assert (refused_without.returncode, refused_without.stderr.count("\n")) == (2, 1)
    assert "There is no password for 'tablestone'" in refused_without.stderr


def test_a_certificate_of_another_signer_is_refused(node: Secured, tmp_path: Path) -> None:
    other = tmp_path / "ca.pem"
    other.write_bytes(certificate_pem(make_key("rsa"), "node"))
    url = node.url().replace(str(node.authority), str(other))
    ended = tablestone("cluster", "check", "--engine", url)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "There is no TLS connection to the cluster" in ended.stderr


def test_a_server_whose_clock_is_a_day_off_does_not_start(node: Secured) -> None:
    """The server's process sees a clock that is a day ahead."""
    program = (
        "import sys, time; now = time.time_ns; time.time_ns = lambda: now() + 24 * 3600 * 10**9\n"
        "from tablestone.cli.main import main; sys.exit(main())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "serve", "--port", "0", "--engine", node.url()],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=clean_environment(),
    )
    assert ended.returncode == 2
    assert "have clocks 24 hours apart: set them by NTP." in ended.stderr


def test_a_transaction_that_the_nodes_do_not_take_changes_nothing(server: ServerProcess) -> None:
    service = service_of(server)
    table = service.create_table("Wide")
    wide = [
        ("upsert", {"PartitionKey": "p", "RowKey": f"{row:02}", "s": "x" * 30_000})
        for row in range(60)
    ]
    with pytest.raises(RequestTooLargeError):
        table.submit_transaction(wide)
    assert list(table.list_entities()) == []
    table.submit_transaction(wide[:10])
    assert len(list(table.list_entities())) == 10


def test_a_partition_with_too_many_deleted_rows_is_busy_and_others_are_served(
    server: ServerProcess,
) -> None:
    table = service_of(server).create_table("Queue")
    for start in range(0, 90, 30):
        keys = [{"PartitionKey": "p", "RowKey": f"{row:03}"} for row in range(start, start + 30)]
        table.submit_transaction([("create", key) for key in keys])
        table.submit_transaction([("delete", key) for key in keys])
    table.create_entity({"PartitionKey": "p", "RowKey": "last"})
    assert refused(lambda: list(table.query_entities("PartitionKey eq 'p'"))) == BUSY
    assert table.get_entity("p", "last")["RowKey"] == "last"
    assert [
        each["RowKey"] for each in table.query_entities("PartitionKey eq 'p' and RowKey gt '089'")
    ] == ["last"]
    assert "tombstone_failure_threshold" in server.stderr


def test_a_read_that_is_larger_than_the_nodes_allow_is_busy_and_smaller_ones_are_served(
    server: ServerProcess,
) -> None:
    table = service_of(server).create_table("Large")
    for start in range(0, 60, 10):
        table.submit_transaction(
            [
                ("create", {"PartitionKey": "p", "RowKey": f"{row:03}", "s": "x" * 30_000})
                for row in range(start, start + 10)
            ]
        )
    assert refused(lambda: list(table.query_entities("PartitionKey eq 'p'"))) == BUSY
    assert "local_read_size_fail_threshold" in server.stderr
    assert table.get_entity("p", "059")["RowKey"] == "059"
    assert len(list(table.query_entities("PartitionKey eq 'p' and RowKey lt '010'"))) == 10
    table.upsert_entity({"PartitionKey": "p", "RowKey": "060"})
    assert table.get_entity("p", "060")["RowKey"] == "060"


def test_more_deleted_tables_than_may_be_read_are_in_the_way_of_no_request(node: Secured) -> None:
    """The sweeper reads their records in parts, and so removes them all the same."""
    from tablestone.engines.cassandra.opening import open_cassandra  # noqa: PLC0415 - needs the driver

    owner = Named("dropper")
    ids = [bytes((37 * number % 256,)) * storage_keys.TABLE_ID_LENGTH for number in range(99)]
    fresh_id = iter(ids).__next__
    later = (limits.SWEEP_AGAIN_SECONDS + 1) * TICKS_PER_SECOND
    notes = storage_keys.deleted_rows(owner.name)

    async def scene() -> None:
        engine = open_cassandra(parse_address(node.url()), system_clock)
        catalog = Catalog(engine, system_clock, fresh_id)
        sweeper = Sweeper(engine, lambda: system_clock() + later, lambda: b"a server")
        for _ in range(2):
            for number in range(40):
                await catalog.create(owner, f"table{number}")
            assert await catalog.delete_all(owner) == 40
            # The server of other tests sweeps too, and may hold what this sweeper wants for a moment.
            with suppress(EngineBusy):
                while await engine.scan(notes, rows_max=1):
                    await sweeper.sweep(owner.name)
        with pytest.raises(EngineBusy):
            await engine.scan(notes, rows_max=1)
        leases = engine.leases
        assert leases is not None
        assert leases.last_change_of is not None
        assert await leases.last_change_of(notes.start.partition) > 0
        await catalog.create(owner, "last")
        assert await catalog.find(owner, "last") is not None
        await catalog.delete(owner, "last")
        assert await catalog.find(owner, "last") is None
        note = Key(notes.start.partition, storage_keys.deleted_slots(ids[80])[0])
        assert await engine.get(note) is not None
        assert owner.name in [account async for account in sweeper.accounts()]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while await engine.get(note) is not None:
            assert time.monotonic() < deadline, "the note of the last table stays"
            await sweeper.sweep(owner.name)
        await engine.close()

    asyncio.run(scene())


@pytest.mark.parametrize("how", ["paused", "killed"])
def test_a_cluster_that_does_not_answer_is_busy_until_it_is_back(
    node: Secured, server: ServerProcess, how: str
) -> None:
    table = service_of(server).create_table_if_not_exists("Kept")
    table.upsert_entity({"PartitionKey": "p", "RowKey": "before"})
    only = node.cluster.nodes[0]
    (only.pause if how == "paused" else only.kill)()
    try:
        assert refused(lambda: table.get_entity("p", "before")) == BUSY
        assert refused(lambda: list(table.list_entities())) == BUSY
        # A write that was sent and never answered may have been applied.
        answer = refused(lambda: table.create_entity({"PartitionKey": "p", "RowKey": how}))
        assert answer in {BUSY, (500, "OperationTimedOut", None)}
    finally:
        if how == "paused":
            only.resume()
        else:
            node.cluster.start(only)
    deadline = time.monotonic() + 120
    while True:
        try:
            table.upsert_entity({"PartitionKey": "p", "RowKey": "after"})
            break
        except HttpResponseError:
            assert time.monotonic() < deadline, "the server did not recover"
    assert table.get_entity("p", "before")["RowKey"] == "before"
