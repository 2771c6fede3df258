"""`tablestone`: the commands, and the one place where a failure becomes a sentence and an exit status.

Exit statuses: 0 done, 1 the command found something wrong or failed, 2 it could not start as it was asked to, or could
not print what it had to; 130 and 141 as if SIGINT or SIGPIPE had ended it.
A command is one module with one click command in it, and is added to the group below.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from tablestone import __version__, limits
from tablestone.cli.account import account
from tablestone.cli.check import check
from tablestone.cli.options import BrokenOption
from tablestone.cli.output import OutputFailed, discard_output, prepare_streams
from tablestone.cli.role import role
from tablestone.cli.serve import serve
from tablestone.cli.token import token
from tablestone.engines.contract import EngineRefused, EngineUnavailable
from tablestone.server.stored_accounts import AccountRefused
from tablestone.server.worker import StartRefused

NOT_STARTED = 2
INTERRUPTED = 130
READER_GONE = 141
HOW_IT_RUNS = "interpreted" if limits.__file__.endswith(".py") else "compiled"
"""Of the modules on the way of a request (docs/decisions/0007-compiled.md): figures depend on it, and bugs may."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__, prog_name="Tablestone", message=f"%(prog)s %(version)s, {HOW_IT_RUNS}"
)
def commands() -> None:
    """The Azure Table service as software anyone can run."""


commands.add_command(serve)
commands.add_command(check)
commands.add_command(role)
commands.add_command(token)
commands.add_command(account)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and answers the exit status."""
    prepare_streams()
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except OutputFailed as failed:
        discard_output()
        return READER_GONE if failed.reader_has_gone else _refuse(str(failed))
    return status


def _run(arguments: Sequence[str] | None) -> int:
    try:
        status = commands.main(args=arguments, prog_name="tablestone", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        help_wanted.show()
        return NOT_STARTED
    except click.ClickException as error:
        return _refuse(" ".join(error.format_message().split()))  # it may be of several lines
    except (
        *(BrokenOption, StartRefused, AccountRefused, EngineRefused, EngineUnavailable),
    ) as refused:
        return _refuse(str(refused))
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _refuse(sentence: str) -> int:
    print(f"tablestone: {sentence}", file=sys.stderr)
    return NOT_STARTED
