"""Certificates for the tests, made with the library and not with the server's code."""

import ipaddress
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def make_key(kind: str = "ec") -> PrivateKey:
    """A new private key, `ec` or `rsa`."""
    if kind == "rsa":
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey, password: bytes | None = None) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption(),
    )


def certificate_pem(key: PrivateKey, subject: str) -> bytes:
    """A self-signed certificate for 127.0.0.1; the subject tells a test which one it is."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_pair(directory: Path, subject: str, kind: str = "ec") -> tuple[Path, Path]:
    """Write a new pair to `certificate.pem` and `key.pem`, replacing each file atomically."""
    key = make_key(kind)
    texts = {"certificate.pem": certificate_pem(key, subject), "key.pem": key_pem(key)}
    for name, text in texts.items():
        (directory / f".{name}").write_bytes(text)
    for name in texts:
        (directory / f".{name}").replace(directory / name)
    return directory / "certificate.pem", directory / "key.pem"


def trusting(certificate: Path | None) -> ssl.SSLContext:
    """A client context that trusts this certificate, or any certificate."""
    if certificate is not None:
        return ssl.create_default_context(cafile=certificate)
    # Not the default context: it reads all of the system's authorities, and clients under load make a new one each
    # time.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def served_certificate(
    address: tuple[str, int], *, name: str | None = None, trusted: Path | None = None
) -> x509.Certificate:
    """The certificate that a server shows on a new connection; `ssl.SSLError` if it is not trusted."""
    context = trusting(trusted)
    with (
        socket.create_connection(address, timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=name or address[0]) as connection,
    ):
        shown = connection.getpeercert(binary_form=True)
    assert shown
    return x509.load_der_x509_certificate(shown)


def subject_of(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)
