"""`tablestone cluster init` and `check`, and the clusters that a server refuses: one sentence and an exit status each.

The tests that need a cluster use the one that ENGINE_UNDER_TEST names.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from azure.data.tables import TableServiceClient

from server_process import clean_environment, start_server
from storage.cluster.keyspaces import KEYSPACE, made_keyspace, on_a_cluster, tablestone, url_of
from storage.cluster_engine import URL, drop_keyspace
from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.engines.cassandra.cluster_url import ClusterAddress, parse_address
from tablestone.engines.cassandra.layout import LAYOUT, RULES_LAYOUT, TABLES, keyspace_statement
from tablestone.engines.contract import EngineRefused
from tablestone.extras import pip_install

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tablestone.engines.cassandra.connection import Connection


def test_an_address_is_read() -> None:
    url = "cassandra://me@[::1]:1,node2/k_1?datacenter=dc1&replication=dc1:3,dc2:2&tls=yes&ca-file=/ca"
    assert parse_address(url) == ClusterAddress(
        (("::1", 1), ("node2", 9042)), "k_1", "dc1", {"dc1": 3, "dc2": 2}, "me", None, True, "/ca"
    )


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("cassandra:k", "its form is"),
        ("cassandra://h", "'' is not a keyspace name"),
        ("cassandra://h/K", "'K' is not a keyspace name"),
        ("cassandra://h/k;drop", "is not a keyspace name"),
        ("cassandra://h:0/k", "'h:0' is not HOST or HOST:PORT"),
        ("cassandra://h,/k", "'' is not HOST"),
        ("cassandra://u:secret@h/k", "A password has no place in the engine's URL"),
        *(
            (url, "A password has no place in the engine's URL")
            for url in (
                "cassandra://u:secret#s@h/k",
                "cassandra://u:s#secret@h/k",
                "cassandra://u:s/secret@h/k",
                "cassandra://u:s?secret@h/k",
                "cassandra://u:s@secret#@h/k",
                "cassandra://u:secret[@h/k",
                "cassandra://u:secret",
                "cassandra://u:secret/k",
                "cassandra://u:1secret/k",
                "cassandra:u:secret@h/k",
                "cassandra:/u:secret@h/k",
                "cassandra:///u:secret@h/k",
                "cassandra://u:se\ncret\nsecret#@h/k",
            )
        ),
        ("cassandra://h/k?password=secret", "'password' is not an option"),
        ("cassandra://h/K?password=secret", "'K' is not a keyspace name"),
        ("cassandra://h/K#secret", "'K' is not a keyspace name"),
        ("cassandra://h/k?secret", "is not a list of OPTION=VALUE"),
        ("cassandra://h/k?x=1", "'x' is not an option: use datacenter, "),
        ("cassandra://h/k?datacenter=", "datacenter has no value"),
        ("cassandra://h/k?datacenter=a&datacenter=b", "an option is given twice"),
        ("cassandra://h/k?datacenter=a'b", "is not a datacenter name"),
        ("cassandra://h/k?replication=many", "replication is a number of copies"),
        *(
            (f"cassandra://h/k?replication={copies}", "replication is from 1 to 99 copies")
            for copies in ("0", "100", "9" * 5_000, "dc1:0", "dc1:3,dc2:0", "dc1:100")
        ),
        ("cassandra://h/k?replication=dc1:1,dc1:2", "names the datacenter 'dc1' twice"),
        ("cassandra://h/table", "'table' is a reserved word of CQL and not a keyspace name"),
        ("cassandra://h:abc/k", "a port is a number from 1 to 65535"),
        ("cassandra://h/k?password-file=x", "password-file needs a user: cassandra://USER@HOST"),
        ("cassandra://@h/k?password-file=x", "password-file needs a user"),
        ("cassandra://u@h/k?password-file=%00", "a character that cannot be printed"),
        ("cassandra://%00@h/k", "a character that cannot be printed"),
        ("cassandra://h/k?tls=on", "tls must be yes or no"),
        ("cassandra://h/k?ca-file=x", "need tls=yes"),
        ("cassandra://h/k?tls=yes&key-file=x", "belong together"),
    ],
)
def test_an_invalid_address_is_refused(url: str, why: str) -> None:
    with pytest.raises(EngineRefused) as refused:
        parse_address(url)
    assert why in str(refused.value)
    assert "secret" not in str(refused.value)


def test_without_the_driver_its_extra_is_named() -> None:
    """The engine's modules are installed, but the driver is an extra, and only the engine imports it."""
    hide = "import sys; sys.modules['cassandra'] = None; "
    run = "from tablestone.cli.main import main; sys.exit(main())"
    arguments = ["serve", "--port", "0", "--engine", "cassandra://h/k"]
    ended = subprocess.run(
        [sys.executable, "-c", hide + run, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert pip_install("cassandra") in ended.stderr


@on_a_cluster
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("127.0.0.1:", "127.0.0.1:1,127.0.0.1:"), None),
        (
            ("/tablestone?", "/absent?"),
            "has no keyspace 'absent': make it with `tablestone cluster init`.",
        ),
        (("datacenter1", "dc9"), "has no datacenter 'dc9': there is datacenter1."),
        (("//", "//me@"), "There is no password for 'me'"),
        (("?", "?tls=yes&"), "the node does not speak TLS."),
        (("?", "?tls=yes&ca-file=/nope&"), "The ca-file /nope cannot be read: No such file"),
        (("?", "?password-file=/nope&"), "password-file needs a user"),
        (("/tablestone?", "/select?"), "'select' is a reserved word of CQL"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_a_sentence(
    change: tuple[str, str], why: str | None
) -> None:
    assert URL is not None
    ended = tablestone("cluster", "check", "--engine", URL.replace(*change, 1))
    if why is None:
        assert ended.returncode == 0, ended
    else:
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("tablestone: ")
        assert why in ended.stderr
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_node_that_is_not_there_is_a_sentence(workers: str) -> None:
    pytest.importorskip("cassandra.cluster", reason="the driver of Cassandra is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        url = f"cassandra://127.0.0.1:{port}/tablestone"
        # The port stays bound without a listener, so nobody else gets it meanwhile.
        ended = tablestone("serve", "--port", "0", "--workers", workers, "--engine", url)
    assert (ended.returncode, ended.stderr) == (
        2,
        f"tablestone: No Cassandra node answers at 127.0.0.1:{port}: Connection refused.\n",
    )


@pytest.fixture
def keyspace() -> Iterator[ClusterAddress]:
    with made_keyspace(KEYSPACE) as url:
        yield parse_address(url)


@on_a_cluster
def test_a_keyspace_is_examined_before_it_is_used(keyspace: ClusterAddress) -> None:
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver
    from tablestone.engines.cassandra.opening import examine_cluster  # noqa: PLC0415 - needs the driver

    connection = Connection(keyspace)

    def refusals() -> str:
        connection.cluster.refresh_schema_metadata()
        return " ".join(examine_cluster(keyspace, system_clock).refusals)

    def warnings() -> str:
        connection.cluster.refresh_schema_metadata()
        return " ".join(examine_cluster(keyspace, system_clock).warnings)

    def a_day_off() -> int:
        return system_clock() + 24 * 3600 * TICKS_PER_SECOND

    assert refusals() == ""
    assert "24 hours apart" in " ".join(examine_cluster(keyspace, a_day_off).refusals)
    newer = (
        f"has layout {RULES_LAYOUT + 1}, and this version of Tablestone knows layout {RULES_LAYOUT}"
    )
    connection.execute(f"UPDATE about SET number = {RULES_LAYOUT + 1} WHERE name = 'layout'")
    assert newer in refusals()
    connection.execute(f"UPDATE about SET number = {LAYOUT} WHERE name = 'layout'")
    connection.define(f"ALTER KEYSPACE {KEYSPACE} WITH durable_writes = false")
    assert "durable_writes = false" in refusals()
    connection.define(f"ALTER KEYSPACE {KEYSPACE} WITH durable_writes = true")
    assert "speculative_retry" not in warnings()
    connection.define("ALTER TABLE rows WITH speculative_retry = '99p'")
    assert "rows has speculative_retry = '99p': while a node hangs, requests wait" in warnings()
    connection.define("ALTER TABLE rows WITH speculative_retry = '20ms'")
    assert "speculative_retry" not in warnings()
    connection.define("DROP TABLE IF EXISTS rows")
    assert "has no table rows" in refusals()
    connection.define("CREATE TABLE IF NOT EXISTS theirs (a int PRIMARY KEY)")
    assert "was made by another program: it has the table 'theirs'" in refusals()
    connection.close()
    assert URL is not None
    url = URL.replace("/tablestone?", f"/{KEYSPACE}?")
    for command in (("serve", "--port", "0"), ("cluster", "init")):
        ended = tablestone(*command, "--engine", url)
        assert ended.returncode == 2
        assert "was made by another program" in ended.stderr


@on_a_cluster
def test_a_keyspace_of_an_older_layout_is_upgraded(
    keyspace: ClusterAddress, tmp_path: Path
) -> None:
    """There is no older layout yet, so the test defines the step."""
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver
    from tablestone.engines.cassandra.opening import initialize  # noqa: PLC0415 - needs the driver

    steps = {1: "ALTER TABLE directory_nodes ADD IF NOT EXISTS (of_the_test int)"}
    url = url_of(KEYSPACE)
    connection = Connection(keyspace)
    connection.execute("UPDATE about SET number = 1 WHERE name = 'layout'")
    connection.close()
    refused = tablestone("cluster", "check", "--engine", url)
    assert refused.returncode == 1
    assert "has layout 1, of an older version of Tablestone" in refused.stdout
    unknown = tablestone("cluster", "init", "--engine", url)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "has layout 1, which cannot be upgraded" in unknown.stderr
    other = Connection(keyspace)
    with pytest.raises(EngineRefused, match=r"has layout 1 and is in use by 127\.0\.0\.1"):
        initialize(keyspace, steps)
    other.close()
    assert not initialize(keyspace, steps)
    connection = Connection(keyspace)
    assert connection.execute("SELECT of_the_test FROM directory_nodes LIMIT 1")
    connection.close()
    server = start_server(tmp_path, "--engine", url, "--workers", "1")
    service = TableServiceClient.from_connection_string(server.connection_string)
    service.create_table("Kept").upsert_entity({"PartitionKey": "p", "RowKey": "r"})
    server.stop()


@on_a_cluster
def test_more_copies_than_nodes_are_refused_before_anything_is_made() -> None:
    assert URL is not None
    url = URL.replace("/tablestone?", "/never_made?")
    ended = tablestone("cluster", "init", "--engine", url + "&replication=9")
    assert ended.returncode == 2
    assert "is to hold 9 copies of each row: start more nodes" in ended.stderr
    assert "has no keyspace" in tablestone("cluster", "check", "--engine", url).stderr


@on_a_cluster
def test_a_datacenter_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from tablestone.engines.cassandra.opening import initialize  # noqa: PLC0415 - needs the driver

    monkeypatch.setattr("tablestone.engines.cassandra.connection.NEWS_SECONDS_MAX", 0.0)
    with pytest.raises(EngineRefused) as refused:
        initialize(parse_address(url_of("never_made") + "&replication=dc9:3"))
    assert str(refused.value) == (
        "The cluster has no datacenter 'dc9', which is to hold 3 copies of each row: there is datacenter1."
    )


@on_a_cluster
def test_other_copies_than_the_keyspace_has_are_warned_of(
    keyspace: ClusterAddress,  # noqa: ARG001 - is made
) -> None:
    """It once reported no problem."""
    ended = tablestone("cluster", "init", "--engine", url_of(KEYSPACE) + "&replication=2")
    said = (
        f"warning: The keyspace {KEYSPACE} has 1 copy in datacenter1, and not 2 copies in datacenter1: replication= "
        "only counts when a keyspace is made, and ALTER KEYSPACE changes it afterwards."
    )
    assert (ended.returncode, ended.stdout.count(said)) == (0, 1), ended


FOREIGN = "foreign"


@pytest.fixture
def foreign() -> Iterator[Connection]:
    """A connection to a keyspace that is still empty."""
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver

    address = parse_address(url_of(FOREIGN))
    drop_keyspace(address)
    connection = Connection(address, in_keyspace=False)
    connection.define(keyspace_statement(FOREIGN, {"datacenter1": 1}))
    connection.use_keyspace()
    try:
        yield connection
    finally:
        connection.close()
        drop_keyspace(address)


def tables_of(connection: Connection) -> set[str]:
    select = f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{FOREIGN}'"
    return {name for (name,) in connection.execute(select)}


OTHER_COLUMNS = (
    "The keyspace foreign was made by another program: it has a table 'rows' with other columns"
)


@on_a_cluster
@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (["CREATE TABLE IF NOT EXISTS rows (a int PRIMARY KEY)"], OTHER_COLUMNS),
        (
            [f"CREATE TABLE IF NOT EXISTS {name} (a int PRIMARY KEY)" for name in TABLES],
            OTHER_COLUMNS,
        ),
        (
            [
                TABLES["about"],
                "INSERT INTO about (name, number) VALUES ('layout', 9)",
                "CREATE TABLE IF NOT EXISTS of_layout_9 (a int PRIMARY KEY)",
            ],
            f"The keyspace foreign has layout 9, and this version of Tablestone knows layout {RULES_LAYOUT}: use the "
            "version that made it, or a newer one.",
        ),
        (
            [
                "ALTER KEYSPACE foreign WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
            ],
            "The keyspace foreign has the replication SimpleStrategy, and needs NetworkTopologyStrategy: ",
        ),
    ],
    ids=["rows", "all names", "layout 9", "SimpleStrategy"],
)
def test_nothing_is_made_in_a_keyspace_that_cannot_be_used(
    foreign: Connection, statements: list[str], why: str
) -> None:
    from tablestone.engines.cassandra.opening import initialize, open_cassandra  # noqa: PLC0415 - needs the driver

    for statement in statements:
        foreign.define(statement)
    before = tables_of(foreign)
    address = parse_address(url_of(FOREIGN))
    with pytest.raises(EngineRefused) as refused:
        initialize(address)
    assert str(refused.value).startswith(why)
    if before:  # without this, a server would first miss the tables
        with pytest.raises(EngineRefused) as refused:
            open_cassandra(address, system_clock)
        assert str(refused.value).startswith(why)
    assert tables_of(foreign) == before


@on_a_cluster
def test_a_statement_that_the_nodes_refuse_is_a_sentence(keyspace: ClusterAddress) -> None:
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver

    connection = Connection(keyspace)
    for text, words in (
        ("SELECT absent FROM rows", "Undefined column name absent in table checked.rows"),
        ("SELECT FROM", "line 1:7 no viable alternative at input 'FROM'"),
        ("CREATE TABLE system.theirs (a int PRIMARY KEY)", "keyspace is not user-modifiable"),
    ):
        with pytest.raises(EngineRefused) as refused:
            connection.execute(text)
        assert str(refused.value).startswith("The cluster refuses a statement: ")
        assert words in str(refused.value)
        assert "code=" not in str(refused.value)
    connection.close()


@on_a_cluster
@pytest.mark.slow
def test_a_cluster_whose_nodes_hang_is_a_sentence() -> None:
    """A socket that accepts connections and stays silent, as a stopped node does."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        host, port = silent.getsockname()
        ended = tablestone("cluster", "check", "--engine", f"cassandra://{host}:{port}/k")
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        2,
        "",
        f"tablestone: No Cassandra node answers at {host}:{port}: it did not answer in time.\n",
    )


def test_another_engine_is_no_cluster() -> None:
    ended = tablestone("cluster", "check", "--engine", "memory")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Say which cluster: --engine 'cassandra://" in ended.stderr
