"""A certificate for development, made by the server itself and kept for its next start.

Knows X.509 (by `cryptography`, which only this mode imports) and the two files of `SelfSigned`; not who uses them.
The certificate is one of a server and of no authority: who trusts it trusts these names and nothing that could be
signed with its key. A new one has the old one's key, so that whichever of the two files is read first, they match.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from tablestone.clock import Clock
from tablestone.server.configuration import CertificateFiles, SelfSigned
from tablestone.server.tls import CertificateRefused, as_address, is_certifiable

log = logging.getLogger(__name__)

VALID: Final = timedelta(days=825)
"""As long as macOS takes a certificate that a person has trusted."""
RENEWED_BEFORE: Final = timedelta(days=30)
CLOCKS_DIFFER: Final = timedelta(hours=1)
"""How far a client's clock may be behind ours."""
LOCAL_NAMES: Final = ("localhost", "*.localhost", "*.table.localhost", "127.0.0.1", "::1")
"""Always certified. Some TLS libraries take `*` only above two labels: the second is for `ACCOUNT.table.localhost`."""


def keep_self_signed(self_signed: SelfSigned, now: datetime) -> datetime:
    """Make the certificate unless it is there, good for every name and for a while; answers when to ask again.

    `CertificateRefused` if it can be neither read nor written. Several processes may call this at once.
    """
    directory, files = self_signed.directory, self_signed.files
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(directory):
            key = _read_key(files.key) or _make_key(files.key)
            names = _names(self_signed.names)
            found = _read_certificate(files.certificate, key)
            if found is not None and names <= _certified(found) and now < _renewal(found):
                return _renewal(found)
            _tell_of_new(files, found, names)
            if found is not None:
                # Names that it had stay: two servers with one directory would else undo each other's.
                names |= _certified(found)
            certificate = _sign(key, names, now)
            _write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
            return _renewal(certificate)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CertificateRefused(
            f"The certificate for --tls self-signed cannot be kept in {directory}: {reason}."
        ) from None


def _tell_of_new(files: CertificateFiles, found: x509.Certificate | None, names: set[str]) -> None:
    """Whoever trusted the old certificate trusts nothing of the new one. The first one is no news."""
    if found is not None:
        more = sorted(names - _certified(found))
        why = f"is made anew for {', '.join(more)}" if more else "is about to expire and made anew"
        what = f"{files.certificate} {why}"
    elif files.certificate.exists():
        what = (
            f"{files.certificate} and {files.key.name} could not be used together and are made anew"
        )
    else:
        return
    log.warning("%s: clients that trusted the old certificate have to be given the new one.", what)


def _names(given: Iterable[str]) -> set[str]:
    """The names to certify, as a certificate spells them; for "every address" it is the machine's own name."""
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
    """The key of the last start; None if there is none, or what is there is none that we made."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _make_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
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
    """Whole or not at all, and never readable by more than it should be, not even for a moment."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One process at a time; the others find what the first has made."""
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def keeper(self_signed: SelfSigned, clock: Clock) -> Callable[[], None]:
    """Make the certificate now; what is returned makes it anew once it is about to expire."""
    renewal = keep_self_signed(self_signed, moment(clock()))

    def keep() -> None:
        nonlocal renewal
        now = moment(clock())
        if now >= renewal:
            renewal = keep_self_signed(self_signed, now)

    return keep


def moment(ticks: int) -> datetime:
    """The clock's ticks as a time that certificates know."""
    return datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=ticks // 10)
