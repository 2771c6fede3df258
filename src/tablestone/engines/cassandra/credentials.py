"""The password and the certificates with which a cluster is spoken to, from the files that its URL names.

Each file that cannot be used is a sentence with its name. Opens no connection. The driver is imported here.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

from cassandra.auth import PlainTextAuthProvider

from tablestone.engines.cassandra.cluster_url import ClusterAddress
from tablestone.engines.contract import EngineRefused

PASSWORD_VARIABLE: Final = "CASSANDRA_PASSWORD"  # noqa: S105 - the name of a variable


def credentials(address: ClusterAddress) -> PlainTextAuthProvider | None:
    """The user and the password; None if the URL names no user. `EngineRefused` if there is no password."""
    if address.user is None:
        return None
    password = os.environ.get(PASSWORD_VARIABLE)
    if address.password_file is not None:
        try:
            password = Path(address.password_file).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise EngineRefused(
                f"The password file {address.password_file} cannot be read: {error.strerror}."
            ) from error
        except UnicodeDecodeError:
            raise EngineRefused(
                f"The password file {address.password_file} cannot be read: it is no UTF-8 text."
            ) from None
    if password is None:
        raise EngineRefused(
            f"There is no password for {address.user!r} of the cluster: say password-file=FILE in the engine's URL, or "
            f"set {PASSWORD_VARIABLE}."
        )
    return PlainTextAuthProvider(address.user, password)


def tls_context(address: ClusterAddress) -> ssl.SSLContext | None:
    """How TLS is spoken; None if it is not. `EngineRefused` if a file cannot be used."""
    if not address.tls:
        return None
    for option, file in (
        ("ca-file", address.ca_file),
        ("certificate-file", address.certificate_file),
        ("key-file", address.key_file),
    ):
        if file is not None:
            _require_readable(option, file)
    try:
        context = ssl.create_default_context(cafile=address.ca_file)
    except (OSError, ValueError) as error:
        raise EngineRefused(
            f"The ca-file {address.ca_file} holds no certificate in PEM form."
        ) from error
    # Nodes name each other by address, and certificates of clusters seldom have addresses: the signer counts.
    context.check_hostname = address.ca_file is None
    if address.certificate_file is not None:
        try:
            # A key that has a password would be asked for it on the terminal.
            context.load_cert_chain(address.certificate_file, address.key_file, password="")
        except (OSError, ValueError) as error:
            raise EngineRefused(
                f"The certificate-file {address.certificate_file} and the key-file {address.key_file} hold no "
                "certificate in PEM form with its key, which has no password."
            ) from error
    return context


def _require_readable(option: str, file: str) -> None:
    try:
        Path(file).read_bytes()
    except OSError as error:
        raise EngineRefused(f"The {option} {file} cannot be read: {error.strerror}.") from error
