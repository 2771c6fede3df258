"""The data tools as a person runs them: a command line in this process, or in one that a test can kill.

Knows how a command is started, its endpoint, and the directories of its profiles and journals, but not its output.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from server_process import COMMAND, clean_environment, command_with
from tablestone.cli.main import main
from tablestone.tools.client import RawEntity

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"


@dataclass(frozen=True)
class Ran:
    """The exit status of a command, and its output."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    @property
    def entities(self) -> list[RawEntity]:
        """The entities in the printed JSON lines, without ETags and Timestamps."""
        return [
            {
                name: value
                for name, value in orjson.loads(line).items()
                if not name.startswith("odata.") and name != "Timestamp"
            }
            for line in self.stdout.splitlines()
        ]


@dataclass
class DataTools:
    """Commands against one endpoint, in a directory of their own."""

    connection_string: str
    directory: Path
    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch
    extra: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """The environment variables of a command."""
        return {
            CONNECTION_STRING: self.connection_string,
            "TABLESTONE_JOURNALS": str(self.directory / "journals"),
            "TABLESTONE_PROFILES": str(self.directory / "profiles"),
            "COLUMNS": "100",
            **self.extra,
        }

    def run(self, *arguments: str | Path, status: int | None = 0) -> Ran:
        """Run the command in this process. It must exit with `status`; None allows any."""
        self.capture.readouterr()
        with self.patch.context() as patch:
            for name, value in self.environment().items():
                patch.setenv(name, value)
            ended = main([str(argument) for argument in arguments])
        captured = self.capture.readouterr()
        assert status in (None, ended), captured
        return Ran(ended, captured.out, captured.err)

    def start(
        self, *arguments: str | Path, constants: Mapping[str, float] | None = None
    ) -> subprocess.Popen[str]:
        """Start the command in a process of its own, in which these constants are others."""
        return subprocess.Popen(
            [*command_with(constants or {}), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment() | self.environment(),
        )

    def complete(self, words: str) -> list[str]:
        """The completions of the last word in bash, from the request that its script makes."""
        asked = {
            "_TABLESTONE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        ended = subprocess.run(
            [COMMAND],
            capture_output=True,
            text=True,
            check=False,
            env=clean_environment() | self.environment() | asked,
        )
        return [line.partition(",")[2] for line in ended.stdout.split()]

    def write_lines(self, name: str, entities: Sequence[RawEntity]) -> Path:
        """Write the entities to a file of JSON lines."""
        path = self.directory / name
        path.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in entities))
        return path

    def all_of(self, table: str) -> list[RawEntity]:
        """Every entity of a table, as a query prints it."""
        return self.run("query", table, "--output", "jsonl").entities


def entity(partition: str, row: str, **properties: object) -> RawEntity:
    """An entity as JSON."""
    return {"PartitionKey": partition, "RowKey": row, **properties}


def environment_without_connection() -> dict[str, str]:
    """The environment without a connection string, for tests of the other sources of a connection."""
    return {name: value for name, value in os.environ.items() if name != CONNECTION_STRING}
