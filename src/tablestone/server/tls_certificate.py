"""The TLS certificate of new connections: loaded, and read again when its files change.

Each handshake asks for the current context, and a change replaces it as a whole. Loading files into the listening
context could leave half of a broken pair in it, or an old RSA certificate beside a new one of another kind.
"""

import asyncio
import ipaddress
import logging
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final, NoReturn

from tablestone.configuration import CertificateFiles
from tablestone.telemetry.logs import OnceAMinute

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the files; a look is two system calls."""
Seen = tuple[tuple[int, int, int], ...]
"""One state of the files: modification time, size and inode of each; empty if one of them is missing."""

_DNS_NAME = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*")
_DNS_NAME_LENGTH_MAX: Final = 253


def is_certifiable(name: str) -> bool:
    """Whether a certificate can contain the name: an IP address, or a host name whose first label may be `*`."""
    return as_address(name) is not None or (
        len(name) <= _DNS_NAME_LENGTH_MAX and _DNS_NAME.fullmatch(name) is not None
    )


def as_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The name as an IP address; None if it is a host name."""
    with suppress(ValueError):
        return ipaddress.ip_address(name)
    return None


class CertificateRefused(Exception):
    """A certificate or key that cannot be used; the text is one sentence."""


class ServedCertificate:
    """Serves a certificate, or raises `CertificateRefused`. Each look first calls `renew`, which may replace files."""

    def __init__(self, files: CertificateFiles, renew: Callable[[], None] | None = None) -> None:
        self._files = files
        self._renew = renew
        self._loaded = _look(files)
        self._refused: Seen | None = None
        self._logged: Seen | None = None
        self.context = self._current = _context(files)
        self.context.sni_callback = self._choose

    async def watch(self, *, leads: bool) -> None:
        """Look at the files while the server runs. The process that `leads` renews them and logs errors."""
        while True:
            try:
                # Before the first sleep: a process may start long after the certificate was loaded.
                self.look(leads=leads)
            except Exception:
                log.exception("looking at the certificate failed")
            await asyncio.sleep(LOOK_SECONDS)

    def look(self, *, leads: bool = True) -> None:
        """Load the files if they changed. If they cannot be used, the old certificate stays and one error is logged."""
        try:
            if self._renew is not None and leads:
                self._renew()
            seen = _look(self._files)
            if seen == self._loaded:
                return
            self._current = _context(self._files)
        except CertificateRefused as refused:
            # Once for each state of the files, and at the second look: the two files are replaced one by one.
            seen = _look(self._files)
            if seen == self._refused and seen != self._logged and leads:
                log.error("The previous certificate stays in use: %s", refused)  # noqa: TRY400 - an operator's mistake
                self._logged = seen
            self._refused = seen
        else:
            self._loaded, self._refused, self._logged = seen, None, None
            log.info("New connections get the new certificate of %s.", self._files.certificate)

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: ssl.SSLContext
    ) -> None:
        """Called in every handshake, even if the client does not name a server."""
        connection.context = self._current


def _look(files: CertificateFiles) -> Seen:
    try:
        found = [path.stat() for path in (files.certificate, files.key)]
    except OSError:
        return ()
    return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)


class _Handshake(ssl.SSLObject):
    """One TLS connection: the log tells, once a minute, that a client speaks plain HTTP to this port."""

    warnings: ClassVar = OnceAMinute(is_shared=True)

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST" and self.warnings.is_due():
                log.warning(
                    "A client speaks plain HTTP to the port that serves TLS: its address must begin with https."
                )
            raise


def _context(files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _Handshake
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for path in (files.certificate, files.key):
        _require_readable(path)

    def refuse_password() -> NoReturn:  # without this, OpenSSL asks for a password at the terminal
        raise CertificateRefused(f"The key {files.key} is encrypted: give one without a password.")

    try:
        context.load_cert_chain(files.certificate, files.key, refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            sentence = f"The key {files.key} is not that of the certificate {files.certificate}."
        else:
            both = (
                f"The certificate {files.certificate} and the key {files.key}"
                if files.certificate != files.key
                else f"The file {files.certificate}, with certificate and key,"
            )
            sentence = f"{both} cannot be used: {_reason(error)}."
        raise CertificateRefused(sentence) from None
    return context


def _require_readable(path: Path) -> None:
    """Raise an error that names the file: those of `ssl` do not."""
    try:
        with path.open("rb"):
            return
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CertificateRefused(f"{path} cannot be read: {reason}.") from None


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's words, except for "PEM lib": a PEM block is missing then."""
    reason = error.reason or "PEM lib"
    return (
        "a PEM block is missing or broken" if "PEM" in reason else reason.replace("_", " ").lower()
    )
