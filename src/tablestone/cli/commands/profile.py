"""`tablestone profile`: store connections under names, their secrets in the keyring or in a file of mode 0600."""

import os
import sys

import click

from tablestone.tools.connection import GivenConnection, from_file, open_profiles, resolve
from tablestone.tools.errors import TransferRefused


@click.group(epilog="Example: tablestone profile add production --connection-string @azure.txt")
def profile() -> None:
    """Store connections under names.

    A profile is used with --profile, and by name in `copy` and `diff`.
    """


@profile.command(
    epilog="Example: tablestone profile add production --connection-string - < azure.txt"
)
@click.argument("name")
@click.option("--connection-string", help="Connection string; @FILE or - reads it from there.")
@click.option(
    "--account-url", metavar="URL", help="URL of an account; without --sas, Entra signs in."
)
@click.option("--sas", help="Shared access signature; @FILE or - reads it from there.")
@click.option(
    "--keep-in",
    type=click.Choice(("keyring", "file")),
    help="Where the secret is kept.  [default: the keyring where there is one]",
)
def add(
    name: str,
    connection_string: str | None,
    account_url: str | None,
    sas: str | None,
    keep_in: str | None,
) -> None:
    """Keep a connection under a name."""
    if not name.isidentifier() or name == "local":
        raise TransferRefused(
            f"{name!r} cannot name a profile: letters, digits and _; `local` is taken."
        )
    if connection_string is None and account_url is None:
        raise TransferRefused("Give --connection-string or --account-url.")
    given = GivenConnection(_read(connection_string), account_url, _read(sas))
    connection = resolve(given, {}, {})
    profiles = open_profiles(os.environ)
    before = [f" It was {url}." for known, url, *_ in profiles.described() if known == name]
    kept = profiles.add(
        name, connection, in_keyring=None if keep_in is None else keep_in == "keyring"
    )
    places = {"keyring": "the keyring", "file": "a file of mode 0600"}
    where = f"Its secret is in {places[kept]}." if kept in places else ""
    print(f"Profile {name} is {connection.url}. {where}{''.join(before)}")


@profile.command(name="list", epilog="Example: tablestone profile list")
def list_profiles() -> None:
    """Print the profiles, without their secrets."""
    for name, url, scheme, kept in open_profiles(os.environ).described():
        print(f"{name}\t{url}\t{scheme}\t{kept}")


@profile.command(epilog="Example: tablestone profile remove production")
@click.argument("name")
def remove(name: str) -> None:
    """Forget a profile and its secret."""
    open_profiles(os.environ).remove(name)
    print(f"Profile {name} removed.")


def _read(text: str | None) -> str | None:
    if text == "-":
        return sys.stdin.read().strip()
    return None if text is None else from_file(text)
