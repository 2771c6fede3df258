"""`tablestone compact`, `upgrade`, `encrypt`, `rekey` and `decrypt`: rewrite the data where it is."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from tablestone.cli import options
from tablestone.cli.local_directory import (
    LocalDirectory,
    byte_progress,
    explaining_failure,
    local_directory,
)
from tablestone.cli.option_sources import KEY_VARIABLE, key_in_file
from tablestone.engines.kind import EncryptionKey
from tablestone.engines.sqlite.data_directory import FEATURES, REENCRYPTED_NAME
from tablestone.engines.sqlite.free_space import compact as give_back
from tablestone.engines.sqlite.reencryption import reencrypt
from tablestone.engines.sqlite.upgrade import upgrade as bring_up
from tablestone.tools.progress import shown_bytes, shown_count


@click.command()
@options.quiet_option
@options.with_options(options.CHANGE_OPTIONS)
def compact(*, quiet: bool, **given: Any) -> None:
    """Give free space back to the file system.

    A server may use the directory at the same time. It gives most of the free space back by
    itself; this command gives all of it.
    """
    directory, key = local_directory(
        given,
        "A cluster or a database compacts its files by itself; `nodetool compact` or `VACUUM` starts it.",
    )
    with byte_progress("compact", quiet=quiet) as progress:
        before, after = give_back(directory, progress, key)
    print(
        f"{directory}: {shown_bytes(before.database_bytes)} before, {shown_bytes(after.database_bytes)} now"
    )


@click.command()
@options.with_options(options.CHANGE_OPTIONS)
def upgrade(**given: Any) -> None:
    """Bring a data directory to the newest format.

    The server must be stopped. Make a backup first: older versions of Tablestone refuse a newer
    format. A directory whose format needs no upgrade does not change.
    """
    directory, key = local_directory(
        given,
        "`tablestone cluster init` or `tablestone postgresql init` adds what a newer version needs, and `tablestone "
        "cluster check` says whether something is missing in a cluster.",
    )
    before, after = bring_up(directory, key=key)
    if before != after:
        print(f"{directory}: upgraded from format {before} to format {after}")
    else:
        lacks = [f"{what} makes it {each}" for each, what in FEATURES.items() if each > after]
        more = f" ({', '.join(lacks)})" if lacks else ", which is the newest"
        print(f"{directory}: format {after}{more}; nothing to upgrade")


_KEY_OPTIONS: Final = (
    *options.CHANGE_OPTIONS[:2],
    replace(
        options.ENCRYPTION_KEY_FILE, help="File with the key, which must exist.", default="none"
    ),
)


@click.command(
    epilog="Example: tablestone encrypt --data ./data --encryption-key-file /etc/tablestone/key"
)
@options.quiet_option
@options.with_options(_KEY_OPTIONS)
def encrypt(*, quiet: bool, **given: Any) -> None:
    """Encrypt a data directory with a key.

    The server must be stopped. The data is written again as a whole, and the disk needs room for
    two copies. If the command is interrupted, the directory is as it was. Backups that exist stay
    as they are.
    """
    directory = _required_key(given)
    written = _reencrypt(directory, None, directory.key, "encrypt", quiet=quiet)
    print(f"{directory.path}: encrypted, {written}")
    print(
        "Nobody can read the data without the key: keep a copy of it, not beside the backups. The disk may still hold "
        "parts of the old files."
    )


@click.command(
    epilog="Example: tablestone rekey --data ./tables --encryption-key-file old.key --new-key-file new.key"
)
@click.option("--new-key-file", metavar="FILE", required=True, help="File with the new key.")
@options.quiet_option
@options.with_options(_KEY_OPTIONS)
def rekey(new_key_file: str, *, quiet: bool, **given: Any) -> None:
    """Change the key of an encrypted data directory.

    The server must be stopped. The data is written again as a whole, and the disk needs room for
    two copies. If the command is interrupted, the old key stays. Backups keep the key that they
    were made with.
    """
    directory = _required_key(given)
    new = key_in_file(options.path_from(new_key_file, Path.cwd()))
    if new == directory.key:
        raise options.BrokenOption(f"The key in {new_key_file} is the present one: make a new one.")
    written = _reencrypt(directory, directory.key, new, "rekey", quiet=quiet)
    print(f"{directory.path}: encrypted with the new key, {written}")
    print("Older backups, and older moments of an archive, still need the old key.")


@click.command(
    epilog="Example: tablestone decrypt --data ./data --encryption-key-file /etc/tablestone/key"
)
@options.quiet_option
@options.with_options(_KEY_OPTIONS)
def decrypt(*, quiet: bool, **given: Any) -> None:
    """Write an encrypted data directory without encryption.

    The server must be stopped. The data is written again as a whole, and the disk needs room for
    two copies. If the command is interrupted, the directory stays encrypted.
    """
    directory = _required_key(given)
    written = _reencrypt(directory, directory.key, None, "decrypt", quiet=quiet)
    print(f"{directory.path}: not encrypted any more, {written}")


def _required_key(given: Mapping[str, Any]) -> LocalDirectory:
    directory = local_directory(
        given, "A cluster or a database encrypts its files by itself, or its disks do."
    )
    if directory.key is None:
        raise options.BrokenOption(
            f"There is no key: name its file with {options.ENCRYPTION_KEY_FILE.flag}, or set {KEY_VARIABLE}."
        )
    return directory


def _reencrypt(
    directory: LocalDirectory,
    old: EncryptionKey | None,
    new: EncryptionKey | None,
    title: str,
    *,
    quiet: bool,
) -> str:
    """Write the data again with the key `new`; returns what was written, for a person."""
    failure = explaining_failure(
        f"The data directory {directory.path} is as it was", directory.path / REENCRYPTED_NAME
    )
    with byte_progress(title, quiet=quiet) as progress, failure:
        rows, size = reencrypt(directory.path, old, new, progress)
    return f"{shown_count(rows, 'row')}, {shown_bytes(size)}"
