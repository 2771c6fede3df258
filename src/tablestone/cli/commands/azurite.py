"""`tablestone azurite`: `tablestone serve` for scripts, tasks of editors and containers that start Azurite.

It takes Azurite's flags and prints the lines for which such scripts wait. `azurite_flags.py` knows the meaning of the
flags.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from tablestone.cli.azurite_flags import FLAGS, meaning_of
from tablestone.cli.commands.serve import serve_until_stopped
from tablestone.cli.option_sources import read_configuration
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import PORT, TLS_CERTIFICATE
from tablestone.cli.parameters import Command
from tablestone.cli.pfx_certificate import as_pem
from tablestone.clock import monotonic_seconds
from tablestone.server.processes.worker import StartRefused
from tablestone.telemetry.logs import LogFile, formatter_of

LISTENING = {
    "azurite": "Azurite Table service is successfully listening at {address}",
    "azurite-table": "Azurite Table service successfully started on {authority}",
}
"""The line of each of Azurite's two commands when tables are served: scripts wait for it."""
_OTHER_WORDS = {"allow_extra_args": True}
"""Azurite ignores words that belong to no flag, such as the value of a switch."""


def _with_flags(command: Command) -> Command:
    for flag in reversed(FLAGS):
        names = (*((f"-{flag.letter}",) if flag.letter else ()), flag.typed, flag.name)
        if flag.metavar is None:
            command = click.option(*names, is_flag=True, help=flag.help)(command)
        else:
            command = click.option(*names, metavar=flag.metavar, help=flag.help)(command)
    return command


@click.command(context_settings=_OTHER_WORDS)
@_with_flags
@click.pass_context
def azurite(context: click.Context, /, **given: Any) -> None:
    """Serve tables with the flags of Azurite.

    Takes the flags of `azurite` and of `azurite-table`, and AZURITE_ACCOUNTS. Other options can be
    given in the environment, as for `tablestone serve`.
    """
    _serve(LISTENING["azurite"], given, context.args)


@click.command(name="azurite-table", hidden=True, context_settings=_OTHER_WORDS)
@_with_flags
@click.pass_context
def azurite_table(context: click.Context, /, **given: Any) -> None:
    """Serve tables with the flags of `azurite-table`: the same as `tablestone azurite`."""
    _serve(LISTENING["azurite-table"], given, context.args)


def _serve(listening: str, given: dict[str, Any], other_words: list[str]) -> None:
    meaning = meaning_of(given, other_words, os.environ)
    with ExitStack() as files:
        options = dict(meaning.options)
        if meaning.pfx is not None:
            options[TLS_CERTIFICATE.name] = str(files.enter_context(as_pem(*meaning.pfx)))
        configuration = read_configuration(options, meaning.environment)
        _log(configuration.log_format, configuration.log_level.upper(), meaning.debug_log)
        for remark in meaning.remarks:
            print(f"tablestone: {remark}", file=sys.stderr)

        def tell(address: str) -> None:
            authority = address.partition("://")[2]
            print(listening.format(address=address, authority=authority), flush=True)

        try:
            serve_until_stopped(configuration, tell)
        except (
            StartRefused
        ) as refused:  # the advice of a taken port names the option of `tablestone serve`
            raise StartRefused(str(refused).replace(f"{PORT.flag} 0", "--tablePort 0")) from None


def _log(log_format: str, level: str, debug_log: Path | None) -> None:
    """Log to standard error; with a file, all messages go to the file too."""
    errors = logging.StreamHandler(sys.stderr)
    errors.setLevel(level)
    handlers: list[logging.Handler] = [errors]
    if debug_log is not None:
        try:
            debug_log.absolute().parent.mkdir(parents=True, exist_ok=True)
            handlers.append(LogFile(debug_log, monotonic_seconds))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise BrokenOption(f"--debug {debug_log} cannot be written: {reason}.") from None
    for handler in handlers:
        handler.setFormatter(formatter_of(log_format))
    logging.basicConfig(level="DEBUG" if debug_log is not None else level, handlers=handlers)
