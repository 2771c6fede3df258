"""`tablestone`: the commands, and the one place where a failure becomes a sentence and an exit status.

Exit statuses: 0 done; 1 the command found a problem or failed; 2 the command could not start, or could not print its
result; 130 and 141 as if SIGINT or SIGPIPE had ended it.
The commands are in `server_commands` and `data_commands`; neither is loaded for a command of the other.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence

import click

from tablestone import __version__, limits
from tablestone.cli.data_commands import SERVER_COMMANDS, Commands
from tablestone.cli.output import OutputFailed, discard_output, prepare_streams
from tablestone.cli.secrets_in_arguments import hide_secrets
from tablestone.tools.refusals import TransferFailed, TransferRefused

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns the exit status."""
    _leave_no_core_dump()
    hide_secrets(["tablestone"], sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except OutputFailed as failed:
        discard_output()
        return READER_GONE if failed.reader_has_gone else _refuse(str(failed))
    return status


def _leave_no_core_dump() -> None:
    """Let no process of any command write its memory to a file when it crashes, because keys may be in it.

    Only the soft limit is lowered: an operator who needs a dump raises it with `prlimit --core`.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


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
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        # Failures first: EngineFull is an EngineRefused too.
        if isinstance(error, (TransferFailed, *_of_the_server("FAILURES"))):
            # The text of an engine may have words of a library, which are for a log.
            return _refuse(getattr(error, "sentence", str(error)), FAILED)
        if isinstance(error, (TransferRefused, *_of_the_server("REFUSALS"))):
            return _refuse(str(error))
        raise
    return status if isinstance(status, int) else 0


def _of_the_server(name: str) -> tuple[type[Exception], ...]:
    """The errors of the server's commands; none if no such command was loaded."""
    loaded = sys.modules.get(SERVER_COMMANDS)
    found: tuple[type[Exception], ...] = getattr(loaded, name, ())
    return found


def _refuse(sentence: str, status: int = NOT_STARTED) -> int:
    print(f"tablestone: {sentence}", file=sys.stderr)
    return status
