"""The table of options as click parameters. Values stay text here; `option_sources` parses them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from tablestone.cli.option_sources import CONFIG_FLAG, CONFIG_VARIABLE
from tablestone.cli.options import DATA, ENCRYPTION_KEY_FILE, ENGINE, Option
from tablestone.configuration import Configuration
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.kind import EngineUrl
from tablestone.engines.registry import capabilities_of

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
            # Behind an option that may stand alone, a word that begins with a hyphen is the next option.
            alone: dict[str, Any] = (
                {} if option.bare is None else {"is_flag": False, "flag_value": option.bare}
            )
            command = click.option(
                option.flag,
                option.name.replace("-", "_"),
                metavar=option.shown_metavar,
                multiple=option.repeatable,
                type=str,
                help=_help(option),
                **alone,
            )(command)
        return command

    return decorate


def key_file_option(what: str) -> Callable[[Command], Command]:
    """The key file of a directory that is not the one of `--data`; the command receives `encryption_key_file`."""
    option = ENCRYPTION_KEY_FILE
    return click.option(
        option.flag,
        option.name.replace("-", "_"),
        metavar=option.metavar,
        help=f"File with the key of {what}, if it is encrypted.  [env: {option.variable}]",
    )


def _help(option: Option) -> str:
    repeats = " Can be repeated." if option.repeatable else ""
    return f"{option.help}{repeats}  [env: {option.variable}; default: {option.default}]"


def by_option_name(given: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a command, by the names of the options."""
    return {parameter.replace("_", "-"): value for parameter, value in given.items()}


def same_place(given: Mapping[str, Any]) -> str:
    """The options that name the storage, as they were typed, for the end of another command that a person can paste."""
    options = (DATA, ENGINE, ENCRYPTION_KEY_FILE)
    flags = {option.name.replace("-", "_"): option.flag for option in options}
    flags["config"] = CONFIG_FLAG
    typed = ((flag, given.get(name)) for name, flag in flags.items())
    return "".join(f" {flag} {shlex.quote(value)}" for flag, value in typed if value)


def where(configuration: Configuration) -> str:
    """The place of the data, as a text for a person."""
    if capabilities_of(configuration.engine).stored_in is StoredIn.PROCESS:
        return "memory, lost when the server stops"
    return str(configuration.data_directory or EngineUrl.parse(configuration.engine).shown)
