"""Command lines that fail with one sentence and exit status 2, and create nothing: the rows of refused.toml.

They run in this process; test_refusals.py starts the command itself.
"""

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.account_command import account
from cli.command_line import in_this_process

ROWS = tomllib.loads((Path(__file__).parent / "refused.toml").read_text("utf-8"))


def refused(row: list[str], data: Path) -> None:
    line, sentence, *given = row
    is_elsewhere = "--engine" in line or line.startswith("azurite")
    environment = {} if is_elsewhere else {"TABLESTONE_DATA": str(data)}
    told = f"tablestone: {sentence}\n".replace("DATA", str(data))
    ended = in_this_process(*shlex.split(line), given="".join(given), environment=environment)
    assert ended == (2, "", told)


def ids(row: Any) -> str:
    return str(row[0])


@pytest.mark.parametrize("row", ROWS["nothing_stored"], ids=ids)
def test_refused(row: list[str], tmp_path: Path) -> None:
    refused(row, tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("row", ROWS["another_account_stored"], ids=ids)
def test_refused_beside_another_account(row: list[str], tmp_path: Path) -> None:
    account(tmp_path, "create", "other")
    refused(row, tmp_path)
