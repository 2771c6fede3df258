"""Kinds of engines: found by URL scheme, with their capabilities, and opened; other packages can add some."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from server_process import COMMAND, clean_environment
from storage import slow_engine
from storage.conftest import HeldClock
from storage.slow_engine import SlowEngine
from tablestone.cli.option_sources import read_configuration
from tablestone.cli.options import BrokenOption
from tablestone.engines import registry
from tablestone.engines.capabilities import Capabilities, StoredIn
from tablestone.engines.contract import EngineRefused
from tablestone.engines.kind import EngineKind, EngineUrl
from tablestone.engines.registry import (
    NoSuchEngine,
    capabilities_of,
    forms,
    held_for_processes,
    kind_of,
    open_engine,
)

DATABASE = "postgresql://[USER@]HOST[:PORT][,HOST]/DB"
CLUSTER = "cassandra://HOST[,HOST]/KEYSPACE?datacenter=DC"
ENTRY_POINTS = """
[tablestone.engines]
slow = storage.slow_engine:KIND
broken = storage.slow_engine:SlowEngine
gone = storage.gone:KIND
"""


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package that adds kinds of engines."""
    installed = tmp_path / "other-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_what_the_kinds_of_this_package_can_do() -> None:
    assert capabilities_of("memory:") == Capabilities(
        stored_in=StoredIn.PROCESS,
        processes=False,
        hints=True,
        waits=False,
        keeps_changes=True,
        checks_relied_rows=True,
        keeps_entries=True,
        reads_backwards=True,
    )
    assert capabilities_of("sqlite:anywhere") == Capabilities(
        stored_in=StoredIn.DIRECTORY,
        processes=True,
        hints=True,
        waits=False,
        keeps_changes=True,
        checks_relied_rows=True,
        keeps_entries=True,
        reads_backwards=True,
    )
    assert capabilities_of("postgresql://anywhere/data") == Capabilities(
        stored_in=StoredIn.SERVERS,
        processes=True,
        hints=True,
        waits=True,
        leases=True,
        versions_outlive_rows=True,
        checks_relied_rows=True,
        keeps_entries=True,
        reads_backwards=True,
    )


def test_a_kind_of_another_package_is_found_by_its_entry_point(other_package: Path) -> None:
    assert other_package.is_dir()
    assert capabilities_of("slow:place").waits
    assert isinstance(open_engine("slow:", HeldClock()), SlowEngine)
    assert forms() == [
        "sqlite",
        "sqlite:DIR",
        "memory",
        DATABASE,
        CLUSTER,
        "broken:…",
        "gone:…",
        "slow:…",
    ]


@pytest.mark.parametrize(
    ("scheme", "why"),
    [
        ("broken", "storage.slow_engine:SlowEngine is no kind of engine."),
        ("gone", "storage.gone:KIND cannot be imported: No module named 'storage.gone'."),
    ],
)
def test_an_entry_point_that_names_no_kind_is_refused(
    other_package: Path, scheme: str, why: str
) -> None:
    assert other_package.is_dir()
    with pytest.raises(EngineRefused) as refused:
        open_engine(f"{scheme}:x", HeldClock())
    assert str(refused.value) == f"The engine {scheme} cannot be used: {why}"


INDEXED = {"keeps_entries": True, "checks_relied_rows": True}
IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    (INDEXED | {"checks_relied_rows": False}, "does not check the rows on which a write relies"),
    (INDEXED | {"snapshots_pass": True}, "entries of indexes, but its snapshots end"),
    (
        {"versions_outlive_rows": False},
        "leases, but a row that is deleted and made again may get an earlier",
    ),
    ({"stored_in": StoredIn.DIRECTORY, "processes": True}, "exactly if it has a `hold`"),
    ({"processes": True}, "processes may open it, but its rows are in the memory of one"),
    ({"stored_in": StoredIn.SERVERS, "waits": False}, "on other servers, but its reads never wait"),
    (
        {"keeps_entries": False, "snapshots_pass": True, "waits": False},
        "between two reads, but its reads never wait",
    ),
]


@pytest.mark.parametrize(("changed", "why"), IMPOSSIBLE)
@pytest.mark.parametrize("is_own", [True, False])
def test_a_kind_whose_capabilities_cannot_go_together_is_refused(
    other_package: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    why: str,
    *,
    is_own: bool,
) -> None:
    assert other_package.is_dir()
    capabilities = replace(slow_engine.KIND.capabilities, **changed)
    monkeypatch.setattr(slow_engine, "KIND", replace(slow_engine.KIND, capabilities=capabilities))
    if is_own:
        monkeypatch.setitem(registry.OWN_KINDS, "slow", "storage.slow_engine")
    with pytest.raises(EngineRefused, match=rf"^The engine slow cannot be used: .*{why}"):
        open_engine("slow:", HeldClock())


def test_a_kind_that_keeps_an_earlier_contract_is_refused(
    other_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read `WriteSet.decided_under`, which is gone."""
    assert other_package.is_dir()
    kind = slow_engine.KIND
    monkeypatch.setattr(
        slow_engine, "KIND", EngineKind(kind.capabilities, kind.forms, kind.open)
    )  # as one made before kinds said which contract they keep
    with pytest.raises(EngineRefused) as refused:
        open_engine("slow:", HeldClock())
    assert str(refused.value) == (
        "The engine slow cannot be used: it keeps version 1 of the engine contract, and this Tablestone has version 2."
    )


@pytest.mark.slow
def test_the_suites_take_a_new_scheme(other_package: Path) -> None:
    """The contract, the wire cases and the model, without a line that names it."""
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([os.fspath(other_package), os.fspath(tests)])
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
        + [f"{tests}/storage/{name}.py" for name in ("test_contract", "test_index_entries")]
        + [f"{tests}/wire/test_cases.py", f"{tests}/stress/property/test_tables_model.py"]
        + ["-k", "[slow or (test_the_service_answers and etag) or TestOnEngineUnderTest"],
        env=clean_environment() | {"PYTHONPATH": path, "ENGINE_UNDER_TEST": "slow:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


def test_what_is_asked_of_an_engine_without_a_directory_is_asked_of_no_url(
    other_package: Path,
) -> None:
    """A server's options follow from the capabilities of its engine."""
    assert other_package.is_dir()
    configuration = read_configuration({"engine": "slow"}, {})
    assert (configuration.engine, configuration.data_directory) == ("slow:", None)
    assert configuration.workers == 1
    for given, message in (
        ({"workers": "2"}, "2 workers cannot share the engine slow, "),
        ({"data": "/d"}, "--data names a data directory, but the engine slow stores nothing: "),
        (
            {"engine": "slow:x"},
            f"--engine must be sqlite, sqlite:DIR, memory, {DATABASE}, {CLUSTER}, broken:…, gone:… or slow:…, ",
        ),
    ):
        with pytest.raises(BrokenOption) as broken:
            read_configuration({"engine": "slow"} | given, {})
        assert str(broken.value).startswith(message)
    with pytest.raises(EngineRefused, match=r"^Only one process can have the engine slow: open"):
        held_for_processes("slow:")


def test_a_command_uses_the_engine_of_another_package(other_package: Path) -> None:
    tests = os.fspath(Path(__file__).parents[1])
    path = os.pathsep.join([os.fspath(other_package), tests, os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [COMMAND, "check", "--engine", "slow"],
        env=clean_environment() | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (
        2,
        "tablestone: There is nothing to check: slow: stores nothing.\n",
    )


def test_a_scheme_that_nobody_has_is_refused() -> None:
    with pytest.raises(NoSuchEngine, match="'postgres' is not known"):
        kind_of("postgres")


@pytest.mark.parametrize(
    ("text", "scheme", "place", "shown"),
    [
        ("memory", "memory", None, "memory"),
        ("memory:", "memory", "", "memory:"),
        ("sqlite:/a:b", "sqlite", "/a:b", "sqlite:/a:b"),
        ("sqlite:/who@home?", "sqlite", "/who@home?", "sqlite:/who@home?"),
        ("x://h1,h2:9/k", "x", "//h1,h2:9/k", "x://h1,h2:9/k"),
        (
            "x://me:s3cret@h/k?password=s3cret",
            "x",
            "//me:s3cret@h/k?password=s3cret",
            "x://***@h/k",
        ),
        ("x://h/k?a=1&schema=b&c=2", "x", "//h/k?a=1&schema=b&c=2", "x://h/k?schema=b"),
        ("x://me:s3@cret@h", "x", "//me:s3@cret@h", "x://***@h"),
        ("x://me:s#3@h/k#s3", "x", "//me:s#3@h/k#s3", "x://***@h/k"),
        ("x://me:s/3?r@h/k", "x", "//me:s/3?r@h/k", "x://***@h/k"),
    ],
)
def test_a_url_is_taken_apart_and_shown_without_a_password(
    text: str, scheme: str, place: str | None, shown: str
) -> None:
    url = EngineUrl.parse(text)
    assert (url.scheme, url.place, str(url), url.shown) == (scheme, place, text, shown)
