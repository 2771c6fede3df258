"""`tablestone`: the commands, and the one place where a failure becomes a sentence and an exit status.

Exit statuses: 0 done; 1 the command found a problem or failed; 2 the command could not start, or could not print its
result; 130 and 141 as if SIGINT or SIGPIPE had ended it.
A command is a module with one click command, which is added to the group below.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from tablestone import __version__, limits
from tablestone.cli.backup_files import BackupFailed
from tablestone.cli.commands.account import account
from tablestone.cli.commands.azurite import azurite, azurite_table
from tablestone.cli.commands.backup import backup
from tablestone.cli.commands.check import check
from tablestone.cli.commands.cluster import cluster
from tablestone.cli.commands.restore import restore
from tablestone.cli.commands.role import role
from tablestone.cli.commands.sas import sas
from tablestone.cli.commands.serve import serve
from tablestone.cli.commands.token import token
from tablestone.cli.data_commands import Commands
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.output import OutputFailed, discard_output, prepare_streams
from tablestone.cli.secrets_in_arguments import hide_secrets
from tablestone.engines.contract import EngineRefused, EngineUnavailable, OutcomeUnknown
from tablestone.identity.stored_accounts import AccountRefused
from tablestone.server.processes.worker import StartRefused
from tablestone.transfer.refusals import TransferFailed, TransferRefused

FAILED = 1
NOT_STARTED = 2
INTERRUPTED = 130
READER_GONE = 141
HOW_IT_RUNS = "interpreted" if limits.__file__.endswith(".py") else "compiled"
"""Whether the modules that run for each request are compiled (docs/decisions/0007-compiled.md); a report needs it."""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__, prog_name="Tablestone", message=f"%(prog)s %(version)s, {HOW_IT_RUNS}"
)
def commands() -> None:
    """The Azure Table service as software anyone can run."""


commands.add_command(serve)
commands.add_command(azurite)
commands.add_command(azurite_table)
commands.add_command(check)
commands.add_command(backup)
commands.add_command(restore)
commands.add_command(cluster)
commands.add_command(role)
commands.add_command(token)
commands.add_command(account)
commands.add_command(sas)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns the exit status."""
    hide_secrets(["tablestone"], sys.argv[1:] if arguments is None else arguments)
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
        return _refuse(
            " ".join(error.format_message().split())
        )  # the message may have several lines
    except (
        *(BrokenOption, StartRefused, AccountRefused),
        *(EngineRefused, EngineUnavailable, OutcomeUnknown),
        TransferRefused,
    ) as refused:
        return _refuse(str(refused))
    except (TransferFailed, BackupFailed) as failed:
        return _refuse(str(failed), FAILED)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _refuse(sentence: str, status: int = NOT_STARTED) -> int:
    print(f"tablestone: {sentence}", file=sys.stderr)
    return status
