"""`tablestone encrypt`, `rekey` and `decrypt`: write a data directory again, with a key, with another one, or without.

Knows the options and the printed text; `engines.sqlite.reencryption` does the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import click

from tablestone.cli.backup_files import BackupFailed, ByteProgress
from tablestone.cli.encryption_keys import KEY_VARIABLE, key_in_file
from tablestone.cli.local_directory import (
    LocalDirectory,
    local_directory,
    naming_denied_places,
    reason_of,
)
from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import CHANGE_OPTIONS, DATA, ENCRYPTION_KEY_FILE, ENGINE
from tablestone.cli.parameters import with_options
from tablestone.engines.encryption_key import EncryptionKey
from tablestone.engines.sqlite.data_directory import REENCRYPTED_NAME
from tablestone.engines.sqlite.reencryption import reencrypt
from tablestone.tools.progress import shown_bytes

ON_SERVERS: Final = "A cluster encrypts its files by itself, or its disks do."
_PRESENT: Final = (
    *(option for option in CHANGE_OPTIONS if option.name in {DATA.name, ENGINE.name}),
    replace(ENCRYPTION_KEY_FILE, help="File with the present key.", default="none"),
)
_COMING: Final = (
    *_PRESENT[:2],
    replace(ENCRYPTION_KEY_FILE, help="File with the key, which must exist.", default="none"),
)
_quiet = click.option("--quiet", is_flag=True, help="No progress on standard error.")


@click.command(
    epilog="Example: tablestone encrypt --data ./data --encryption-key-file /etc/tablestone/key"
)
@_quiet
@with_options(_COMING)
def encrypt(*, quiet: bool, **given: Any) -> None:
    """Encrypt a data directory with a key.

    The server must be stopped. The data is written again as a whole, and the disk needs room for
    two copies. If the command is interrupted, the directory is as it was. Backups that exist stay
    as they are.
    """
    directory = _required_key(given)
    rows, size = _written(directory, None, directory.key, "encrypt", quiet=quiet)
    print(f"{directory.path}: encrypted, {_rows(rows)}, {shown_bytes(size)}")
    print(
        "Nobody can read the data without the key: keep a copy of it, not beside the backups. The disk may still hold "
        "parts of the old files."
    )


@click.command(
    epilog="Example: tablestone rekey --data ./data --encryption-key-file old.key --new-key-file new.key"
)
@click.option("--new-key-file", metavar="FILE", required=True, help="File with the new key.")
@_quiet
@with_options(_PRESENT)
def rekey(new_key_file: str, *, quiet: bool, **given: Any) -> None:
    """Change the key of an encrypted data directory.

    The server must be stopped. The data is written again as a whole, and the disk needs room for
    two copies. If the command is interrupted, the old key stays. Backups keep the key that they
    were made with.
    """
    directory = _required_key(given)
    new = key_in_file(new_key_file)
    if new == directory.key:
        raise BrokenOption(f"The key in {new_key_file} is the present one: make a new one.")
    rows, size = _written(directory, directory.key, new, "rekey", quiet=quiet)
    print(f"{directory.path}: encrypted with the new key, {_rows(rows)}, {shown_bytes(size)}")
    print("Older backups still need the old key.")


@click.command(
    epilog="Example: tablestone decrypt --data ./data --encryption-key-file /etc/tablestone/key"
)
@_quiet
@with_options(_PRESENT)
def decrypt(*, quiet: bool, **given: Any) -> None:
    """Write an encrypted data directory without encryption.

    The server must be stopped. The data is written again as a whole, and the disk needs room for
    two copies. If the command is interrupted, the directory stays encrypted.
    """
    directory = _required_key(given)
    rows, size = _written(directory, directory.key, None, "decrypt", quiet=quiet)
    print(f"{directory.path}: not encrypted any more, {_rows(rows)}, {shown_bytes(size)}")


def _required_key(given: Mapping[str, Any]) -> LocalDirectory:
    directory = local_directory(given, ON_SERVERS)
    if directory.key is None:
        raise BrokenOption(
            f"There is no key: name its file with {ENCRYPTION_KEY_FILE.flag}, or set {KEY_VARIABLE}."
        )
    return directory


def _written(
    directory: LocalDirectory,
    old: EncryptionKey | None,
    new: EncryptionKey | None,
    title: str,
    *,
    quiet: bool,
) -> tuple[int, int]:
    undone = f"The data directory {directory.path} is as it was"
    progress = ByteProgress(title, quiet=quiet)
    try:
        with naming_denied_places(undone):
            return reencrypt(directory.path, old, new, progress)
    except OSError as error:
        raise BackupFailed(
            f"{undone}: {reason_of(error, directory.path / REENCRYPTED_NAME)}."
        ) from None
    finally:
        progress.close()


def _rows(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"
