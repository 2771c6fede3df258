"""Azurite's flags: the options that they become, and the messages about the others.

The flags and their values are those of Azurite 3.37: `azurite --help`, and its `Environment.ts`.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from tablestone.cli.commands.azurite import FLAGS, Given, Meaning, meaning_of

OF_AZURITE = (
    "blobHost blobPort blobKeepAliveTimeout queueHost queuePort queueKeepAliveTimeout tableHost tablePort "
    "tableKeepAliveTimeout location silent loose skipApiVersionCheck disableProductStyleUrl oauth cert key pwd "
    "inMemoryPersistence extentMemoryLimit debug disableTelemetry"
)


class Line(NamedTuple):
    """A command line, and what is expected of it."""

    given: Given
    options: dict[str, str] = {}  # noqa: RUF012 - never changed
    environment: dict[str, str] = {}  # noqa: RUF012 - never changed
    remarks: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


QUIET: dict[str, str | bool | None] = {"silent": True, "location": "/w"}
STORED = {"engine": "sqlite", "data": "/w/__tablestone__"}
OF_TABLES_ONLY = "Only tables are served, no blobs and no queues"

LINES = {
    "nothing but the workspace": Line({"location": "/w"}, STORED | {"access_log": "text"}),
    "silent": Line(QUIET, STORED),
    "an access log that the environment names": Line(
        {"location": "/w"}, STORED, environment={"TABLESTONE_ACCESS_LOG": "json"}
    ),
    "an address": Line(
        QUIET | {"tableHost": "0.0.0.0", "tablePort": "0"},
        STORED | {"host": "0.0.0.0", "port": "0"},
    ),
    "memory": Line({"silent": True, "inMemoryPersistence": True}, {"engine": "memory"}),
    "memory, where the environment names a directory": Line(
        {"silent": True, "inMemoryPersistence": True},
        {"engine": "memory"},
        environment={"TABLESTONE_DATA": "/data", "TABLESTONE_ENGINE": "sqlite"},
    ),
    "the directory of the environment": Line(
        {"silent": True}, {}, environment={"TABLESTONE_DATA": "/data"}
    ),
    "a workspace counts before the environment": Line(
        QUIET, STORED, environment={"TABLESTONE_DATA": "/data"}
    ),
    "versions": Line(QUIET | {"skipApiVersionCheck": True}, STORED | {"any_version": "true"}),
    "versions by Azurite's variable": Line(
        QUIET, STORED | {"any_version": "true"}, {"AZURITE_SKIP_API_VERSION_CHECK": "true"}
    ),
    "versions by another value of the variable": Line(
        QUIET, STORED, {"AZURITE_SKIP_API_VERSION_CHECK": "True"}
    ),
    "PEM": Line(
        QUIET | {"cert": "c.pem", "key": "k.pem"},
        STORED | {"tls_certificate": "c.pem", "tls_key": "k.pem"},
    ),
    "PEM with a password": Line(
        QUIET | {"cert": "c.pem", "key": "k.pem", "pwd": "x"},
        STORED | {"tls_certificate": "c.pem", "tls_key": "k.pem"},
        remarks=("--pwd is ignored: nothing changes with it here.",),
    ),
    "one flag without a meaning": Line(
        QUIET | {"loose": True},
        STORED,
        remarks=("--loose is ignored: nothing changes with it here.",),
    ),
    "many of them, and the value of a switch": Line(
        QUIET
        | {
            "disableTelemetry": True,
            "disableProductStyleUrl": True,
            "extentMemoryLimit": "50",
            "tableKeepAliveTimeout": "5",
        },
        STORED,
        remarks=(
            "--disableTelemetry, --disableProductStyleUrl, --tableKeepAliveTimeout, --extentMemoryLimit and 'true' "
            "are ignored: nothing changes with them here.",
        ),
        extra=("true",),
    ),
    "blobs": Line(
        QUIET | {"blobPort": "0"}, STORED, remarks=(f"{OF_TABLES_ONLY}: --blobPort is ignored.",)
    ),
    "the command of Azurite's image": Line(
        QUIET | {"blobHost": "0.0.0.0", "queueHost": "0.0.0.0", "tableHost": "0.0.0.0"},
        STORED | {"host": "0.0.0.0"},
        remarks=(f"{OF_TABLES_ONLY}: --blobHost and --queueHost are ignored.",),
    ),
    "tokens": Line(
        QUIET | {"oauth": "Basic"},
        STORED,
        remarks=(
            "Bearer tokens are always accepted, over TLS, and their signatures are checked: `tablestone token` prints "
            "one, and TABLESTONE_TOKEN_ISSUER names the issuer of others.",
        ),
    ),
}


def of(line: Line) -> Meaning:
    return meaning_of(line.given, line.extra, line.environment)


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_line_means(line: Line) -> None:
    meaning = of(line)
    assert (meaning.options, meaning.remarks) == (line.options, line.remarks)
    assert (meaning.debug_log, meaning.pfx) == (None, None)


def test_the_environment_of_the_storage_is_read_or_replaced() -> None:
    assert of(LINES["the directory of the environment"]).environment == {"TABLESTONE_DATA": "/data"}
    for name in (
        "memory, where the environment names a directory",
        "a workspace counts before the environment",
    ):
        assert of(LINES[name]).environment == {}


def test_a_pfx_file_and_a_debug_log() -> None:
    meaning = of(Line(QUIET | {"cert": "c.pfx", "pwd": "secret", "debug": "d/debug.log"}))
    assert (meaning.pfx, meaning.debug_log) == ((Path("c.pfx"), "secret"), Path("d/debug.log"))
    assert meaning.options == STORED


def test_the_workspace_is_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert of(Line({"silent": True})).options["data"] == str(tmp_path / "__tablestone__")


def test_a_workspace_that_is_a_data_directory(tmp_path: Path) -> None:
    (tmp_path / "tablestone.db").touch()
    assert of(Line({"location": str(tmp_path)})).options["data"] == str(tmp_path)


def test_tables_of_azurite_are_not_passed_over_silently(tmp_path: Path) -> None:
    tables = tmp_path / "__azurite_db_table__.json"
    tables.touch()
    assert of(Line(QUIET | {"location": str(tmp_path)})).remarks == (
        f"{tables} has tables of Azurite and is not read: `tablestone import {tables}` loads them.",
    )


def test_every_flag_of_azurite_is_taken() -> None:
    assert sorted(flag.name for flag in FLAGS) == sorted(OF_AZURITE.split())
    assert {flag.opts[0][1:] for flag in FLAGS if len(flag.opts) > 1} == set("lsLd")
