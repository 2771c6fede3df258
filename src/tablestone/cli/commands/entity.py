"""`tablestone get`, `put`, `merge` and `delete-entity`: one entity by its key."""

from typing import Any

import click
import orjson

from tablestone.cli import data_options
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.keys import EntityKey
from tablestone.tools import odata
from tablestone.tools.client import Operation, TableEndpoint
from tablestone.tools.errors import TransferFailed, TransferRefused, refusing_unreadable
from tablestone.tools.exporting import show
from tablestone.tools.formats.rows import type_named
from tablestone.tools.retrying import InFlight, Retry

_with_key = data_options.together(
    data_options.table_argument,
    click.argument("partition_key", metavar="PARTITIONKEY"),
    click.argument("row_key", metavar="ROWKEY"),
)
_if_match_option = click.option(
    "--if-match", metavar="ETAG", help="Only if the entity has this ETag still."
)
_writing = data_options.together(
    _with_key,
    click.argument("properties", metavar="[NAME[:TYPE]=VALUE]...", nargs=-1),
    click.option(
        "--json",
        "json_file",
        metavar="FILE",
        help="Properties from a JSON object; - reads standard input.",
    ),
    _if_match_option,
    data_options.as_program,
)
"""The arguments and options of the commands that write an entity."""


@click.command(epilog="Example: tablestone get Weather JFK 2013-01-01T00")
@_with_key
@data_options.select_option
@data_options.output_option
@data_options.as_program
def get(
    endpoint: TableEndpoint,
    table: str,
    partition_key: str,
    row_key: str,
    names: tuple[str, ...],
    output: str,
) -> None:
    """Show one entity."""
    found = Retry(InFlight(1))(
        lambda: endpoint.get(table, EntityKey(partition_key, row_key), names)
    )
    if found is None:
        raise TransferFailed(f"{table} has no entity with these keys.")
    show([found], output, names)


@click.command(
    epilog="Example: tablestone put Weather JFK 2013-01-01T00 temp:Double=39.02 origin=JFK"
)
@_writing
def put(endpoint: TableEndpoint, **given: Any) -> None:
    """Write one entity, or replace it.

    A property is NAME=VALUE, a string, or NAME:TYPE=VALUE of type String, Int32, Int64, Double,
    Boolean, DateTime, Guid or Binary (base64).
    """
    _write(endpoint, "PUT", **given)


@click.command(epilog="Example: tablestone merge Weather JFK 2013-01-01T00 checked:Boolean=true")
@_writing
def merge(endpoint: TableEndpoint, **given: Any) -> None:
    """Change some properties of one entity.

    The others stay. An entity that does not exist is created. Properties are written as for `put`.
    """
    _write(endpoint, "MERGE", **given)


@click.command(
    name="delete-entity", epilog="Example: tablestone delete-entity Weather JFK 2013-01-01T00 --yes"
)
@_with_key
@_if_match_option
@data_options.yes_option
@data_options.as_program
def delete_entity(
    endpoint: TableEndpoint,
    table: str,
    partition_key: str,
    row_key: str,
    if_match: str | None,
    *,
    yes: bool,
) -> None:
    """Delete one entity."""
    data_options.require_consent(endpoint.connection, f"Deleting one entity in {table}", yes=yes)
    key = EntityKey(partition_key, row_key)
    endpoint.write(table, Operation("DELETE", key, if_match=if_match or "*"))
    print("Deleted.")


def _write(
    endpoint: TableEndpoint,
    method: str,
    *,
    table: str,
    partition_key: str,
    row_key: str,
    properties: tuple[str, ...],
    json_file: str | None,
    if_match: str | None,
) -> None:
    key = EntityKey(partition_key, row_key)
    try:
        values = _from_json(key, json_file) if json_file else {}
        for text in properties:
            name, value = _property(text)
            values[name] = value
        odata.require_storable(key, values)
    except ValueError as error:
        raise TransferRefused(f"{error}.") from None
    body = odata.write_body(odata.TypedEntity(key, values))
    endpoint.write(table, Operation(method, key, body, if_match=if_match))
    print("Written.")


def _property(text: str) -> tuple[str, EdmValue]:
    title, equals, value = text.partition("=")
    if not equals:
        raise TransferRefused(f"{text!r} is not of the form NAME=VALUE or NAME:TYPE=VALUE.")
    name, colon, kind = title.partition(":")
    wanted = type_named(kind, title) if colon else EdmType.STRING
    return name, odata.typed_value(name, value, wanted)


def _from_json(key: EntityKey, json_file: str) -> dict[str, EdmValue]:
    try:
        with refusing_unreadable(json_file), click.open_file(json_file, "rb") as file:
            raw = orjson.loads(file.read())
    except orjson.JSONDecodeError as error:
        raise TransferRefused(f"{json_file} is not JSON: {error}.") from None
    if not isinstance(raw, dict):
        raise TransferRefused(f"{json_file} is not a JSON object.")
    return odata.read_entity(
        {**raw, "PartitionKey": key.partition_key, "RowKey": key.row_key}
    ).properties
