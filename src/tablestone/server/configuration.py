"""What a server is told before it starts: one frozen value.

Where it comes from (command line, environment, file, defaults) is the command line's business, `cli/configuration.py`.
It stands here because everything that is configured lives in this layer or below, and `server` may not import `cli`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tablestone.engines.contract import StorageId

DEVELOPMENT_ACCOUNT_NAME = "devstoreaccount1"
DEVELOPMENT_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The well-known key that every SDK has built in for `UseDevelopmentStorage=true` (wire 1.1); no secret."""

LOCAL_DOMAIN = "localhost"
"""`ACCOUNT.table.localhost` always is an account's host."""


@dataclass(frozen=True, slots=True)
class AccountKeys:
    """An account's name and its one or two keys, in base64 as they are handed out."""

    name: str
    keys: tuple[str, ...] = field(repr=False)


DEVELOPMENT_ACCOUNT = AccountKeys(DEVELOPMENT_ACCOUNT_NAME, (DEVELOPMENT_ACCOUNT_KEY,))


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate chain and its private key as PEM files, which may be one and the same."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A certificate the server makes for itself and keeps in `directory`.

    `names` are hosts and addresses beside those of this machine; one that stands for every address is not certified.
    """

    directory: Path
    names: tuple[str, ...]

    @property
    def files(self) -> CertificateFiles:
        """Where it is once it is made."""
        return CertificateFiles(self.directory / "certificate.pem", self.directory / "key.pem")


DEVELOPMENT_TENANT = "7ab1e570-0000-4000-8000-000000000000"
"""The tenant that the challenge names where none is configured; some SDKs take nothing but a GUID (auth 4.2)."""
ENTRA_ID = "https://login.microsoftonline.com"


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """An issuer of bearer tokens. `keys` is where its keys are: a URL, or the path of a file.

    Without `keys` they are where its OpenID configuration says. `tenant`, if given, must be that of its tokens.
    """

    name: str
    keys: str | None
    tenant: str | None

    @property
    def keys_file(self) -> Path | None:
        """The file with its keys, if they are in one."""
        return Path(self.keys) if self.keys is not None and "://" not in self.keys else None


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Whose bearer tokens are believed beside the server's own, for which further audiences, and where to get one.

    An account's own names are audiences too: those below `domains`, and those of `custom_domains` (host, account).
    """

    issuers: tuple[TrustedIssuer, ...] = ()
    audiences: tuple[str, ...] = ()
    tenant: str = DEVELOPMENT_TENANT
    authority: str = ENTRA_ID
    domains: tuple[str, ...] = ()
    custom_domains: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything a server is told. `data_directory` is None when the engine keeps nothing on disk.

    Without `tls` it speaks plain HTTP. `https_only` refuses requests that came over http, `trusted_proxies` are the
    addresses and networks that are believed when they say how a request came to them (auth 6).

    `accounts` are known beside the stored ones, and stand before them. `has_development_account` adds that one, unless
    one of its name is configured or stored. `domains` have accounts at `ACCOUNT.table.DOMAIN`; `custom_domains` are
    hosts with the account each stands for (`ACCOUNT` or `ACCOUNT-secondary`). `warnings` are for the person who starts
    the server: what of their configuration was not used, a sentence each. For `table_deletion_seconds` the name of a
    deleted table cannot be used again.
    """

    host: str
    port: int
    data_directory: Path | None
    engine: str
    accounts: tuple[AccountKeys, ...]
    log_level: str
    tls: CertificateFiles | SelfSigned | None = None
    https_only: bool = False
    trusted_proxies: tuple[str, ...] = ()
    workers: int = 1
    tokens: TokenRules = TokenRules()
    has_development_account: bool = False
    domains: tuple[str, ...] = ()
    custom_domains: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    table_deletion_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Which of the server's processes this is: `worker` counts from 0 to `workers` - 1.

    Where there are several, `storage` is what they all are to serve, also one that comes later.
    """

    worker: int = 0
    workers: int = 1
    storage: StorageId | None = None
