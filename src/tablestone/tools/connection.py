"""The endpoint of a tool, and its credentials: from options, the environment, or a saved profile.

The file of profiles is readable by its owner alone; secrets are in the keyring if there is one.
"""

import base64
import binascii
import enum
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from tablestone.tools.errors import TransferRefused, refusing_unreadable
from tablestone.user_directories import NoHomeDirectory, user_directory

CONNECTION_STRING_VARIABLE: Final = "AZURE_STORAGE_CONNECTION_STRING"
CERTIFICATES_VARIABLE: Final = "REQUESTS_CA_BUNDLE"
"""Names a file or directory of certificates to trust instead of the usual ones."""
LOCAL_ACCOUNT: Final = "devstoreaccount1"
LOCAL_URL: Final = f"http://127.0.0.1:10002/{LOCAL_ACCOUNT}"
"""The Tablestone of this machine, as `tablestone serve` starts it."""
# The emulators' well-known key: the documents of Azure Storage print it, and it opens no account but theirs.
LOCAL_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
DEFAULT_SUFFIX: Final = "core.windows.net"

# Domains of accounts in the public and sovereign clouds, which may hold production data.
_COSMOS_SUFFIXES: Final = (".cosmos.azure.com", ".cosmosdb.azure.com")
_PRODUCTION_SUFFIXES: Final = (
    *(".core.windows.net", ".core.chinacloudapi.cn", ".core.usgovcloudapi.net"),
    *(".core.cloudapi.de", ".storage.azure.net", *_COSMOS_SUFFIXES),
)


class Scheme(enum.Enum):
    """The credentials that sign the requests."""

    ACCOUNT_KEY = "account key"
    SHARED_ACCESS_SIGNATURE = "shared access signature"
    ENTRA = "Entra login"


@dataclass(frozen=True)
class Connection:
    """An endpoint and its credentials. `url` never holds a signature; `secret` is None for an Entra login."""

    url: str
    account: str
    scheme: Scheme
    secret: str | None = field(repr=False, default=None)

    @property
    def is_production(self) -> bool:
        """Whether the account is in one of Azure's clouds."""
        return (urlsplit(self.url).hostname or "").endswith(_PRODUCTION_SUFFIXES)

    @property
    def is_cosmos(self) -> bool:
        """Whether this is the Table API of Cosmos DB, which takes a merge in another form."""
        return (urlsplit(self.url).hostname or "").endswith(_COSMOS_SUFFIXES)

    @property
    def only_table(self) -> str:
        """The one table that the signature allows, from its `tn`; empty if it allows others."""
        is_signature = self.scheme is Scheme.SHARED_ACCESS_SIGNATURE
        return _table_of(self.secret or "") if is_signature else ""


@dataclass(frozen=True)
class GivenConnection:
    """The options of a connection. `@FILE` as a connection string or `sas` stands for the content of the file."""

    connection_string: str | None = field(repr=False, default=None)
    account_url: str | None = field(repr=False, default=None)
    sas: str | None = field(repr=False, default=None)
    profile: str | None = None


def local_connection() -> Connection:
    return Connection(LOCAL_URL, LOCAL_ACCOUNT, Scheme.ACCOUNT_KEY, LOCAL_KEY)


def parse_connection_string(text: str) -> Connection:
    """Parse a connection string; `TransferRefused` names what is missing, never a value."""
    settings = _settings(text)
    if settings.get("usedevelopmentstorage", "").lower() == "true":
        return local_connection()
    account = settings.get("accountname")
    url = settings.get("tableendpoint")
    signature = settings.get("sharedaccesssignature")
    key = settings.get("accountkey")
    if url is None:
        if account is None:
            raise TransferRefused(
                "The connection string names no endpoint: it has neither TableEndpoint nor AccountName."
            )
        protocol = settings.get("defaultendpointsprotocol", "https")
        url = f"{protocol}://{account}.table.{settings.get('endpointsuffix', DEFAULT_SUFFIX)}"
    url, in_url = _split_url(url, "TableEndpoint")
    if key is not None:
        if account is None:
            raise TransferRefused("The connection string has an AccountKey but no AccountName.")
        _require_base64(key)
        return Connection(url, account, Scheme.ACCOUNT_KEY, key)
    secret = signature or in_url
    if secret is None:
        raise TransferRefused(
            "The connection string has neither AccountKey nor SharedAccessSignature."
        )
    return _with_signature(url, secret, account)


def from_url(account_url: str, sas: str | None) -> Connection:
    """An account's URL with a shared access signature; without one, Entra signs in."""
    url, in_url = _split_url(account_url, "--account-url")
    if sas and in_url:
        raise TransferRefused("--sas is given and --account-url has a signature too: give one.")
    secret = sas or in_url
    if secret:
        return _with_signature(url, secret)
    if not url.startswith("https:"):
        raise TransferRefused(
            "An Entra login needs https: give --sas, a connection string, or an https URL."
        )
    return Connection(url, _account_of(url), Scheme.ENTRA)


def resolve(
    given: GivenConnection, environment: Mapping[str, str], profiles: Mapping[str, Connection]
) -> Connection:
    """The connection of the options, else AZURE_STORAGE_CONNECTION_STRING, else the Tablestone on this machine."""
    words = {}
    for name, text in vars(given).items():
        if text is None:
            continue
        flag = f"--{name.replace('_', '-')}"
        words[flag] = from_file(text) if name in ("connection_string", "sas") else text
        # An unset variable of a script must not lead to another account.
        if not words[flag].strip():
            raise TransferRefused(f"{flag} is empty: give a value, or leave the option out.")
    named = [flag for flag in words if flag != "--sas"]
    if len(named) > 1:
        raise TransferRefused(f"{' and '.join(named)} each name an endpoint: give one of them.")
    if "--sas" in words and "--account-url" not in words:
        raise TransferRefused("--sas goes with --account-url, which is not given.")
    if "--connection-string" in words:
        return parse_connection_string(words["--connection-string"])
    if "--account-url" in words:
        return from_url(words["--account-url"], words.get("--sas"))
    if "--profile" in words:
        return find_profile(profiles, words["--profile"])
    in_environment = environment.get(CONNECTION_STRING_VARIABLE)
    if in_environment:
        if in_environment.startswith("@"):  # no SDK would read it either
            raise TransferRefused(
                f"{CONNECTION_STRING_VARIABLE} names a file, and must hold the connection string itself: "
                "--connection-string reads @FILE."
            )
        return parse_connection_string(in_environment)
    return local_connection()


def find_profile(profiles: Mapping[str, Connection], name: str) -> Connection:
    """The profile of this name; `TransferRefused` lists the profiles that exist."""
    try:
        return profiles[name]
    except KeyError:
        known = f"there is: {', '.join(sorted(profiles))}" if profiles else "there are none yet"
        hint = f" @{name} reads the connection from the file." if Path(name).is_file() else ""
        raise TransferRefused(f"There is no profile {name!r}; {known}.{hint}") from None


def parse_place(text: str, profiles: Mapping[str, Connection]) -> Connection:
    """One end of a copy: a connection string, `@FILE` that holds one, the URL of an account, or a profile's name."""
    text = from_file(text).strip()
    if text.lower().startswith(("http://", "https://")):
        return from_url(text, None)
    if "=" in text:
        return parse_connection_string(text)
    return local_connection() if text == "local" else find_profile(profiles, text)


def from_file(text: str) -> str:
    """The text, or for `@FILE` the content of the file, which keeps a secret off the command line."""
    if not text.startswith("@"):
        return text
    with refusing_unreadable(text[1:]):
        return Path(text[1:]).read_text(encoding="utf-8").strip()


def _settings(text: str) -> dict[str, str]:
    settings = {}
    for part in text.strip().strip(";").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise TransferRefused(
                "The connection string is not of the form Name=value;Name=value (quote it in the shell)."
            )
        settings[name.strip().lower()] = value.strip()
    return settings


def _split_url(text: str, source: str) -> tuple[str, str | None]:
    """The URL of the account without its query, and the query: a signature."""
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        port_is_valid, parts = False, urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
        raise TransferRefused(f"{source} is not a URL of an account, http://… or https://….")
    if parts.username is not None or parts.password is not None:
        raise TransferRefused(f"{source} holds a user name, which no Azure endpoint takes.")
    url = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
    return url, parts.query or None


def _table_of(signature: str) -> str:
    return dict(parse_qsl(signature.removeprefix("?"))).get("tn", "")


def _with_signature(url: str, query: str, account: str | None = None) -> Connection:
    """The connection of a signature. The URL may end in the signature's table."""
    parts = urlsplit(url)
    above, _, last = parts.path.rpartition("/")
    # An emulator's path begins with the account, which may be named like the table.
    is_table = bool(above) or ".table." in (parts.hostname or "")
    if last and is_table and last.lower() == _table_of(query).lower():
        url = urlunsplit((parts.scheme, parts.netloc, above, "", ""))
    account = account or _account_of(url)
    return Connection(url, account, Scheme.SHARED_ACCESS_SIGNATURE, _signature(query))


def _account_of(url: str) -> str:
    """The account of a URL: the last segment of the path (an emulator), else the first label of the host."""
    parts = urlsplit(url)
    path = parts.path.strip("/")
    return path.rpartition("/")[2] or (parts.hostname or "").partition(".")[0]


def _signature(text: str) -> str:
    """A shared access signature with each value encoded once."""
    members = parse_qsl(text.removeprefix("?"), keep_blank_values=True)
    if "sig" not in dict(members):
        raise TransferRefused("The shared access signature has no sig.")
    # parse_qsl reads `+` in an unencoded base64 signature as a blank.
    return "&".join(
        f"{quote(name, safe='')}={quote(value.replace(' ', '+') if name == 'sig' else value, safe='')}"
        for name, value in members
    )


def _require_base64(key: str) -> None:
    try:
        base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raise TransferRefused("The AccountKey of the connection string is not base64.") from None


SERVICE: Final = "tablestone"
DIRECTORY_VARIABLE: Final = "TABLESTONE_PROFILES"
"""Names the directory of profiles; the default is the user's configuration directory."""
_IN_KEYRING: Final = "keyring"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Profiles(Mapping[str, Connection]):
    """A user's profiles, read from the file once; a secret in the keyring is fetched on access."""

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
        """Name, URL, scheme and place of the secret of each profile. Reads no secret."""
        return [
            (name, entry["url"], entry["scheme"], entry.get("kept_in", "-"))
            for name, entry in sorted(self._entries.items())
        ]

    def add(self, name: str, connection: Connection, *, in_keyring: bool | None) -> str:
        """Store a connection and return where its secret is. `in_keyring` None: the keyring if there is one."""
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
        entry = self._entries.pop(name, None)
        if entry is None:
            raise TransferRefused(f"There is no profile {name!r}.")
        if entry.get("kept_in") == _IN_KEYRING:
            import keyring.errors  # noqa: PLC0415 - most commands use no profile, and it loads slowly

            with suppress(keyring.errors.KeyringError):
                keyring.delete_password(SERVICE, name)
        self._write()

    def _write(self) -> None:
        write_private_json(self._path, self._entries)


def open_profiles(environment: Mapping[str, str]) -> Profiles:
    return Profiles(settings_directory(environment) / "profiles.json")


def settings_directory(environment: Mapping[str, str]) -> Path:
    """The directory of the user's profiles and saved queries; `TransferRefused` if the user has no home directory."""
    named = environment.get(DIRECTORY_VARIABLE)
    try:
        return Path(named) if named else user_directory("config")
    except NoHomeDirectory as none:
        raise TransferRefused(
            f"{none}: name a directory for profiles with {DIRECTORY_VARIABLE}."
        ) from None


def write_private_json(path: Path, content: object) -> None:
    """Replace a file by JSON that no other user can read at any time; `TransferRefused` if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # mkstemp makes the file with mode 0600.
        handle, written = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
        Path(written).replace(path)
    except OSError as error:
        raise TransferRefused(f"{path} cannot be written: {error.strerror}.") from None


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
