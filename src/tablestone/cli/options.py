"""The options of `tablestone`: one table, read by the command line, the environment, the file and the documentation.

Knows each option's name, help and default, and which function of `option_values` makes a value of its text. Does not
know where a text came from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tablestone.cli.option_values import (
    ACCOUNT_FORM,
    LOG_LEVELS,
    SELF_SIGNED,
    parse_account,
    parse_admin,
    parse_any_version,
    parse_authority,
    parse_certified_name,
    parse_control_port,
    parse_custom_domain,
    parse_deletion_seconds,
    parse_domain,
    parse_engine,
    parse_explorer,
    parse_insight,
    parse_issuer,
    parse_limit,
    parse_log_format,
    parse_log_level,
    parse_network,
    parse_port,
    parse_ready_form,
    parse_targets,
    parse_tenant,
    parse_text,
    parse_tls,
    parse_truth,
    parse_workers,
)
from tablestone.configuration import (
    DEVELOPMENT_TENANT,
    ENTRA_ID,
    INSIGHT_FORMS,
    READY_FORMS,
    READY_TEXT,
    AdmissionLimits,
)
from tablestone.telemetry.logs import LOG_FORMATS, TEXT
from tablestone.wire.versions import UnknownVersions

VARIABLE_PREFIX = "TABLESTONE_"


@dataclass(frozen=True, slots=True)
class Option:
    """One option; `name` is also its key in the file."""

    name: str
    metavar: str
    help: str
    default: str
    parse: Callable[[str], Any]
    repeatable: bool = False
    bare: str | None = None
    """The value of the option if it stands on the command line without one; None if it must have one."""
    once: tuple[str, Callable[[Any], str]] | None = None
    """For a repeatable option: the part that no two values may share, as its name in messages and a function for it."""

    @property
    def shown_metavar(self) -> str:
        """The name of the value; in brackets if the option may stand without one."""
        return self.metavar if self.bare is None else f"[{self.metavar}]"

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return f"{VARIABLE_PREFIX}{self.name.replace('-', '_').upper()}"


HOST = Option("host", "ADDRESS", "Address to listen on.", "127.0.0.1", parse_text)
PORT = Option("port", "PORT", "Port to listen on; 0 takes a free port.", "10002", parse_port)
DATA = Option(
    "data",
    "DIR",
    "Directory that holds the data; created if it does not exist.",
    "the user's data directory",
    parse_text,
)
ENGINE = Option(
    "engine",
    "URL",
    "Storage engine: sqlite (in the data directory), sqlite:DIR (in DIR), memory (lost at the end) or cassandra://… "
    "(in a cluster).",
    "sqlite",
    parse_engine,
)
ENCRYPTION_KEY_FILE = Option(
    "encryption-key-file",
    "FILE",
    "File with the key that encrypts the data directory: 32 bytes in base64 or in hexadecimal digits.",
    "the data is not encrypted",
    parse_text,
)
ACCOUNT = Option(
    "account",
    ACCOUNT_FORM,
    "Account and its keys, in place of the development account; none: serve only stored accounts.",
    "devstoreaccount1 with its well-known key",
    parse_account,
    repeatable=True,
    once=("account", lambda account: account.name),
)
DOMAIN = Option(
    "domain",
    "DOMAIN",
    "Domain below which accounts have host names: ACCOUNT.table.DOMAIN.",
    "localhost, which is always included",
    parse_domain,
    repeatable=True,
)
CUSTOM_DOMAIN = Option(
    "custom-domain",
    "HOST=ACCOUNT",
    "Host name of an account; with ACCOUNT-secondary, of its secondary.",
    "none",
    parse_custom_domain,
    repeatable=True,
    once=("host", lambda custom_domain: custom_domain[0]),
)
TLS = Option(
    "tls",
    SELF_SIGNED,
    "Serve TLS with a development certificate, created at the first start and then kept.",
    "plain HTTP",
    parse_tls,
)
TLS_NAME = Option(
    "tls-name",
    "NAME",
    "Additional host name or address for the self-signed certificate.",
    "localhost, its addresses, the host and the domains",
    parse_certified_name,
    repeatable=True,
)
TLS_CERTIFICATE = Option(
    "tls-certificate",
    "FILE",
    "Serve TLS with this certificate chain (PEM); read again when it changes.",
    "none",
    parse_text,
)
TLS_KEY = Option(
    "tls-key",
    "FILE",
    "Private key of the certificate (PEM), if it is not in the same file.",
    "the certificate's file",
    parse_text,
)
HTTPS_ONLY = Option(
    "https-only",
    "true|false",
    "Refuse requests over plain HTTP, as supportsHttpsTrafficOnly does.",
    "false",
    parse_truth,
    bare="true",
)
TRUSTED_PROXY = Option(
    "trusted-proxy",
    "ADDRESS",
    "Address or network of a proxy whose X-Forwarded-Proto and X-Forwarded-For headers are trusted.",
    "none",
    parse_network,
    repeatable=True,
)
ANY_VERSION = Option(
    "any-version",
    "later|true|false",
    "Versions of the service (x-ms-version, sv) that are not known and are served all the same, as the last known one "
    "before them: those later than all known ones (later), any (true), or none (false).",
    UnknownVersions.LATER.value,
    parse_any_version,
    bare=UnknownVersions.ALL.value,
)
WORKERS = Option(
    "workers",
    "N",
    "Number of worker processes.",
    "one for each processor, at most 4; one with the memory engine",
    parse_workers,
)
TOKEN_ISSUER = Option(
    "token-issuer",
    "ISSUER[,KEYS]",
    "Issuer whose bearer tokens are accepted; KEYS is the URL or file of its keys (JWKS), by default as its OpenID "
    "configuration says.",
    "only the server itself",
    parse_issuer,
    repeatable=True,
    once=("issuer", lambda issuer: issuer.name),
)
TOKEN_AUDIENCE = Option(
    "token-audience",
    "AUDIENCE",
    "Additional audience that bearer tokens may name.",
    "the audiences of Azure Storage",
    parse_text,
    repeatable=True,
)
TOKEN_TENANT = Option(
    "token-tenant",
    "GUID",
    "Tenant that the challenge for clients without a token names.",
    DEVELOPMENT_TENANT,
    parse_tenant,
)
TOKEN_AUTHORITY = Option(
    "token-authority",
    "URL",
    "Authority that the challenge for clients without a token names.",
    ENTRA_ID,
    parse_authority,
)
TABLE_DELETION_SECONDS = Option(
    "table-deletion-seconds",
    "N",
    "Seconds for which a deleted table's name stays reserved (409 TableBeingDeleted); on Azure 40 or more.",
    "0",
    parse_deletion_seconds,
)
_LIMITS = AdmissionLimits()
MAX_CONNECTIONS = Option(
    "max-connections",
    "N",
    "Connections at a time. A new one above it closes the one that is idle for longest; if none is idle, the answer is "
    "503 ServerBusy.",
    str(_LIMITS.connections_max),
    parse_limit,
)
MAX_REQUESTS = Option(
    "max-requests",
    "N",
    "Requests under way at a time; above it, the answer is 503 ServerBusy.",
    str(_LIMITS.requests_max),
    parse_limit,
)
MAX_BUFFERS = Option(
    "max-buffers",
    "MIB",
    "MiB in memory for requests that arrive slowly and answers that are read slowly; above it, the answer is 503 "
    "ServerBusy.",
    str(_LIMITS.buffered_mebibytes_max),
    parse_limit,
)
TARGETS = Option(
    "targets",
    "azure|ACCOUNT,PARTITION",
    "Entities a second of an account and of a partition; above them, the answer is 503 ServerBusy. azure: 20000,2000.",
    "none",
    parse_targets,
)
LOG_LEVEL = Option(
    "log-level",
    "LEVEL",
    f"Least severe messages that are logged, on standard error: {', '.join(LOG_LEVELS)}.",
    "info",
    parse_log_level,
)
LOG_FORMAT = Option(
    "log-format",
    "|".join(LOG_FORMATS),
    "Form of the messages on standard error, and of an access log in a file.",
    TEXT,
    parse_log_format,
)
ACCESS_LOG = Option(
    "access-log",
    "text|json|FILE",
    "Log one line for each request: as text or as JSON to standard output, or to a file that SIGHUP reopens.",
    "none",
    parse_text,
)
ADMIN = Option(
    "admin",
    "[HOST:]PORT",
    "Second address, for the operator: health, metrics and version; on 127.0.0.1 unless HOST is given.",
    "none",
    parse_admin,
)
PRINT = Option(
    "print",
    "|".join(READY_FORMS),
    "Form of the lines that say that the server is ready; json is one line with its addresses and ports.",
    READY_TEXT,
    parse_ready_form,
)
CONTROL = Option(
    "control",
    "PORT",
    "For tests: serve an API that erases and restores the data, injects faults and steers the clock, on this port of "
    "the loopback address; 0 takes a free port. Needs --engine memory.",
    "none",
    parse_control_port,
)
REALISM = Option(
    "realism",
    "true|false",
    "For tests, with --control: be as slow and as divided as Azure. Names of deleted tables are taken for 40 s, pages "
    "end with partition ranges, the secondary is behind.",
    "false",
    parse_truth,
    bare="true",
)
EXPLORER = Option(
    "explorer",
    "true|false|read-only",
    "Serve the explorer, a page in the browser for the tables, on the admin address; without --admin on a free port of "
    "127.0.0.1. With read-only it refuses every change.",
    "false",
    parse_explorer,
    bare="true",
)
METRICS_TABLES = Option(
    "metrics-tables",
    "true|false",
    "Let metrics count by account and table too, with their names.",
    "false",
    parse_truth,
    bare="true",
)

INSIGHT = Option(
    "insight",
    "|".join(INSIGHT_FORMS),
    "How the admin address tells of partitions: by their keys, by hashes of their keys, or not at all.",
    "keys if --admin is on a loopback address, else hashed",
    parse_insight,
)

CHECK_OPTIONS = (
    replace(DATA, help="Directory that holds the data; it is only read."),
    replace(
        ENGINE,
        help="Storage engine: sqlite (in the data directory), sqlite:DIR (in DIR) or cassandra://… (in a cluster).",
    ),
    ENCRYPTION_KEY_FILE,
)
"""The options of a command that only reads the data."""
CHANGE_OPTIONS = (replace(DATA, help="Directory that holds the data."), *CHECK_OPTIONS[1:])
"""The options of a command that changes existing data."""
DATA_OPTIONS = (DATA, *CHECK_OPTIONS[1:])
"""The options of a command that stores something with the data and creates the directory if necessary."""
SERVER_OPTIONS = (
    *(HOST, PORT, DATA, ENGINE, ENCRYPTION_KEY_FILE, ACCOUNT, DOMAIN, CUSTOM_DOMAIN),
    *(TLS, TLS_NAME, TLS_CERTIFICATE, TLS_KEY, HTTPS_ONLY, TRUSTED_PROXY),
    *(TOKEN_ISSUER, TOKEN_AUDIENCE, TOKEN_TENANT, TOKEN_AUTHORITY),
    *(TABLE_DELETION_SECONDS, ANY_VERSION, WORKERS),
    *(MAX_CONNECTIONS, MAX_REQUESTS, MAX_BUFFERS, TARGETS),
    *(LOG_LEVEL, LOG_FORMAT, ACCESS_LOG),
    *(ADMIN, EXPLORER, METRICS_TABLES, INSIGHT, PRINT, CONTROL, REALISM),
)
"""The options of `tablestone serve`; their names are the keys of the file."""
