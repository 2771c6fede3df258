"""The configuration of a server, as one frozen value that exists before the server starts.

`cli/option_sources.py` makes it of the command line, the environment, the file and the defaults. It is defined here and
not in `cli`, because `server` and `accounts` need it and may not import `cli`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tablestone.clock import Moment
from tablestone.engines.change_record import Retention
from tablestone.engines.contract import StorageId
from tablestone.engines.kind import EncryptionKey
from tablestone.tables.throughput_targets import SharedSlots
from tablestone.telemetry.access_log import AccessLogTarget
from tablestone.telemetry.logs import TEXT
from tablestone.telemetry.refused_callers import QuietAddresses
from tablestone.telemetry.worker_reports import WorkerReports
from tablestone.wire.versions import UnknownVersions

DEVELOPMENT_ACCOUNT_NAME = "devstoreaccount1"
DEVELOPMENT_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The well-known key that every SDK uses for `UseDevelopmentStorage=true` (wire 1.1); it is not secret."""

LOCAL_DOMAIN = "localhost"
"""`ACCOUNT.table.localhost` is always a host of an account."""


@dataclass(frozen=True, slots=True)
class AccountKeys:
    """An account's name and its one or two keys, in base64."""

    name: str
    keys: tuple[str, ...] = field(repr=False)


DEVELOPMENT_ACCOUNT = AccountKeys(DEVELOPMENT_ACCOUNT_NAME, (DEVELOPMENT_ACCOUNT_KEY,))


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate chain and its private key as PEM files; both may be in one file."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A certificate that the server makes itself and keeps in `directory`.

    `names` are hosts and addresses in addition to those of this machine; a wildcard address (0.0.0.0) is left out.
    """

    directory: Path
    names: tuple[str, ...]

    @property
    def files(self) -> CertificateFiles:
        return CertificateFiles(self.directory / "certificate.pem", self.directory / "key.pem")


INSIGHT_KEYS, INSIGHT_HASHED, INSIGHT_OFF = INSIGHT_FORMS = ("keys", "hashed", "off")
"""How the admin address names partitions in its report: by their keys, by hashes of them, or not at all."""

EXPLORER_ON, EXPLORER_READ_ONLY = EXPLORER_FORMS = ("true", "read-only")
"""The explorer beside a server: with changes, or read-only."""

READY_TEXT, READY_JSON = READY_FORMS = ("text", "json")
"""The forms of the lines that say that the server is ready."""

DEVELOPMENT_TENANT = "7ab1e570-0000-4000-8000-000000000000"
"""The tenant that the challenge names if none is configured; some SDKs accept only a GUID (auth 4.2)."""
ENTRA_ID = "https://login.microsoftonline.com"


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """An issuer of bearer tokens. `keys` is the URL of its keys, or the path of a file with them.

    Without `keys`, its OpenID configuration names the URL. If `tenant` is given, its tokens must have that tenant.
    """

    name: str
    keys: str | None
    tenant: str | None

    @property
    def keys_file(self) -> Path | None:
        return Path(self.keys) if self.keys is not None and "://" not in self.keys else None


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The trusted issuers besides the server itself, further audiences, and the authority that the challenge names.

    An account's own names are audiences too: those below `domains`, and those of `custom_domains` (host, account).
    """

    issuers: tuple[TrustedIssuer, ...] = ()
    audiences: tuple[str, ...] = ()
    tenant: str = DEVELOPMENT_TENANT
    authority: str = ENTRA_ID
    domains: tuple[str, ...] = ()
    custom_domains: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AdminAddress:
    """The second address, for the operator: never the one at which accounts are served."""

    host: str
    port: int


CONNECTIONS_MIN: Final = 4
"""Connections that a worker needs at least: clients keep several."""
BUFFERED_MEBIBYTES_MIN: Final = 10
"""MiB that a worker needs at least: an entity group transaction has up to 4, and so has an answer."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Limits of what all processes of a server take on at a time."""

    connections_max: int = 8192
    requests_max: int = 4096
    buffered_mebibytes_max: int = 512


@dataclass(frozen=True, slots=True)
class ThroughputTargets:
    """Entities a second of one account and of one partition; 0 is no target."""

    account: int
    partition: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """The whole configuration of a server. `data_directory` is None if the engine stores nothing in a directory.
    `encryption_key` encrypts the data there; without one it is not encrypted.

    Without `tls` the server speaks plain HTTP. `https_only` refuses requests that came over plain HTTP.
    `trusted_proxies` are the addresses and networks whose headers about the original connection are trusted (auth 6).

    `accounts` exist besides the stored accounts and take precedence over them. `has_development_account` adds the
    development account, unless an account of its name is configured or stored. `domains` have accounts at
    `ACCOUNT.table.DOMAIN`; `custom_domains` are pairs of a host and its account (`ACCOUNT` or `ACCOUNT-secondary`).
    `warnings` are sentences for the operator about parts of the configuration that are ignored. The name of a deleted
    table stays reserved for `table_deletion_seconds`. `log_format` is one of `LOG_FORMATS`. With `explorer`, one of
    `EXPLORER_FORMS`, the explorer is served on the admin address, with a new token or that of `explorer_token_file`.
    With `metrics_tables`, metrics name accounts and tables. `create_tables` are created at the start in each configured
    account, or else in the development account. `insight` is one of `INSIGHT_FORMS`. `any_version` says which versions
    of the service that are not known are served. With `control_port`, the control API of the test kit is served on this
    port of the loopback address. Beyond `targets`, requests are answered `ServerBusy`. With `realism`, a server for
    tests differs from a service on one machine where Azure does. `ready_form` is one of `READY_FORMS`.
    Without `keep_changes` the stored setting stays in force, unless `ends_changes`; one that trims changes at once is
    taken only if it is `yes_trim` too.
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
    log_format: str = TEXT
    access_log: AccessLogTarget | None = None
    admin: AdminAddress | None = None
    explorer: str | None = None
    explorer_token_file: Path | None = None
    metrics_tables: bool = False
    create_tables: tuple[str, ...] = ()
    insight: str = INSIGHT_KEYS
    any_version: UnknownVersions = UnknownVersions.LATER
    control_port: int | None = None
    ready_form: str = READY_TEXT
    realism: bool = False
    encryption_key: EncryptionKey | None = field(default=None, repr=False)
    admission: AdmissionLimits = AdmissionLimits()
    targets: ThroughputTargets | None = None
    keep_changes: Retention | None = None
    ends_changes: bool = False
    yes_trim: Retention | None = None


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """The number of this worker process, from 0 to `workers` - 1.

    If several processes use one storage, `storage` names it. A worker that replaces another gets the same value.
    `shares` keeps what is left of the throughput targets.
    `reports` takes the reports of the worker, if there is an admin address, and `insight` the counts of its partitions
    and queries, if the address shows them. Several workers share `quiet`. The server `began` at this moment; None: now.
    """

    worker: int = 0
    workers: int = 1
    storage: StorageId | None = None
    reports: WorkerReports | None = None
    quiet: QuietAddresses | None = None
    shares: SharedSlots | None = None
    insight: WorkerReports | None = None
    began: Moment | None = None


LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
"""The hosts of this machine, from which keys may be fetched over plain HTTP."""


def is_safe_address(address: str) -> bool:
    """Whether keys from this address cannot be replaced on their way."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
