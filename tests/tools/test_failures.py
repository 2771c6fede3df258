"""Failures during a transfer: a table that is deleted, a full disk, files that cannot be written.

Each ends with one sentence and exit status 1 or 2, and leaves nothing half written under the final name.
"""

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server_process import COMMAND, clean_environment
from tablestone.tools import exporting, importing
from tablestone.tools.client import TableEndpoint
from tools.data_tools import DataTools, entity

ENTITIES = [entity("p", f"{number:05}", s="x" * 300) for number in range(2500)]


@pytest.fixture
def loaded(tools: DataTools, table: str) -> str:
    tools.run("import", tools.write_lines("a.jsonl", ENTITIES), table, "--quiet")
    return table


@pytest.fixture
def goes_away(table: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that deletes the table after the first call of a method of the endpoint."""

    def arm(name: str) -> None:
        real = getattr(TableEndpoint, name)
        calls: Iterator[int] = iter(range(10**9))

        def method(self: TableEndpoint, *arguments: Any) -> Any:
            if next(calls) == 1:
                self.delete_table(table)
            return real(self, *arguments)

        monkeypatch.setattr(TableEndpoint, name, method)

    return arm


GONE = ("TableNotFound: ", "TableBeingDeleted: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "method"),
    [
        (("import", "FILE", "TABLE", "--parallel", "1"), "transact"),
        (("import", "FILE", "TABLE", "--on-conflict", "replace"), "transact"),
        (("export", "TABLE", "out.jsonl"), "page"),
        (("export", "TABLE", "out.csv"), "page"),
        (("export", "TABLE", "-"), "page"),
        (("count", "TABLE"), "page"),
        (("query", "TABLE", "--newest"), "page"),
        (("clear", "TABLE", "--yes"), "transact"),
        (("tables", "--sizes"), "page"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_table_that_goes_away(
    tools: DataTools,
    loaded: str,
    goes_away: Any,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    method: str,
) -> None:
    path = tools.write_lines("b.jsonl", [{**each, "PartitionKey": "q"} for each in ENTITIES])
    monkeypatch.chdir(tools.directory)
    monkeypatch.setattr(importing, "WINDOW_ROWS", 500)
    goes_away(method)
    words = {"TABLE": loaded, "FILE": str(path)}
    ended = tools.run(*(words.get(word, word) for word in arguments), status=1)
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("tablestone: ")
    assert any(code in last for code in GONE), last
    assert not list(tools.directory.glob("out.jsonl")) + list(tools.directory.glob("out.csv"))


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.parquet"])
def test_a_file_that_cannot_grow(tools: DataTools, loaded: str, name: str) -> None:
    """The system's limit for the size of a file stops the writing, as a full disk does; the same command continues."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, resource.RLIM_INFINITY))

    target = tools.directory / name
    command = [COMMAND, "export", loaded, str(target), "--quiet"]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment() | tools.environment(),
        preexec_fn=limit,
    )
    assert ended.returncode == 1, ended
    assert ended.stderr == f"tablestone: {target} cannot be written: File too large.\n"
    assert not target.exists()
    told = tools.run(*command[1:]).stdout
    assert told.startswith(f"2,500 entities written to {target}, ")


def test_a_full_device_as_standard_output(tools: DataTools, loaded: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [COMMAND, "export", loaded, "-", "--quiet"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=clean_environment() | tools.environment(),
        )
    assert ended.returncode == 2
    assert ended.stderr == (
        "tablestone: Standard output cannot be written: No space left on device.\n"
    )


def test_a_full_disk_while_columns_are_written(
    tools: DataTools, loaded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entities have been read by then, and are kept: the same command only writes the file."""
    target = tools.directory / "out.parquet"

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "convert", full)
        failed = tools.run("export", loaded, target, status=1).stderr
    assert failed == (
        f"tablestone: The disk is full while {target} is written; make room, and the same command continues.\n"
    )
    assert not target.exists()
    told = tools.run("export", loaded, target).lines
    assert told[1] == "An earlier run had read the first 2,500."


def test_a_missing_package_is_noticed_before_the_table_is_read(
    tools: DataTools, loaded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builds without Python leave out pyarrow, which writes Parquet."""
    before = set(tools.directory.iterdir())
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        refused = tools.run("export", loaded, tools.directory / "out.parquet", status=2).stderr
    assert refused.startswith("tablestone: Parquet needs pyarrow")
    assert set(tools.directory.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (
            ("import", "FILE", "TABLE", "--rejects", "absent/r.jsonl"),
            1,
            "Rejected rows cannot be written to absent/r.jsonl: No such file or directory. "
            "--rejects names another file.",
        ),
        (
            ("import", "absent.jsonl", "TABLE"),
            2,
            "absent.jsonl cannot be read: No such file or directory.",
        ),
        (("import", ".", "TABLE", "--format", "jsonl"), 2, ". cannot be read: Is a directory."),
        (
            ("export", "TABLE", "absent/b.jsonl"),
            2,
            "absent/b.jsonl cannot be written: its directory is not there.",
        ),
        (
            ("export", "TABLE", "b.xlsx"),
            2,
            "b.xlsx does not end in .jsonl, .ndjson, .json, .csv (each also .gz or .zst) or .parquet: save it as ",
        ),
        (("export", "TABLE", "b.parquet", "--schema"), 2, "--schema goes with a file of CSV."),
    ],
    ids=lambda value: str(value)[:50],
)
def test_files_that_cannot_be_used(
    tools: DataTools,
    loaded: str,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    status: int,
    sentence: str,
) -> None:
    path = tools.write_lines("bad.jsonl", [entity("a/b", "1")])
    monkeypatch.chdir(tools.directory)
    words = {"TABLE": loaded, "FILE": str(path)}
    ended = tools.run(*(words.get(word, word) for word in arguments), status=status)
    assert ended.stderr.startswith("tablestone: ")
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["query", "delete"])
@pytest.mark.parametrize(
    ("number", "cure"),
    [
        ("2147483648", "Write 2147483648L: a whole number beyond 32 bits ends in L."),
        (
            "-9223372036854775809",
            "Write -9223372036854775809.0: a number beyond 64 bits is a Double.",
        ),
    ],
)
def test_a_whole_number_beyond_32_bits_in_a_filter(
    tools: DataTools, loaded: str, command: str, number: str, cure: str
) -> None:
    """The command says so before it sends anything, and says what to write instead."""
    refused = tools.run(command, loaded, "--filter", f"n gt {number}", status=2).stderr
    assert refused == (
        f"tablestone: The filter cannot be read: Unrecognized 'Edm.Int32' literal '{number}' at '5' in "
        f"'n gt {number}'. {cure}\n"
    )
    cured = cure.split(": ", maxsplit=1)[0].removeprefix("Write ")
    tools.run("query", loaded, "--filter", f"n gt {cured}", "--count")


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("temp > 3.0", "Use gt for >."),
        ("temp>=3.0", "Use ge for >=."),
        ("a eq '>' and temp < 3.0", "Use lt for <."),
        ("temp <= 3.0", "Use le for <=."),
        ("PartitionKey == 'JFK'", "Use eq for ==."),
        ("PartitionKey = 'JFK'", "Use eq for =."),
        ("PartitionKey != 'JFK'", "Use ne for !=."),
        ("a eq 1 && b eq 2", "Use and for &&."),
        ("a eq 1 || b eq 2", "Use or for ||."),
        ("!(a eq 1)", "Use not for !."),
        ("a eq 1 AND b eq 2", "Use and for AND."),
        ("a EQ 1", "Use eq for EQ."),
        ("startswith(a, 5)", "Write startswith(Property,'text')."),
        ("a like 'x%'", "Use `tablestone query` with --starts-with or --contains for like."),
        ("like eq 1 && a eq 2", "Use and for &&."),
        ('like eq "anna b"', "Put a text in single quotes: 'anna b'."),
        (
            "a eq null",
            "The service stores no null: the property is absent, and no filter asks for that.",
        ),
    ],
)
def test_an_operator_of_another_language(
    tools: DataTools, table: str, text: str, cure: str
) -> None:
    refused = tools.run("query", table, "--filter", text, status=2).stderr
    assert refused.startswith("tablestone: The filter cannot be read: ")
    assert refused.endswith(f" {cure}\n")


def test_a_filter_whose_text_has_no_quotes(tools: DataTools, table: str) -> None:
    asked = ("query", table, "--filter", "PartitionKey eq JFK and temp gt 3.0")
    assert tools.run(*asked, status=2).stderr.endswith(" Put a text in quotes: 'JFK'.\n")


def test_a_directory_of_journals_that_cannot_be_made(tools: DataTools, loaded: str) -> None:
    (tools.directory / "journals").rename(tools.directory / "other")
    (tools.directory / "journals").write_text("a file")
    refused = tools.run("export", loaded, tools.directory / "b.jsonl", status=2).stderr
    assert refused.startswith("tablestone: The journal cannot be kept in ")
    assert refused.endswith(" TABLESTONE_JOURNALS names another directory.\n")


def test_a_schema_beside_an_export(tools: DataTools, loaded: str) -> None:
    """The header only has names; importing the file restores the types all the same."""
    typed = entity("q", "1", n=5, **{"big@odata.type": "Edm.Int64", "big": "7"})
    tools.run("import", tools.write_lines("b.jsonl", [typed]), loaded)
    target = tools.directory / "out.csv"
    command = ("export", loaded, target, "--schema", "--filter", "PartitionKey eq 'q'")
    tools.run(*command)
    assert target.read_text() == "PartitionKey,RowKey,big,n\nq,1,7,5\n"
    schema = tools.directory / "out.schema.csv"
    assert schema.read_text() == "name,type\nbig,Int64\nn,Int32\n"
    tools.run("clear", loaded, "--yes")
    tools.run("import", target, loaded)
    assert tools.all_of(loaded) == [typed]
    target.unlink()
    refused = tools.run(*command, status=2).stderr
    assert refused == f"tablestone: {schema} exists already: --overwrite replaces it.\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", b""),
        ("x.csv", b"PartitionKey,a\np,1\n"),
        ("x.csv", b"PartitionKey,RowKey,a,a\np,r,1,2\n"),
        ("x.csv", "PartitionKey,RowKey,a\np,r,Zürich\n".encode("cp1252")),
        ("x.csv", b'PartitionKey,RowKey,a\np,r,"1\np,s,2\n'),
        ("x.jsonl", '{"PartitionKey":"p","RowKey":"r"}\n'.encode("utf-16")),
        ("x.parquet", b"no Parquet"),
    ],
)
def test_a_refused_file_leaves_no_table(
    tools: DataTools, table: str, name: str, content: bytes
) -> None:
    path = tools.directory / name
    path.write_bytes(content)
    failed = tools.run("import", path, table, status=None)
    assert failed.status in (1, 2)
    assert len(failed.stderr.splitlines()) == 1
    assert table not in tools.run("tables").lines


@pytest.mark.parametrize("name", ["n.csv", "n.parquet", "n.jsonl"])
def test_an_export_that_never_began_leaves_no_file(tools: DataTools, table: str, name: str) -> None:
    tools.run("export", table, tools.directory / name, status=1)
    assert [each.name for each in tools.directory.iterdir() if each.is_file()] == []


def test_an_export_of_mixed_types_leaves_no_file(tools: DataTools, table: str) -> None:
    mixed = [entity("p", "1", a=1), entity("p", "2", a="x")]
    tools.run("import", tools.write_lines("a.jsonl", mixed), table)
    failed = tools.run("export", table, tools.directory / "n.csv", status=1).stderr
    assert "a has values of several types" in failed
    assert [each.name for each in tools.directory.iterdir() if each.is_file()] == ["a.jsonl"]
