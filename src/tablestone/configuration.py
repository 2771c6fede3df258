"""The configuration of a server: one frozen value, complete before the server starts.

`cli/option_sources.py` builds it from the command line, the environment, the file and the defaults. It is not in `cli`
because `server` and `accounts` read it and may not import `cli`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tablestone.engines.change_record import Retention
from tablestone.engines.kind import EncryptionKey
from tablestone.limits import OF_SERVICE, EntityLimits
from tablestone.telemetry.access_log import AccessLogTarget
from tablestone.telemetry.logs import TEXT
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
    """An account's name and its one or two keys, in base64; and its rules, as in `auth.account.Account`."""

    name: str
    keys: tuple[str, ...] = field(repr=False)
    shared_key: bool = True
    allow: tuple[str, ...] = ()


DEVELOPMENT_ACCOUNT = AccountKeys(DEVELOPMENT_ACCOUNT_NAME, (DEVELOPMENT_ACCOUNT_KEY,))


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate chain and its private key as PEM files; both may be in one file."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A certificate that the server makes itself and keeps in `directory`."""

    directory: Path
    names: tuple[str, ...]
    """Hosts and addresses besides those of this machine. A wildcard address (0.0.0.0) is left out."""

    @property
    def files(self) -> CertificateFiles:
        return CertificateFiles(self.directory / "certificate.pem", self.directory / "key.pem")


INSIGHT_KEYS, INSIGHT_HASHED, INSIGHT_OFF = INSIGHT_FORMS = ("keys", "hashed", "off")
"""How the insight report of the admin address names partitions: by key, by a hash of the key, or `off`: no report."""

EXPLORER_ON, EXPLORER_READ_ONLY = EXPLORER_FORMS = ("true", "read-only")
"""Whether the explorer beside a server may change data."""

READY_TEXT, READY_JSON = READY_FORMS = ("text", "json")
"""The forms of the lines that announce a ready server."""

DEVELOPMENT_TENANT = "7ab1e570-0000-4000-8000-000000000000"
"""The tenant in the challenge if none is configured. A GUID, because some SDKs accept nothing else (auth 4.2)."""
ENTRA_ID = "https://login.microsoftonline.com"


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """An issuer of bearer tokens."""

    name: str
    keys: str | None
    """The URL of its keys, or the path of a file with them. None: its OpenID configuration names the URL."""
    tenant: str | None
    """The tenant that its tokens must have; None: any."""

    @property
    def keys_file(self) -> Path | None:
        return Path(self.keys) if self.keys is not None and "://" not in self.keys else None


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Which bearer tokens are accepted, and what the challenge tells a client without one."""

    issuers: tuple[TrustedIssuer, ...] = ()
    """Trusted besides the server itself."""
    audiences: tuple[str, ...] = ()
    """Accepted besides those of Azure Storage and the account's own names."""
    tenant: str = DEVELOPMENT_TENANT
    authority: str = ENTRA_ID
    domains: tuple[str, ...] = ()
    """An account's names: below these domains, and the hosts in `custom_domains` (host, account)."""
    custom_domains: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AdminAddress:
    """The operator's address. It never serves accounts."""

    host: str
    port: int


CONNECTIONS_MIN: Final = 4
"""The fewest connections of a worker: one client keeps several open."""
BUFFERED_MEBIBYTES_MIN: Final = 10
"""The fewest MiB of a worker: an entity group transaction has up to 4, and so has an answer."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How much all processes of a server together take on at a time."""

    connections_max: int = 8192
    requests_max: int = 4096
    buffered_mebibytes_max: int = 512


@dataclass(frozen=True, slots=True)
class ThroughputTargets:
    """Entities a second; 0 is no target."""

    account: int
    partition: int


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """What the options say about the archive of a data directory."""

    url: str
    """Of a bucket or a container, or the path of a directory."""
    interval: int = 1
    """Seconds between two objects of changes."""
    retention_seconds: int | None = 30 * 86_400
    """How far one can go back; None: for ever."""
    keys: tuple[EncryptionKey, ...] = field(default=(), repr=False)
    """The first one encrypts, all of them decrypt."""
    check_seconds: int | None = None
    """Seconds between two checks of the archive; None: the server makes none."""
    directory_key: EncryptionKey | None = field(default=None, repr=False)
    """The key of the data directory, and so of a copy of it."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The whole configuration of a server. An option that is None is off, unless its line says otherwise."""

    host: str
    port: int
    data_directory: Path | None
    """None: the engine stores nothing in a directory."""
    engine: str
    accounts: tuple[AccountKeys, ...]
    """Exist besides the stored accounts, and win over a stored one of the same name."""
    log_level: str
    tls: CertificateFiles | SelfSigned | None = None
    """None: plain HTTP."""
    https_only: bool = False
    """Refuse requests that came over plain HTTP."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose headers about the original connection are trusted (auth 6)."""
    workers: int = 1
    tokens: TokenRules = TokenRules()
    has_development_account: bool = False
    """Add the development account, unless an account of its name is configured or stored."""
    domains: tuple[str, ...] = ()
    """Serve accounts at `ACCOUNT.table.DOMAIN`."""
    custom_domains: tuple[tuple[str, str], ...] = ()
    """Pairs of a host and its account: `ACCOUNT`, or `ACCOUNT-secondary`."""
    warnings: tuple[str, ...] = ()
    """Sentences for the operator about ignored parts of the configuration."""
    table_deletion_seconds: int = 0
    """How long the name of a deleted table stays reserved."""
    log_format: str = TEXT
    """One of `LOG_FORMATS`."""
    access_log: AccessLogTarget | None = None
    admin: AdminAddress | None = None
    explorer: str | None = None
    """One of `EXPLORER_FORMS`: serve the explorer on the admin address."""
    explorer_token_file: Path | None = None
    """The file with the explorer's token; None: make a new token."""
    metrics_tables: bool = False
    """Name accounts and tables in metrics."""
    create_tables: tuple[str, ...] = ()
    """Create these at the start in each configured account; without one, in the development account."""
    insight: str = INSIGHT_KEYS
    """One of `INSIGHT_FORMS`."""
    any_version: UnknownVersions = UnknownVersions.LATER
    """Which unknown versions of the service are served."""
    control_port: int | None = None
    """Serve the control API of the test kit on this port of the loopback address."""
    ready_form: str = READY_TEXT
    """One of `READY_FORMS`."""
    realism: bool = False
    """For tests: act as Azure does where one machine differs, such as with a secondary that lags behind."""
    encryption_key: EncryptionKey | None = field(default=None, repr=False)
    """Encrypts the data directory."""
    encryption_key_file: Path | None = None
    """The file that gave the key; None if a variable did."""
    admission: AdmissionLimits = AdmissionLimits()
    targets: ThroughputTargets | None = None
    """Answer requests beyond these with `ServerBusy`."""
    keep_changes: Retention | None = None
    """None: the stored setting stays, unless `ends_changes`."""
    ends_changes: bool = False
    archive: ArchiveSettings | None = None
    """None: it rests, and health says so, unless `ends_archive`."""
    ends_archive: bool = False
    from_archive: bool = False
    """Restore an empty data directory from the archive first."""
    remote_indexes: bool = False
    """The first index may come over the wire, and so may requests for indexes over plain HTTP."""
    query_extensions: bool = False
    """Answer queries that the service refuses as not implemented."""
    entity_limits: EntityLimits = OF_SERVICE
    """How large an entity may be."""
    auto_index: bool = False
    """Make indexes by itself for filters that keep scanning."""
    acl_by_roles: bool = False
    """While an account's key is off, tokens with the role for its settings may read and set its policies."""
    explorer_key: str | None = field(default=None, repr=False)
    """Signs the requests of the explorer beside the server. Drawn at each start, and never outside its processes."""
    yes_trim: Retention | None = None
    """A `keep_changes` that trims changes at once is accepted only if this is the same."""


LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
"""Names of this machine. Keys may be fetched from it over plain HTTP."""


def is_safe_address(address: str) -> bool:
    """Whether nobody on the way can replace keys that are fetched from this URL."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
