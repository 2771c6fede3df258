"""The table settings that `tablestone cluster check` examines, and the names of settings in the guide.

The tests use the cluster that ENGINE_UNDER_TEST names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from storage.cluster.guide import GUIDE
from storage.cluster.keyspaces import made_keyspace, on_a_cluster
from tablestone.clock import system_clock
from tablestone.engines.cassandra.cluster_url import ClusterAddress, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYSPACE = "altered"
CHANGED_TABLES = [
    ("read_repair", "'NONE'", "refusals", "read_repair = 'NONE': a later read", "'BLOCKING'"),
    ("default_time_to_live", "60", "refusals", "default_time_to_live = 60: what is written", "0"),
    ("gc_grace_seconds", "0", "refusals", "gc_grace_seconds = 0: deleted rows can", "864000"),
    ("gc_grace_seconds", "86400", "warnings", "gc_grace_seconds = 86400: deleted", "864000"),
    (
        "compaction",
        "{'class': 'SizeTieredCompactionStrategy'}",
        "warnings",
        "the compaction SizeTieredCompactionStrategy, and its reads",
        "{'class': 'UnifiedCompactionStrategy'}",
    ),
]
"""A setting of a table, a value for it, how it reads back, and the value that the message advises."""


@pytest.fixture
def keyspace() -> Iterator[ClusterAddress]:
    with made_keyspace(KEYSPACE) as url:
        yield parse_address(url)


@on_a_cluster
def test_a_changed_table_is_found(keyspace: ClusterAddress) -> None:
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver
    from tablestone.engines.cassandra.opening import examine_cluster  # noqa: PLC0415 - needs the driver

    connection = Connection(keyspace)

    def found(kind: str) -> str:
        connection.cluster.refresh_schema_metadata()
        return " ".join(getattr(examine_cluster(keyspace, system_clock), kind))

    for name, value, kind, sentence, advised in CHANGED_TABLES:
        connection.define(f"ALTER TABLE rows WITH {name} = {value}")
        told = found(kind)
        assert f"The table {KEYSPACE}.rows has {sentence}" in told
        assert f"ALTER TABLE {KEYSPACE}.rows WITH {name} = {advised}." in told
        connection.define(f"ALTER TABLE rows WITH {name} = {advised}")
        assert name not in found("refusals") + found("warnings")
    connection.close()


@on_a_cluster
def test_the_guide_names_settings_that_a_node_has(keyspace: ClusterAddress) -> None:
    from tablestone.engines.cassandra.connection import Connection  # noqa: PLC0415 - needs the driver

    connection = Connection(keyspace)
    known = {
        name.partition(".")[0]
        for (name,) in connection.execute("SELECT name FROM system_views.settings")
    }
    columns = connection.execute(
        "SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'system_schema'"
    )
    of_tables = {name for (name,) in columns}
    connection.close()
    named = set(re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)(?:[: ][^`]*)?`", GUIDE))
    assert len(named) > 20
    assert named - known - of_tables == {
        "internode_encryption"
    }  # a part of server_encryption_options
