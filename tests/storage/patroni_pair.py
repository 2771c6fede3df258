"""Two PostgreSQL servers under Patroni, which decides by etcd which one is the primary. For tests of failovers.

Debian has both as packages: `apt-get install patroni etcd-server`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from server_process import free_ports
from storage.postgresql_server import (
    Database,
    Proxy,
    as_user,
    directory_of_servers,
    processes_of,
    why_no_pair,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TTL_SECONDS = 20
"""After so long without its leader, Patroni promotes the standby: its minimum."""
PATIENCE_SECONDS = 90.0
NEEDED = ("patroni", "etcd")


def why_no_patroni() -> str | None:
    """Why Patroni cannot run here, or None."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    return f"no {' and no '.join(missing)} on PATH" if missing else why_no_pair()


@dataclass
class Node:
    """Patroni and the PostgreSQL server that it starts."""

    directory: Path
    name: str
    port: int
    etcd: int

    def __post_init__(self) -> None:
        self.directory.mkdir()
        owner = self.directory.parent.stat()
        os.chown(self.directory, owner.st_uid, owner.st_gid)
        self._rest = free_ports(1)[0]
        self._patroni: subprocess.Popen[bytes] | None = None
        trusted = ["local all all trust", "host all all 127.0.0.1/32 trust"]
        trusted.append("host replication all 127.0.0.1/32 trust")
        configuration = {
            "scope": "tables",
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self._rest}"},
            "etcd3": {"host": f"127.0.0.1:{self.etcd}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_SECONDS,
                    "loop_wait": 1,
                    "retry_timeout": 3,
                    "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.directory / "data"),
                "bin_dir": str(Database.program("postgres").parent),
                "pgpass": str(self.directory / "pgpass"),
                "pg_hba": trusted,
                "authentication": {
                    who: {"username": "postgres"} for who in ("superuser", "replication", "rewind")
                },
                "parameters": {"unix_socket_directories": str(self.directory), "fsync": "off"},
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
            },
        }
        self._file = self.directory / "patroni.yaml"
        self._file.write_text(json.dumps(configuration))  # which is YAML, too

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self._patroni = subprocess.Popen(
                ["patroni", self._file],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                **as_user(),
            )

    def kill(self) -> None:
        """SIGKILL to all processes, as if the machine were gone."""
        if self._patroni is None:
            return
        found = [self._patroni.pid]
        with suppress(FileNotFoundError):
            postmaster = (self.directory / "data" / "postmaster.pid").read_text().split()[0]
            found += processes_of(int(postmaster))
        for number in (signal.SIGSTOP, signal.SIGKILL):  # nothing starts anything meanwhile
            for process in found:
                with suppress(ProcessLookupError):
                    os.kill(process, number)
        self._patroni.wait()
        self._patroni = None

    def members(self) -> dict[str, str]:
        """The roles of all nodes that run, as this one sees them."""
        with suppress(OSError, ValueError):
            place = f"http://127.0.0.1:{self._rest}/cluster"
            with urllib.request.urlopen(place, timeout=2) as answer:
                found = json.load(answer)
            return {
                each["name"]: each["role"]
                for each in found["members"]
                if each["state"] in ("running", "streaming")
            }
        return {}


class PatroniPair:
    """As `postgresql_pair.Pair`, except that Patroni promotes the standby."""

    def __init__(self, directory: Path) -> None:
        client, peer = free_ports(2)
        urls = {"client": f"http://127.0.0.1:{client}", "peer": f"http://127.0.0.1:{peer}"}
        self._etcd = subprocess.Popen(
            [
                *("etcd", "--data-dir", directory / "etcd", "--unsafe-no-fsync"),
                *("--listen-client-urls", urls["client"]),
                *("--advertise-client-urls", urls["client"]),
                *("--listen-peer-urls", urls["peer"]),
                *("--initial-advertise-peer-urls", urls["peer"]),
                *("--initial-cluster", f"default={urls['peer']}"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            **as_user(),
        )
        self._nodes = [
            Node(directory / name, name, free_ports(1)[0], client) for name in ("a", "b")
        ]
        self.proxies = [Proxy(node.port) for node in self._nodes]
        self.primary: Node = self._nodes[0]
        self.standby: Node | None = None
        for node in self._nodes:
            node.start()
        self._wait_for("leader", "sync_standby")

    def url(self, schema: str = "tablestone") -> str:
        """Of both, as a server gets it."""
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)
        return f"postgresql://postgres@{hosts}/postgres?schema={schema}"

    @property
    def proxy(self) -> Proxy:
        """The one before the primary."""
        return self.proxies[self._nodes.index(self.primary)]

    def fail_over(self) -> None:
        """The primary is killed. Patroni promotes the standby as soon as it misses the primary."""
        self.primary.kill()
        self._wait_for("leader")

    def add_standby(self) -> None:
        """The primary that was killed comes back: Patroni makes a standby of it."""
        for node in self._nodes:
            if node is not self.primary:
                node.start()
        self._wait_for("leader", "sync_standby")

    def _wait_for(self, *roles: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            for node in self._nodes:
                members = node.members()
                if sorted(members.values()) == sorted(roles):
                    by_role = {role: name for name, role in members.items()}
                    named = {each.name: each for each in self._nodes}
                    self.primary = named[by_role["leader"]]
                    self.standby = named.get(by_role.get("sync_standby", ""))
                    return
            assert time.monotonic() < until, [node.members() for node in self._nodes]
            time.sleep(0.2)

    def close(self) -> None:
        for node in self._nodes:
            node.kill()
        self._etcd.kill()
        self._etcd.wait()
        for proxy in self.proxies:
            proxy.close()


@contextmanager
def running_patroni() -> Iterator[PatroniPair]:
    with directory_of_servers() as directory:
        pair = PatroniPair(directory)
        try:
            yield pair
        finally:
            pair.close()
