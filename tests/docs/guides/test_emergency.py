"""The commands of docs/guides/emergency.md, each as it is written, on a server of S3."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.data.tables import TableServiceClient

from cli.test_archive_stores import s3  # noqa: F401  a fixture
from cli.worker_processes import wait_until
from docs.guides.page_commands import GUIDES
from server_process import clean_environment, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.test_archive_stores import CloudPlace

BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
MOMENT = "2026-11-28T14:02:00Z"
FIRST, ALL = {"1", "2", "3"}, {"1", "2", "3", "4"}
OF_A_SHELL = ("pip ", "export ")
"""Commands that install, and that name the credentials of the reader."""


def commands_of_page() -> list[str]:
    page = (GUIDES / "emergency.md").read_text(encoding="utf-8")
    lines = "".join(BLOCK.findall(page)).replace("\\\n", "").splitlines()
    return [re.sub(r"\s+", " ", line).strip() for line in lines if line.strip()]


class Machine:
    """A directory in which the page's commands run. Each is found on the page by its text."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self.moment = MOMENT
        self.left = [each for each in commands_of_page() if not each.startswith(OF_A_SHELL)]
        (self.port,) = free_ports(1)
        self.environment = clean_environment() | environment
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment["TABLESTONE_PORT"] = str(self.port)
        self.connection = ""

    def _taken(self, command: str) -> str:
        assert command in self.left, command
        self.left.remove(command)
        return command.replace(MOMENT, self.moment)

    def run(self, command: str) -> str:
        line = self._taken(command)
        ended = subprocess.run(
            ["bash", "-c", line],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    @contextmanager
    def serving(self, command: str) -> Iterator[None]:
        """Run a server of the page while the block runs."""
        log = self.directory / "log"
        line = self._taken(command).split()
        with (
            log.open("w") as output,
            subprocess.Popen(
                line, cwd=self.directory, env=self.environment, stdout=output, stderr=output
            ) as server,
        ):
            try:
                wait_until(lambda: "Connection string: " in log.read_text())
                (self.connection,) = re.findall(r"Connection string: (\S+)", log.read_text())
                yield
            finally:
                server.terminate()
        assert server.returncode == 0, log.read_text()

    def rows(self, table: str = "Orders") -> set[str]:
        with TableServiceClient.from_connection_string(self.connection) as service:
            return {str(each["RowKey"]) for each in service.get_table_client(table).list_entities()}

    def insert(self, *rows: str) -> None:
        with TableServiceClient.from_connection_string(self.connection) as service:
            table = service.create_table_if_not_exists("Orders")
            for row in rows:
                table.create_entity({"PartitionKey": "p", "RowKey": row})


@pytest.mark.slow
def test_every_command_of_the_emergency_page(
    s3: CloudPlace,  # noqa: F811  the fixture
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path, s3.environment)
    serve = "tablestone serve --archive s3://bucket/tables --data DIR"
    check = "tablestone archive check s3://bucket/tables --data DIR"
    machine.left.append(serve)  # the reader has such a server
    with machine.serving(serve):
        machine.insert(*sorted(FIRST))
        time.sleep(4)  # a second for the archive, and for the first base copy
        machine.moment = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        time.sleep(0.01)
        machine.insert("4")
        time.sleep(3)
        # One table as before.
        (tmp_path / "server.txt").write_text(machine.connection)
        machine.run(
            f"tablestone restore --archive s3://bucket/tables --to {MOMENT} --table Orders --into @server.txt "
            "--as OrdersBefore"
        )
        assert machine.rows("OrdersBefore") == FIRST
        at = "--connection-string @server.txt"
        machine.run(f"tablestone export OrdersBefore orders.jsonl {at}")
        machine.run(f"tablestone import orders.jsonl Orders --on-conflict skip {at}")
        assert machine.rows() == ALL
        # How to know that the archive is good.
        assert "can be restored: 2" in machine.run("tablestone archive list s3://bucket/tables")
        assert "holds what " in machine.run(check)
        # All of it as before, beside the server.
        machine.run(f"tablestone restore --archive s3://bucket/tables --to {MOMENT} --data before")
    # The disk is lost.
    machine.run("tablestone restore --archive s3://bucket/tables --data NEW")
    with machine.serving("tablestone serve --archive s3://bucket/tables --data NEW"):
        assert machine.rows() == ALL
    # Moving to another machine.
    machine.directory = tmp_path / "machine"
    machine.directory.mkdir()
    machine.run("tablestone restore --archive s3://bucket/tables --data DIR")
    with machine.serving(serve):
        assert machine.rows() == ALL
    # Without a disk of its own.
    machine.directory = tmp_path / "container"
    machine.directory.mkdir()
    with machine.serving(
        "tablestone serve --archive s3://bucket/tables --from-archive true --data DIR"
    ):
        assert machine.rows() == ALL
    # All of it as before, put in place.
    machine.directory = tmp_path
    machine.run("mv DIR DIR.wrong")
    machine.run("mv before DIR")
    with machine.serving(serve):
        assert machine.rows() == FIRST
    assert machine.left == ["tablestone serve --archive s3://bucket/tables --archive-check 24h"]
