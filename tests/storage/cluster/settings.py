"""The configuration of a test cluster's node: its cassandra.yaml, its JVM, its log.

Tablestone requires the settings in `REQUIRED` of every cluster; docs/guides/cassandra-settings.md explains them. The
other settings keep a node small: several nodes, the servers and the tests share two processors.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

REQUIRED: Final = {
    "commitlog_sync": "group",
    "commitlog_sync_group_window": "2ms",
    "paxos_variant": "v2",
    "partition_size_warn_threshold": "100MiB",
}
"""Acknowledged writes are on disk; a conditional write takes two round trips, not four; nodes report large partitions.
"""

_SMALL: Final = {
    "cluster_name": "tablestone-tests",
    "num_tokens": "8",
    "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
    "endpoint_snitch": "SimpleSnitch",
    "storage_compatibility_mode": "NONE",
    "auto_snapshot": "false",
    "hinted_handoff_enabled": "true",
    "concurrent_reads": "16",
    "concurrent_writes": "16",
    "concurrent_counter_writes": "2",
    "memtable_heap_space": "96MiB",
    "memtable_offheap_space": "64MiB",
    "commitlog_segment_size": "32MiB",
    "commitlog_total_space": "256MiB",
    "key_cache_size": "8MiB",
    "file_cache_size": "32MiB",
    "networking_cache_size": "16MiB",
    "native_transport_max_threads": "32",
    "compaction_throughput": "32MiB/s",
    "concurrent_compactors": "1",
    "disk_failure_policy": "die",
    "commit_failure_policy": "die",
}

_EXPORTS: Final = (
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "java.base/java.lang.ref",
    "jdk.unsupported/sun.misc",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.attach/sun.tools.attach",
)
_OPENS: Final = (
    "java.base/java.lang.module",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
    "java.base/sun.nio.ch",
    "java.base/java.io",
    "java.base/java.lang.reflect",
    "jdk.compiler/com.sun.tools.javac",
    "java.base/java.lang",
    "java.base/java.util",
)
"""The packages of a JDK 17 that Cassandra 5.0 needs access to (its conf/jvm17-server.options)."""
_OPENED: Final = (
    *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS),
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENS),
)

_WITHOUT_NEWS: Final = (
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=1000",
)
"""In a new test cluster, nodes need not wait for news of each other before they start."""

LOGBACK: Final = """\
<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level [%thread] %F:%L %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="STDOUT"/></root>
</configuration>
"""


def secured(store: Path, password: str) -> dict[str, str]:
    """The settings of a node that requires a password and TLS; `store` is its PKCS #12 file."""
    tls = f"{{enabled: true, optional: false, keystore: {store}, keystore_password: {password}, store_type: PKCS12}}"
    return {
        "authenticator": "PasswordAuthenticator",
        "authorizer": "CassandraAuthorizer",
        "role_manager": "CassandraRoleManager",
        "client_encryption_options": tls,
    }


BY_DATACENTER: Final = {"endpoint_snitch": "GossipingPropertyFileSnitch"}
"""Each node says its datacenter itself."""
PLACE_FILE: Final = "cassandra-rackdc.properties"
"""The snitch looks for it at the start of the classpath, which is the node's directory."""


def place_of_node(datacenter: str) -> str:
    """The content of `PLACE_FILE`."""
    return f"dc={datacenter}\nrack=rack1\n"


def cassandra_yaml(
    directory: Path,
    *,
    address: str,
    seed: str,
    native_port: int,
    storage_port: int,
    more: Mapping[str, str | None] | None = None,
) -> str:
    """The configuration of one node. `seed` is the first address; `more` overrides settings, and None removes one."""
    settings: dict[str, str | None] = {
        **_SMALL,
        **REQUIRED,
        **(more or {}),
        "listen_address": address,
        "rpc_address": address,
        "native_transport_port": str(native_port),
        "storage_port": str(storage_port),
        "hints_directory": str(directory / "hints"),
        "commitlog_directory": str(directory / "commitlog"),
        "saved_caches_directory": str(directory / "saved_caches"),
        "cdc_raw_directory": str(directory / "cdc_raw"),
    }
    lines = [f"{name}: {value}" for name, value in settings.items() if value is not None]
    lines += [
        "data_file_directories:",
        f"  - {directory / 'data'}",
        "memtable:",
        "  configurations:",
        "    trie:",
        "      class_name: TrieMemtable",
        "    default:",
        "      inherits: trie",
        "sstable:",
        "  selected_format: bti",
        "seed_provider:",
        "  - class_name: org.apache.cassandra.locator.SimpleSeedProvider",
        "    parameters:",
        f'      - seeds: "{seed}:{storage_port}"',
    ]
    return "\n".join(lines) + "\n"


def nodetool_arguments(jars: Path, control_port: int) -> list[str]:
    """The arguments of `java` for Cassandra's nodetool, which connects to this JMX port."""
    return [
        *("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        "-Dlogback.configurationFile=logback.xml",  # the node's: without one, nodetool prints debug output
        *_OPENED,
        *("-cp", f"{jars}/*", "org.apache.cassandra.tools.NodeTool", "-p", str(control_port)),
    ]


def java_arguments(
    directory: Path, jars: Path, options: Sequence[str] = (), *, takes_rows: bool = False
) -> list[str]:
    """The arguments of `java` for the node configured in the directory, and further options.

    A node that takes rows from others waits for news of them as long as Cassandra does by default. If it joins without
    knowing them or the schema, it takes nothing.
    """
    return [
        *options,
        "-Xms256m",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:MaxDirectMemorySize=256m",
        "-XX:TieredStopAtLevel=1",
        "-Djdk.attach.allowAttachSelf=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *_OPENED,
        f"-Dcassandra.config={(directory / 'cassandra.yaml').as_uri()}",
        f"-Dcassandra.storagedir={directory}",
        f"-Dlogback.configurationFile={directory / 'logback.xml'}",
        "-Dcassandra-foreground=yes",
        *(() if takes_rows else _WITHOUT_NEWS),
        "-Dcassandra.superuser_setup_delay_ms=0",
        "-cp",
        f"{directory}:{jars}/*",
        "org.apache.cassandra.service.CassandraDaemon",
    ]
