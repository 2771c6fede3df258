"""`tablestone`: the commands, and the one place where a failure becomes a sentence and an exit status.

Exit statuses: 0 done; 1 the command found a problem or failed; 2 the command could not start, or could not print its
result; 130 and 141 as if SIGINT or SIGPIPE had ended it. `command_list` has the commands, and loads the one that runs.
"""

from __future__ import annotations

import errno
import io
import os
import re
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tablestone import __version__, limits
from tablestone.cli.command_list import Commands
from tablestone.cli.parent_pipe import end_with_parent
from tablestone.extras import IS_FROZEN
from tablestone.tools.errors import TransferFailed, TransferRefused

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD_OUTPUT: Final = 1


class OutputFailed(Exception):
    """Standard output cannot be written. If the reader of a pipe has ended, as with `| head`, that needs no message."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"Standard output cannot be written: {error.strerror}.")
        self.reader_has_gone = error.errno == errno.EPIPE


class _Output(io.FileIO):
    """Standard output that raises `OutputFailed`: click catches an `OSError`, which can also be of another file."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputFailed(error) from None


def prepare_streams() -> None:
    """Make every failure of standard output an `OutputFailed`, and discard text for a stream that does not exist."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for good
    own = sys.__stdout__
    if isinstance(own, io.TextIOWrapper) and sys.stdout is own:
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(STANDARD_OUTPUT, "w", closefd=False)),
            encoding=own.encoding,
            errors=own.errors,
            line_buffering=own.line_buffering or own.write_through,
        )


def discard_output() -> None:
    """Discard the output that is left: at its end the interpreter would write it and print another error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STANDARD_OUTPUT)
    os.close(nowhere)


_SECRET: Final = re.compile(
    r"((?:AccountKey|SharedAccessSignature|--pwd)=)[^;]*|([?&]?\bsig=)[^&;]*", re.IGNORECASE
)
_HIDDEN: Final = "(hidden)"
_SECRET_FLAGS: Final = {"--sas", "--pwd"}


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """The arguments with every key and signature replaced."""
    shown = []
    for index, argument in enumerate(arguments):
        if index and arguments[index - 1] in _SECRET_FLAGS and not argument.startswith("@"):
            shown.append(_HIDDEN)
        else:
            shown.append(_SECRET.sub(lambda found: (found[1] or found[2]) + _HIDDEN, argument))
    return shown


def hide_secrets(program: Sequence[str], arguments: Sequence[str]) -> None:
    """Show the process without its secrets in the list of processes."""
    shown = without_secrets(arguments)
    if shown == list(arguments):
        return
    try:
        from setproctitle import setproctitle  # noqa: PLC0415 - needed by those arguments only
    except ImportError:
        return  # the command that takes them needs the same extra, and will say so
    setproctitle(" ".join([*program, *shown]))


FAILED = 1
NOT_STARTED = 2
INTERRUPTED = 130
READER_GONE = 141
HOW_IT_RUNS = "interpreted" if limits.__file__.endswith(".py") else "compiled"
"""Whether the modules that run for each request are compiled (docs/decisions/0007-compiled.md); a report needs it."""


def _show_version(context: click.Context, _option: click.Parameter, is_asked: bool) -> None:  # noqa: FBT001 - click's
    if is_asked and not context.resilient_parsing:
        from tablestone.engines.sqlite.row_hints import way  # noqa: PLC0415 - loads SQLite

        build = ""
        if IS_FROZEN:
            # The builders of what users download write it: folder, one file, npm, image or Debian.
            build = f", {Path(sys.executable).with_name('BUILD').read_text('utf-8').strip()} build"
        click.echo(f"Tablestone {__version__}, {HOW_IT_RUNS}, filters in {way()}{build}")
        context.exit()


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    help="Show the version and exit.",
    callback=_show_version,
)
def commands() -> None:
    """The Azure Table service as software anyone can run."""
    end_with_parent(os.environ)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit status."""
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
    """No core dump: there may be keys in memory. Only the soft limit is lowered: `prlimit --core` raises it."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        status = commands.main(args=arguments, prog_name="tablestone", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        help_wanted.show()
        return NOT_STARTED
    except click.ClickException as error:
        message = " ".join(error.format_message().split())  # it may have several lines
        context = getattr(error, "ctx", None)
        if context is not None and type(error) is not click.BadParameter:
            usage = " ".join(context.get_usage().split())
            message += f"\n{usage} (`{context.command_path} --help` says more)"
        return _refuse(message)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        status = _status_of(error)
        if status is None:
            raise
        # The text of an engine's error may quote a library, which belongs in a log.
        return _refuse(getattr(error, "sentence", str(error)), status)
    return status if isinstance(status, int) else 0


def _status_of(error: Exception) -> int | None:
    """The exit status for an error whose text is one sentence; None for any other error."""
    if isinstance(error, TransferFailed):
        return FAILED
    if isinstance(error, TransferRefused):
        return NOT_STARTED
    # The server's errors: a data tool does not wait for their modules.
    from tablestone.accounts.stored_accounts import AccountRefused  # noqa: PLC0415 - as above
    from tablestone.cli.local_directory import BackupFailed  # noqa: PLC0415 - as above
    from tablestone.cli.options import BrokenOption  # noqa: PLC0415 - as above
    from tablestone.engines import contract  # noqa: PLC0415 - as above
    from tablestone.server.worker import StartRefused  # noqa: PLC0415 - as above
    from tablestone.tables.index_building import IndexGone, IndexRefused  # noqa: PLC0415 - as above

    # Failures first: EngineFull is an EngineRefused too.
    unfinished = (contract.EngineFull, contract.EngineUnavailable, contract.OutcomeUnknown)
    if isinstance(error, (BackupFailed, IndexGone, *unfinished)):
        return FAILED
    refused = BrokenOption | StartRefused | AccountRefused | IndexRefused | contract.EngineRefused
    if isinstance(error, refused):
        return NOT_STARTED
    return None


def _refuse(sentence: str, status: int = NOT_STARTED) -> int:
    print(f"tablestone: {sentence}", file=sys.stderr)
    return status
