"""The certificate that new connections get: loaded, and read again when its files change.

Knows PEM files and `ssl`; not where a certificate comes from (`self_signed`), not HTTP. A connection takes the
certificate as it is at its handshake: the context that listens asks, and a whole new context stands behind it after
a change. Loading into the listening context itself would leave half of a broken pair in it, and an old RSA
certificate beside a new one of another kind.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from tablestone.server.configuration import CertificateFiles

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often the files are looked at: two calls of the kernel."""

Seen = tuple[tuple[int, int, int], ...]
"""What tells one state of the files from another: time, size and inode of each; empty where one cannot be seen."""


_DNS_NAME = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*")
_DNS_NAME_LENGTH_MAX: Final = 253


def is_certifiable(name: str) -> bool:
    """Whether a certificate can carry the name: a host's, with `*` as its first label at most, or an IP address."""
    return as_address(name) is not None or (
        len(name) <= _DNS_NAME_LENGTH_MAX and _DNS_NAME.fullmatch(name) is not None
    )


def as_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that a name is, None if it is a host's."""
    with suppress(ValueError):
        return ipaddress.ip_address(name)
    return None


class CertificateRefused(Exception):
    """A certificate or key that cannot be used; the text is one sentence."""


class ServedCertificate:
    """What a server answers handshakes with. `CertificateRefused` if the files cannot be used at first.

    `renew` is called before each look at the files; it may replace them.
    """

    def __init__(self, files: CertificateFiles, renew: Callable[[], None] | None = None) -> None:
        self._files = files
        self._renew = renew
        self._leads = True
        self._loaded = _look(files)
        self._refused: Seen | None = None
        self._told: Seen | None = None
        self.context = self._current = _context(files)
        self.context.sni_callback = self._choose

    async def watch(self, *, leads: bool = True) -> None:
        """Look at the files while the server lives; where several processes do, one leads: it renews and tells."""
        self._leads = leads
        while True:
            try:
                self.look()  # at once: a process may start long after the certificate was loaded
            except Exception:
                log.exception("looking at the certificate failed")
            await asyncio.sleep(LOOK_SECONDS)

    def follow(self) -> None:
        """Look at the files once, in a process that does not lead."""
        self._leads = False
        self.look()

    def look(self) -> None:
        """Take what the files hold if they changed; what cannot be used is told once, and the old one stays."""
        try:
            if self._renew is not None and self._leads:
                self._renew()
            seen = _look(self._files)
            if seen == self._loaded:
                return
            self._current = _context(self._files)
        except CertificateRefused as refused:
            self._tell(str(refused))
        else:
            self._loaded, self._refused, self._told = seen, None, None
            log.info("New connections get the new certificate of %s.", self._files.certificate)

    def _tell(self, sentence: str) -> None:
        """Once for each state of the files, at the second look: one file is replaced after the other."""
        seen = _look(self._files)
        if seen == self._refused and seen != self._told and self._leads:
            log.error("The certificate before stays in use: %s", sentence)
            self._told = seen
        self._refused = seen

    def _choose(
        self,
        connection: ssl.SSLObject | ssl.SSLSocket,
        _name: str | None,
        _listening: ssl.SSLContext,
    ) -> None:
        """Called within every handshake, whether the client names a server or not."""
        connection.context = self._current


def _look(files: CertificateFiles) -> Seen:
    try:
        found = [path.stat() for path in (files.certificate, files.key)]
    except OSError:
        return ()
    return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)


def _context(files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for path in (files.certificate, files.key):
        _require_readable(path)

    def refuse_password() -> NoReturn:  # else OpenSSL asks for one at the terminal
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
    """`ssl` says what is wrong with a file, but not with which one."""
    try:
        with path.open("rb"):
            return
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CertificateRefused(f"{path} cannot be read: {reason}.") from None


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's own words; what it calls "PEM lib" is a file without the PEM block it should have."""
    reason = error.reason or "PEM lib"
    return (
        "a PEM block is missing or broken" if "PEM" in reason else reason.replace("_", " ").lower()
    )
