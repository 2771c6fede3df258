"""A TLS certificate for development, made by the server itself and kept for its next start.

It is a server's certificate and not an authority's: a client that trusts it trusts its names, and nothing that could be
signed with its key. A new certificate has the key of the old one, so the two files match whichever is read first.
"""

import fcntl
import logging
import os
import socket
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from tablestone.clock import Clock
from tablestone.configuration import CertificateFiles, SelfSigned
from tablestone.fsync import flush
from tablestone.server.tls_certificate import CertificateRefused, as_address, is_certifiable

log = logging.getLogger(__name__)

VALID: Final = timedelta(days=825)
"""The longest validity that macOS accepts if the user trusts the certificate."""
RENEWED_BEFORE: Final = timedelta(days=30)
CLOCKS_DIFFER: Final = timedelta(hours=1)
"""Time by which a client's clock may be behind the server's."""
LOCAL_NAMES: Final = ("localhost", "*.localhost", "*.table.localhost", "127.0.0.1", "::1")
"""Names in every certificate. `*.table.localhost` is for TLS libraries that accept `*` only above two labels."""


def keep_self_signed(self_signed: SelfSigned, now: datetime) -> datetime:
    """Make the certificate if none has every name and is valid for long enough; returns the time of the next renewal.

    `CertificateRefused` if it can be neither read nor written. Several processes may call this at once.
    """
    directory, files = self_signed.directory, self_signed.files
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (directory / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other processes then find what the first has made
            key = _read_key(files.key) or _make_key(files.key)
            names = _names(self_signed.names)
            found = _read_certificate(files.certificate, key)
            if found is not None and names <= _certified(found) and now < _renewal(found):
                return _renewal(found)
            _warn_of_new(files, found, names)
            if found is not None:
                # The old names stay. Otherwise two servers with one directory would remove each other's names.
                names |= _certified(found)
            certificate = _sign(key, names, now)
            _write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
            return _renewal(certificate)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CertificateRefused(
            f"The certificate for --tls self-signed cannot be kept in {directory}: {reason}."
        ) from None


def _warn_of_new(files: CertificateFiles, found: x509.Certificate | None, names: set[str]) -> None:
    """Warn that clients do not trust the new certificate yet, unless it is the first one, which replaces none."""
    if found is not None:
        more = sorted(names - _certified(found))
        why = f"to add {', '.join(more)}" if more else "because it is about to expire"
        what = f"{files.certificate} is replaced {why}"
    elif files.certificate.exists():
        what = (
            f"{files.certificate} and {files.key.name} could not be used together and are replaced"
        )
    else:
        return
    log.warning("%s: clients that trusted the old certificate have to be given the new one.", what)


def _names(given: Iterable[str]) -> set[str]:
    """The names to certify, as a certificate spells them; "every address" becomes the machine's own name."""
    names = set(LOCAL_NAMES)
    for name in given:
        address = as_address(name)
        if address is None:
            names.add(name.lower())
        else:
            names.add(socket.gethostname().lower() if address.is_unspecified else str(address))
    return {name for name in names if is_certifiable(name)}


def _certified(certificate: x509.Certificate) -> set[str]:
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return {str(name.value) for name in extension.value}


def _renewal(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_after_utc - RENEWED_BEFORE


def _sign(key: ec.EllipticCurvePrivateKey, names: set[str], now: datetime) -> x509.Certificate:
    subject = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, "Tablestone, self-signed for development")]
    )
    addresses = {name: address for name in names if (address := as_address(name)) is not None}
    alternatives = [
        x509.IPAddress(addresses[name]) if name in addresses else x509.DNSName(name)
        for name in sorted(names)
    ]
    public_key = key.public_key()
    key_identifier = x509.SubjectKeyIdentifier.from_public_key(public_key)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(key_identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_identifier),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    """The key of the last start; None if there is none of the kind that this module makes."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _make_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(path, pem, 0o600)
    return key


def _read_certificate(path: Path, key: ec.EllipticCurvePrivateKey) -> x509.Certificate | None:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        _certified(certificate)
    except (FileNotFoundError, ValueError, x509.ExtensionNotFound):
        return None
    return certificate if certificate.public_key() == key.public_key() else None


def _write(path: Path, text: bytes, mode: int) -> None:
    """Write the file whole or not at all; at no moment do more users have access than `mode` allows."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(text)
        flush(file)
    new.replace(path)


def keeper(self_signed: SelfSigned, clock: Clock) -> Callable[[], None]:
    """Make the certificate; returns a function that replaces it when it is about to expire."""
    renewal = keep_self_signed(self_signed, moment(clock()))

    def keep() -> None:
        nonlocal renewal
        now = moment(clock())
        if now >= renewal:
            renewal = keep_self_signed(self_signed, now)

    return keep


def moment(ticks: int) -> datetime:
    """The clock's ticks as a `datetime`, the form that certificates need."""
    return datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=ticks // 10)
