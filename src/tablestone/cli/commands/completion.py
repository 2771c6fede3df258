"""`tablestone completion`: print the script with which a shell completes commands, options and names of tables."""

import sys

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_TABLESTONE_COMPLETE"


@click.command(epilog="Example: tablestone completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options and the names of tables, those of the endpoint that the options
    before them or the environment name.
    """
    found = get_completion_class(shell)
    assert found is not None  # click has these three
    sys.stdout.write(found(ctx.find_root().command, {}, "tablestone", _VARIABLE).source() + "\n")
