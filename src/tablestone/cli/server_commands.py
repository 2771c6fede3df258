"""The commands of the server, and the errors with which they end. A module is one click command.

`data_commands` loads this module when one of its commands runs, or for the list of all commands: it imports the whole
server, which takes longer than most data tools run.
"""

from __future__ import annotations

from typing import Final

import click

from tablestone.accounts.stored_accounts import AccountRefused
from tablestone.cli.commands.account import account
from tablestone.cli.commands.azurite import azurite, azurite_table
from tablestone.cli.commands.backup import backup, restore
from tablestone.cli.commands.check import check
from tablestone.cli.commands.cluster import cluster
from tablestone.cli.commands.maintenance import compact, decrypt, encrypt, rekey, upgrade
from tablestone.cli.commands.role import role
from tablestone.cli.commands.salvage import salvage
from tablestone.cli.commands.sas import sas
from tablestone.cli.commands.serve import serve
from tablestone.cli.commands.token import token
from tablestone.cli.local_directory import BackupFailed
from tablestone.cli.options import BrokenOption
from tablestone.engines.contract import EngineFull, EngineRefused, EngineUnavailable, OutcomeUnknown
from tablestone.server.worker import StartRefused

COMMANDS: Final[tuple[click.Command, ...]] = (
    account,
    azurite,
    azurite_table,
    backup,
    check,
    cluster,
    compact,
    decrypt,
    encrypt,
    rekey,
    restore,
    role,
    salvage,
    sas,
    serve,
    token,
    upgrade,
)
REFUSALS: Final = (BrokenOption, StartRefused, AccountRefused, EngineRefused)
"""Errors of a command that could not start; each is one sentence."""
FAILURES: Final = (BackupFailed, EngineFull, EngineUnavailable, OutcomeUnknown)
"""Errors of a command that began; each is one sentence. They come before the refusals, of which a full disk is one."""
