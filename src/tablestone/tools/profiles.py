"""Named profiles: endpoints that a user keeps under a name, with their secrets in the keyring or in a file of mode
0600.

Knows the file's form and the library keyring; `endpoint_connection` knows which part of a connection is a secret. In a
keyring, secrets are under the service "tablestone". Nothing here prints a secret.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tablestone.tools.connection import Connection, Scheme
from tablestone.tools.refusals import TransferRefused
from tablestone.user_directories import NoHomeDirectory, UserDirectory, user_directory

SERVICE: Final = "tablestone"
DIRECTORY_VARIABLE: Final = "TABLESTONE_PROFILES"
"""Names the directory of the profiles; without it they are in the user's configuration."""
_IN_KEYRING: Final = "keyring"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Profiles(Mapping[str, Connection]):
    """The profiles of a user, read from the file once; a secret in the keyring is fetched when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, dict[str, Any]] = _read(path)

    def __getitem__(self, name: str) -> Connection:
        entry = self._entries[name]
        scheme = Scheme(entry["scheme"])
        secret = entry.get("secret")
        if scheme is not Scheme.ENTRA and entry.get("kept_in") == _IN_KEYRING:
            secret = _from_keyring(name)
        return Connection(entry["url"], entry["account"], scheme, secret)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def described(self) -> list[tuple[str, str, str, str]]:
        """Name, URL, scheme and where the secret is, of each profile, without touching a secret."""
        return [
            (name, entry["url"], entry["scheme"], entry.get("kept_in", "-"))
            for name, entry in sorted(self._entries.items())
        ]

    def add(self, name: str, connection: Connection, *, in_keyring: bool | None) -> str:
        """Keep a connection; answers where its secret is. None prefers the keyring and falls back to the file."""
        entry: dict[str, Any] = {
            "url": connection.url,
            "account": connection.account,
            "scheme": connection.scheme.value,
        }
        if connection.secret is not None:
            kept = in_keyring is not False and _to_keyring(
                name, connection.secret, must=in_keyring is True
            )
            entry["kept_in"] = _IN_KEYRING if kept else "file"
            if not kept:
                entry["secret"] = connection.secret
        self._entries[name] = entry
        self._write()
        return str(entry.get("kept_in", "-"))

    def remove(self, name: str) -> None:
        """Forget a profile and its secret."""
        entry = self._entries.pop(name, None)
        if entry is None:
            raise TransferRefused(f"There is no profile {name!r}.")
        if entry.get("kept_in") == _IN_KEYRING:
            import keyring.errors  # noqa: PLC0415 - most commands use no profile, and it loads slowly

            with suppress(keyring.errors.KeyringError):
                keyring.delete_password(SERVICE, name)
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # mkstemp makes the file with mode 0600, so no other user can read a secret at any moment.
        handle, written = tempfile.mkstemp(dir=self._path.parent, prefix=".profiles-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(self._entries, file, indent=2)
        Path(written).replace(self._path)


def open_profiles(environment: Mapping[str, str]) -> Profiles:
    """The profiles of the user who runs the command."""
    named = environment.get(DIRECTORY_VARIABLE)
    try:
        directory = Path(named) if named else user_directory(UserDirectory.CONFIGURATION)
    except NoHomeDirectory as none:
        raise TransferRefused(
            f"{none}: name a directory for profiles with {DIRECTORY_VARIABLE}."
        ) from None
    return Profiles(directory / "profiles.json")


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        if path.stat().st_mode & _OTHERS:
            raise TransferRefused(
                f"{path} holds secrets and others may read it: chmod 600 it, and change the keys in it."
            )
        entries = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TransferRefused(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        entries = None
    if not isinstance(entries, dict) or not all(
        isinstance(entry, dict) and {"url", "account", "scheme"} <= entry.keys()
        for entry in entries.values()
    ):
        raise TransferRefused(f"{path} is not a file of profiles.")
    return entries


def _to_keyring(name: str, secret: str, *, must: bool) -> bool:
    import keyring.errors  # noqa: PLC0415 - as above

    try:
        keyring.set_password(SERVICE, name, secret)
    except keyring.errors.KeyringError:
        if must:
            raise TransferRefused(
                "This machine has no keyring that can be used: --keep-in file keeps the secret in a file of mode 0600."
            ) from None
        return False
    return True


def _from_keyring(name: str) -> str:
    import keyring.errors  # noqa: PLC0415 - as above

    try:
        secret = keyring.get_password(SERVICE, name)
    except keyring.errors.KeyringError:
        secret = None
    if secret is None:
        raise TransferRefused(
            f"The keyring does not have the secret of profile {name!r}: add the profile again."
        )
    return secret
