"""A primary and its synchronous standby, for tests of failovers. Each is behind a proxy whose port stays the same."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from server_process import free_ports
from storage.postgresql_server import Database, Proxy, directory_of_servers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_SECONDS = 30.0
HELD_SECONDS = 0.2


class Pair:
    """`primary` takes the commits; `standby` has them too before they are acknowledged."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self._settings = settings
        self._directory = directory
        self._made = 0
        self.primary = self._new()
        self.primary.make()
        self.primary.start()
        self.proxies = [Proxy(self.primary.port), Proxy(0)]
        self.standby: Database | None = None
        self.add_standby()

    def _new(self) -> Database:
        directory = self._directory / str(self._made)
        self._made += 1
        directory.mkdir()
        owner = self._directory.stat()
        os.chown(directory, owner.st_uid, owner.st_gid)
        return Database(directory, free_ports(1)[0], self._settings)

    def url(self, schema: str = "tablestone") -> str:
        """Of both, as a server gets it."""
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)
        return f"postgresql://postgres@{hosts}/postgres?schema={schema}"

    @property
    def proxy(self) -> Proxy:
        """The one before the primary."""
        return next(proxy for proxy in self.proxies if proxy.server_port == self.primary.port)

    def ask(self, sql: str, database: Database | None = None) -> str:
        port = (database or self.primary).port
        told = subprocess.run(
            [
                *(self.primary.program("psql"), "-X", "-q", "-A", "-t", "-h", "127.0.0.1"),
                *("-p", str(port), "-U", "postgres", "-d", "postgres", "-c", sql),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        return told.stdout.strip()

    def add_standby(self) -> None:
        """Copy the primary, and let each commit wait for the copy."""
        standby = self._new()
        self.replication = Proxy(self.primary.port)
        primary = f"host=127.0.0.1 port={self.replication.port} user=postgres"
        how = ("-X", "stream", "-c", "fast", "--no-sync")
        standby.run("pg_basebackup", "-D", standby.data, "-d", primary, "-R", *how)
        standby.start()
        self.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.ask("SELECT pg_reload_conf()")
        self._wait_for("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1")
        free = next(proxy for proxy in self.proxies if proxy.server_port != self.primary.port)
        free.server_port, free.is_away = standby.port, False
        self.standby = standby

    def fail_over(self) -> None:
        """The primary is killed, and never comes back. The standby takes its place."""
        assert self.standby is not None
        self.replication.is_held = True  # so a commit that does not wait for the standby is lost
        time.sleep(HELD_SECONDS)
        self.proxy.is_away = True
        self.primary.kill()
        self.promote()

    def promote(self) -> Database:
        """The standby becomes a primary; returns the old one, which may still run."""
        assert self.standby is not None
        was = self.primary
        self.replication.close()
        self.ask("SELECT pg_promote()", self.standby)
        self.primary, self.standby = self.standby, None
        return was

    def _wait_for(self, sql: str, wanted: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while self.ask(sql) != wanted:
            assert time.monotonic() < until, sql
            time.sleep(0.05)

    def close(self) -> None:
        for database in (self.standby, self.primary):
            if database is not None:
                database.kill()
        for proxy in (*self.proxies, self.replication):
            proxy.close()


@contextmanager
def running_pair(**settings: str) -> Iterator[Pair]:
    with directory_of_servers() as directory:
        pair = Pair(directory, settings)
        try:
            yield pair
        finally:
            pair.close()
