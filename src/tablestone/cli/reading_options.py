"""The options that say how the rows of a file become entities: shared by the commands that read a file.

Knows click, and makes a `Reading` of texts; the files themselves are read in `tools/formats`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import click

from tablestone.tools.formats.reading_file import KINDS
from tablestone.tools.formats.rows import Reading, parse_types

_OPTIONS = (
    click.option(
        "--format", "kind", type=click.Choice(KINDS), help="[default: by the end of the name]"
    ),
    click.option(
        "--partition-key",
        metavar="TEMPLATE",
        help="A column, or '{a}-{b:02}'.  [default: PartitionKey]",
    ),
    click.option("--row-key", metavar="TEMPLATE", help="The same.  [default: RowKey]"),
    click.option(
        "--types",
        metavar="NAME=TYPE,...",
        multiple=True,
        help="Types of columns; a CSV column without a type is String.",
    ),
    click.option(
        "--null",
        "nulls",
        metavar="TEXT",
        multiple=True,
        help="A cell with this text counts as empty.",
    ),
    click.option("--drop", metavar="NAMES", multiple=True, help="Do not store these columns."),
    click.option(
        "--encoding",
        metavar="NAME",
        default="utf-8",
        show_default=True,
        help="Encoding of CSV.",
    ),
)


def with_reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a file: the command gets `kind`, and the other options for `reading_of`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def reading_of(given: Mapping[str, Any], *, keeps_columns: bool = False) -> Reading:
    """The reading that the options ask for; `TransferRefused` if one of them cannot be read."""
    reading = Reading(
        partition_key=given["partition_key"],
        row_key=given["row_key"],
        types=parse_types(given["types"]),
        nulls=frozenset(given["nulls"]),
        drop=frozenset(name for text in given["drop"] for name in text.split(",")),
        encoding=given["encoding"],
    )
    return replace(reading, keeps_columns=keeps_columns)
