"""The folder that needs no Python: what runs in it, what it leaves out, and where it cannot run.

`PROGRAM_UNDER_TEST=FOLDER/tablestone pytest tests/cli tests/wire` runs these suites on it.
"""

import json
import subprocess
from pathlib import Path

import pytest

from deploy.standalone.conftest import EMPTY, SECONDS_MAX, run
from tablestone import __version__
from tablestone.cli.command_list import COMMANDS

pytestmark = pytest.mark.slow

DEVELOPMENT = "UseDevelopmentStorage=true"
NEEDS_PYARROW = (
    "Parquet needs pyarrow, which this build leaves out: "
    "install the Python package with its extra tools"
)
ROWS = 'PartitionKey,RowKey,n:Int32,s:String\np,1,5,""\np,2,,x\n'


def test_it_names_itself(folder: Path) -> None:
    version = run(folder / "tablestone", "--version")
    assert version.stdout == (
        f"Tablestone {__version__}, compiled, filters in C, folder build\n"
    ), version.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads(folder: Path, name: str) -> None:
    said = run(folder / "tablestone", name, "--help")
    assert (said.returncode, said.stderr) == (0, "")
    assert f"Usage: tablestone {name}" in said.stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--workers=2", "--data={place}/data", "--admin=0", "--explorer"),
        ("--data={place}/data", "--archive=file://{place}/archive"),
        ("--engine=memory", "--control=0"),
        ("--data={place}/data", "--tls=self-signed"),
    ],
)
def test_a_server_with_everything(folder: Path, options: tuple[str, ...], tmp_path: Path) -> None:
    """It serves, imports and exports, traces without a complaint about a missing package, and ends."""
    (tmp_path / "archive").mkdir()
    (tmp_path / "rows.csv").write_text(ROWS)
    given = [each.format(place=tmp_path) for each in options]
    with subprocess.Popen(
        [folder / "tablestone", "serve", "--port=0", "--print=json", *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=EMPTY | {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"},
    ) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        if "--tls=self-signed" not in options:  # which the tools do not trust
            connection = json.loads(line)["accounts"][0]["connection_string"]
            for words in (("import", "rows.csv", "Rows"), ("export", "Rows", "again.csv")):
                moved = run(
                    folder / "tablestone",
                    *(str(tmp_path / word) if word.endswith(".csv") else word for word in words),
                    f"--connection-string={connection}",
                )
                assert moved.returncode == 0, moved.stderr
            assert (tmp_path / "again.csv").read_text() == ROWS
        server.terminate()
        _, errors = server.communicate(timeout=SECONDS_MAX)
    assert line, errors
    assert server.returncode == 0
    assert "needs" not in errors
    assert "No package" not in errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("serve", "--port=0", "--engine=cassandra://127.0.0.1:1/x"),
            "No Cassandra node answers at 127.0.0.1:1",
        ),
        (("serve", "--port=0", "--engine=postgresql://127.0.0.1:1/x"), "there is no connection to"),
        (("import", "rows.parquet", "Rows", f"--connection-string={DEVELOPMENT}"), NEEDS_PYARROW),
        (
            ("tables", "--account-url", "https://weather.table.core.windows.net"),
            "A login to Entra ID without --sas needs azure-identity, which this build leaves out: "
            "install the Python package with its extra tools,entra",
        ),
    ],
)
def test_a_driver_is_inside_and_a_left_out_package_is_a_sentence(
    folder: Path, words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    given = [str(tmp_path / word) if word.startswith("rows.") else word for word in words]
    ended = run(folder / "tablestone", *given)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_link_to_it_and_a_folder_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(folder / "tablestone")
    script = 'mount --bind -o ro "$1" "$1" && ! touch "$1/new" && exec "$2" --version'
    ended = run(
        *("unshare", "--map-root-user", "--mount", "sh", "-c", script, "-"),
        *(folder, tmp_path / "linked"),
    )
    assert ended.stdout.startswith("Tablestone "), ended.stderr


def test_the_licences_and_the_bill_name_all_that_is_bundled(folder: Path) -> None:
    bill = json.loads((folder / "bill-of-materials.cdx.json").read_text())
    components = {each["name"]: each for each in bill["components"]}
    named = {"cryptography", "libev", "libssl3", "libpython3.11-minimal", "obstore", "tablestone"}
    assert named <= set(components)
    assert not {"azure-identity", "pip", "pyarrow", "pytest"} & set(components)
    for name, component in components.items():
        place = folder / "licenses" / f"{name}-{component['version'].replace(':', '_')}"
        texts = [each for each in place.iterdir() if each.suffix != ".json"]
        assert [each for each in texts if each.stat().st_size], name
        assert component["licenses"]
    libraries = {path.name.partition("-")[0].partition(".")[0] for path in folder.rglob("*.so.*")}
    assert libraries <= {
        *("libbz2", "libcrypto", "libev", "libexpat", "libffi", "libgcc_s", "liblzma"),
        *("libpython3", "libssl", "libstdc++", "libuuid", "libz"),
    }, "a new library needs a licence"
    cyclonedx = pytest.importorskip("cyclonedx.validation.json", reason="pip install '.[dev]'")
    schema = pytest.importorskip("cyclonedx.schema", reason="pip install '.[dev]'")
    validator = cyclonedx.JsonStrictValidator(schema.SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(bill)) is None


def test_nothing_names_the_machine_that_built_it(folder: Path) -> None:
    assert [path for path in folder.rglob("*") if path.is_symlink()] == []
    assert list(folder.rglob("direct_url.json")) == []
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if path.stat().st_mode & 0o022] == []
    assert len({path.stat().st_mtime for path in files}) == 1
