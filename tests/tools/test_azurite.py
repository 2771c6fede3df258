"""The data tools against Azurite, an independent implementation; the last tests copy between it and Tablestone.

npm installs it, as for the benchmarks, which takes a minute. Where that fails, the tests are skipped with the reason.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench import servers
from bench.prerequisites import PrerequisiteError
from tablestone.cli.commands.azurite import FLAGS
from tools.data_tools import DataTools, entity

pytestmark = [pytest.mark.network, pytest.mark.slow]

PAGES = Path(__file__).parents[2] / "docs" / "guides"
ENTITIES: list[dict[str, Any]] = [
    entity(
        f"it's p{n % 2}",
        f"{n:04}",
        n=n,
        text='é😀 "quoted"',
        ok=n % 2 == 0,
        temp=n / 8 + 0.5,
        **{
            "big@odata.type": "Edm.Int64",
            "big": str(2**53 + n),
            "when@odata.type": "Edm.DateTime",
            "when": "2013-01-01T00:00:00.1234567Z",
            "id@odata.type": "Edm.Guid",
            "id": "c9da6455-213d-42c9-9a79-3e9149a57833",
            "raw@odata.type": "Edm.Binary",
            "raw": "AAEC",
        },
    )
    for n in range(1500)
]
IN_ORDER = sorted(ENTITIES, key=lambda each: (each["PartitionKey"], each["RowKey"]))


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Azurite's connection string."""
    try:
        server = servers.start(servers.AZURITE, tmp_path_factory.mktemp("azurite"))
    except PrerequisiteError as missing:
        pytest.skip(str(missing))
    yield (
        f"DefaultEndpointsProtocol=http;AccountName={servers.ACCOUNT};AccountKey={servers.KEY};"
        f"TableEndpoint=http://{server.address}{server.base_path};"
    )
    server.stop()


@pytest.fixture
def at_azurite(tools: DataTools, azurite: str) -> DataTools:
    tools.connection_string = azurite
    return tools


def loaded(tools: DataTools, table: str) -> Path:
    path = tools.write_lines("a.jsonl", ENTITIES)
    told = tools.run("import", path, table, "--quiet").stdout
    assert told.startswith("1,500 entities stored in ")
    return path


def test_import_query_and_count(at_azurite: DataTools) -> None:
    table = "aone"
    loaded(at_azurite, table)
    assert table in at_azurite.run("tables").lines
    assert at_azurite.run("count", table, "--by", "PartitionKey").lines == [
        *("750\tit's p0", "750\tit's p1")
    ]
    assert at_azurite.run("partitions", table).lines == ["it's p0", "it's p1"]
    found = at_azurite.run(
        "query", table, "--filter", "n gt 1496", "--select", "n", "--output", "jsonl"
    )
    assert sorted(each["n"] for each in found.entities) == [1497, 1498, 1499]
    newest = at_azurite.run("query", table, "--newest", "--top", "1", "--output", "jsonl").entities
    assert [each["n"] for each in newest] == [1499]


@pytest.mark.parametrize("name", ["b.jsonl.zst", "b.csv", "b.parquet"])
def test_files_come_back(at_azurite: DataTools, name: str) -> None:
    table = f"files{name[2:].replace('.', '')}"
    loaded(at_azurite, table)
    path = at_azurite.directory / name
    at_azurite.run("export", table, path)
    at_azurite.run("import", path, f"{table}again")
    found = [without_types_of_plain_values(each) for each in at_azurite.all_of(f"{table}again")]
    assert found == IN_ORDER


def without_types_of_plain_values(raw: dict[str, Any]) -> dict[str, Any]:
    """Azurite annotates a Double even if its JSON value shows the type."""
    return {name: value for name, value in raw.items() if value != "Edm.Double"}


def test_a_key_that_is_taken(at_azurite: DataTools) -> None:
    path = loaded(at_azurite, "taken")
    assert "is in taken already" in at_azurite.run("import", path, "taken", status=1).stderr
    told = at_azurite.run("import", path, "taken", "--on-conflict", "skip").lines
    assert told[-1] == "1,500 rows skipped: their keys were taken."
    assert at_azurite.run("import", path, "taken", "--on-conflict", "merge").stdout.startswith(
        "1,500 "
    )
    assert at_azurite.run("import", path, "taken", "--on-conflict", "replace").stdout.startswith(
        "1,500 "
    )


def test_one_entity(at_azurite: DataTools) -> None:
    loaded(at_azurite, "single")
    key = ("single", "it's p0", "new")
    at_azurite.run("put", *key, "a:Int64=9007199254740993", "b=x")
    at_azurite.run("merge", *key, "b=y")
    found = at_azurite.run("get", *key).entities[0]
    assert (found["a"], found["b"]) == ("9007199254740993", "y")
    at_azurite.run("delete-entity", *key, "--yes")
    assert "has no entity" in at_azurite.run("get", *key, status=1).stderr


def test_deleting(at_azurite: DataTools) -> None:
    loaded(at_azurite, "going")
    assert at_azurite.run("delete", "going", "--filter", "n lt 500", "--yes").lines == [
        "500 entities deleted."
    ]
    assert at_azurite.run("clear", "going", "--yes").lines == ["1,000 entities deleted."]
    assert at_azurite.run("count", "going").lines == ["0"]


@pytest.mark.parametrize("direction", ["to azurite", "from azurite"])
def test_a_copy_between_both(tools: DataTools, azurite: str, table: str, direction: str) -> None:
    places = [tools.connection_string, azurite]
    if direction == "from azurite":
        places.reverse()
    files = []
    for number, text in enumerate(places):
        file = tools.directory / f"{number}.txt"
        file.write_text(text)
        files.append(f"@{file}")
    tools.run(
        "import", tools.write_lines("a.jsonl", ENTITIES), table, "--connection-string", files[0]
    )
    told = tools.run("copy", "--from", files[0], "--to", files[1], table, "--quiet").lines
    assert "  Verified: 1,500 entities on both sides, and they are equal." in told
    report = orjson.loads(tools.run("diff", *files, table, "--json").stdout)
    assert report["differing"] == 0
    tools.run("tables", "--connection-string", azurite.strip(), "--delete", table, "--yes")


def test_the_commands_of_the_page(tools: DataTools, azurite: str) -> None:
    """The steps of docs/guides/from-azurite.md; a file replaces `local`, the server on port 10002."""
    page = (PAGES / "from-azurite.md").read_text(encoding="utf-8")
    (start,) = re.findall(r"^    npx azurite-table (.*)$", page, re.MULTILINE)
    known = {f"--{flag.name}" for flag in FLAGS}
    assert {word for word in shlex.split(start) if word.startswith("--")} <= known
    (copy,) = re.findall(r"^    tablestone (copy .*)$", page, re.MULTILINE)
    loaded_at = tools.connection_string
    tools.connection_string = azurite
    loaded(tools, "moving")
    for name, place in (("azurite.txt", azurite), ("local.txt", loaded_at)):
        (tools.directory / name).write_text(place)
    words = [
        f"@{tools.directory / word.removeprefix('@')}" if word.startswith("@") else word
        for word in shlex.split(copy.replace("local", "@local.txt"))
    ]
    told = tools.run(*words, "moving", "--quiet").lines
    assert "  Verified: 1,500 entities on both sides, and they are equal." in told
    tools.run("tables", "--delete", "moving", "--yes")
