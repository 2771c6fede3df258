"""The table of options as click parameters: every value stays text here, `configuration.py` makes values of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tablestone.cli.configuration import CONFIG_FLAG, CONFIG_VARIABLE
from tablestone.cli.options import DATA, ENGINE, Option

Command = Callable[..., Any]


def with_options(options: Sequence[Option]) -> Callable[[Command], Command]:
    """The options, and `--config`, on a command; it receives them as keyword arguments."""

    def decorate(command: Command) -> Command:
        command = click.option(
            CONFIG_FLAG,
            metavar="FILE",
            type=str,
            help=f"TOML file with any of these options.  [env: {CONFIG_VARIABLE}]",
        )(command)
        for option in reversed(options):
            command = click.option(
                option.flag,
                option.name.replace("-", "_"),
                metavar=option.metavar,
                multiple=option.repeatable,
                type=str,
                help=f"{option.help}  [env: {option.variable}; default: {option.default}]",
            )(command)
        return command

    return decorate


def by_option_name(given: dict[str, Any]) -> dict[str, Any]:
    """What click passes a command, keyed as the options are named."""
    return {parameter.replace("_", "-"): value for parameter, value in given.items()}


def same_place(given: Mapping[str, Any]) -> str:
    """The options that name the storage, as they were typed, to stand behind another command that is to be pasted."""
    flags = {DATA.name: DATA.flag, ENGINE.name: ENGINE.flag, "config": CONFIG_FLAG}
    typed = ((flag, given.get(name)) for name, flag in flags.items())
    return "".join(f" {flag} {shlex.quote(value)}" for flag, value in typed if value)


def where(data_directory: Path | None) -> str:
    """Where the data is, for a person."""
    return str(data_directory) if data_directory else "memory, gone when it stops"
