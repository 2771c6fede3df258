"""Every SDK reads what every other SDK writes: each writer against each reader (tests/sdk/interchange/README.md)."""

import json
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableServiceClient

from sdk.endpoint import Endpoint, environment_for, fresh_table_name
from sdk.install import LANGUAGES, language

pytestmark = pytest.mark.sdk

Keys = tuple[str, str]
Properties = dict[str, tuple[str, str]]

ENTITIES_JSON = Path(__file__).parent / "interchange" / "entities.json"
PROGRAM_SECONDS_MAX = 120

# Keys that an SDK refuses before it sends anything: the only exceptions. One that no longer occurs fails.
REFUSED_WRITES: dict[str, frozenset[Keys]] = {}
REFUSED_READS: dict[str, frozenset[Keys]] = {
    # aztables refuses an empty partition key in a point read, and only there.
    "go": frozenset({("", ""), ("", "row")})
}


@dataclass(frozen=True)
class Written:
    """A table that one language's program has filled."""

    table: str
    refused: frozenset[Keys]


def described() -> dict[Keys, Properties]:
    entities = json.loads(ENTITIES_JSON.read_text(encoding="utf-8"))["entities"]
    return {keys_of(entity): properties_of(entity) for entity in entities}


def keys_of(entity: dict[str, Any]) -> Keys:
    return entity["partitionKey"], entity["rowKey"]


def properties_of(entity: dict[str, Any]) -> Properties:
    return {each["name"]: (each["type"], each["value"]) for each in entity["properties"]}


def as_number(edm_type: str, text: str) -> tuple[str, str]:
    """An Int32 or a Double as read by an SDK with only one number type."""
    number = float(text) if edm_type == "Edm.Int32" else struct.unpack(">d", bytes.fromhex(text))[0]
    return "number", struct.pack(">d", number).hex()


def as_read(expected: Properties, read: Properties) -> Properties:
    """The description that this reader should give."""
    return {
        name: as_number(*value)
        if value[0] in {"Edm.Int32", "Edm.Double"} and read.get(name, value)[0] == "number"
        else value
        for name, value in expected.items()
    }


def run_program(name: str, endpoint: Endpoint, *arguments: str) -> list[dict[str, Any]]:
    ended = subprocess.run(
        [*language(name).interchange(), *arguments],
        env=environment_for(endpoint),
        capture_output=True,
        encoding="utf-8",
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == 0, f"{name} {arguments[0]}: {ended.stderr}"
    # Not splitlines(): a value may hold U+2028, which JSON need not escape.
    return [json.loads(line) for line in ended.stdout.split("\n") if line.strip()]


def skip_unless_prepared(name: str) -> None:
    try:
        reason = language(name).missing()
    except FileNotFoundError:
        reason = "the project has no program for it"
    if reason is not None:
        pytest.skip(f"{name}: {reason}")


@pytest.fixture(scope="module", params=LANGUAGES)
def written(request: pytest.FixtureRequest, endpoint: Endpoint) -> Iterator[tuple[str, Written]]:
    """One table for each writer, filled once and read by all."""
    writer: str = request.param
    skip_unless_prepared(writer)
    credential = AzureNamedKeyCredential(endpoint.account_name, endpoint.account_key)
    with TableServiceClient(endpoint.url, credential=credential) as service:
        name = fresh_table_name()
        service.create_table(name)
        lines = run_program(writer, endpoint, "write", name, str(ENTITIES_JSON))
        assert all(line["refused"] for line in lines), lines
        yield writer, Written(name, frozenset(keys_of(line) for line in lines))
        service.delete_table(name)


def test_the_writer_writes_all_it_is_not_known_to_refuse(written: tuple[str, Written]) -> None:
    writer, table = written
    assert table.refused == REFUSED_WRITES.get(writer, frozenset())


@pytest.mark.parametrize("reader", LANGUAGES)
def test_what_was_written_is_read(
    written: tuple[str, Written], reader: str, endpoint: Endpoint
) -> None:
    skip_unless_prepared(reader)
    _, table = written
    expected = {
        keys: properties for keys, properties in described().items() if keys not in table.refused
    }
    lines = run_program(reader, endpoint, "read", table.table)
    for source in ("list", "get"):
        answered = [line for line in lines if line["source"] == source]
        refused = frozenset(keys_of(line) for line in answered if "refused" in line)
        known = REFUSED_READS.get(reader, frozenset()) if source == "get" else frozenset()
        assert refused == known & expected.keys(), source
        read = {keys_of(line): properties_of(line) for line in answered if "refused" not in line}
        assert len(answered) == len(expected), source
        assert read.keys() | refused == expected.keys(), source
        for keys, properties in read.items():
            assert properties == as_read(expected[keys], properties), (source, keys)
