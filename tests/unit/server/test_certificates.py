"""The certificate that a server makes for itself, the one that it serves, and the client's address."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from cryptography import x509

from certificates import key_pem, make_key, write_pair
from tablestone.configuration import CertificateFiles, SelfSigned
from tablestone.server.admission import MEBIBYTE, Admission
from tablestone.server.exchange import Serving
from tablestone.server.http_connection import HttpConnection
from tablestone.server.self_signed_certificate import (
    RENEWED_BEFORE,
    VALID,
    keep_self_signed,
    keeper,
    moment,
)
from tablestone.server.tls_certificate import CertificateRefused, ServedCertificate
from tablestone.server.trusted_proxies import TrustedProxies
from tablestone.wire.messages import RawRequest, RawResponse

NOW = datetime(2026, 3, 1, 12, 30, 15, 250_000, UTC)
ALWAYS = {"localhost", "*.localhost", "*.table.localhost", "127.0.0.1", "::1"}


def made(self_signed: SelfSigned, now: datetime = NOW) -> x509.Certificate:
    keep_self_signed(self_signed, now)
    return x509.load_pem_x509_certificate(self_signed.files.certificate.read_bytes())


def names_of(certificate: x509.Certificate) -> set[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


NAMES = {
    "none": ((), set()),
    "an address that is always there": (("127.0.0.1",), set()),
    "another spelling of it": (("0:0:0:0:0:0:0:1",), set()),
    "another address": (("10.1.2.3", "fd00::1"), {"10.1.2.3", "fd00::1"}),
    "a host": (("Tables.Example.com",), {"tables.example.com"}),
    "hosts below one": (("*.table.example.com",), {"*.table.example.com"}),
    "what no certificate can carry": (("a_b", "ä.example"), set()),
    "every address": (("0.0.0.0", "::"), {socket.gethostname().lower()}),
}


@pytest.mark.parametrize(("given", "more"), NAMES.values(), ids=NAMES)
def test_names(tmp_path: Path, given: tuple[str, ...], more: set[str]) -> None:
    assert names_of(made(SelfSigned(tmp_path / "tls", given))) == ALWAYS | more


def test_who_trusts_it_trusts_nothing_it_signs(tmp_path: Path) -> None:
    certificate = made(SelfSigned(tmp_path, ()))
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert not constraints.value.ca


def told(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    """The warnings logged when a certificate replaced another."""
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    return [f"{what}: clients that trusted the old certificate have to be given the new one."]


def test_it_is_kept_until_it_is_about_to_expire(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    self_signed = SelfSigned(tmp_path, ("a.example",))
    first = made(self_signed)
    renewal = keep_self_signed(self_signed, NOW)
    assert renewal == first.not_valid_after_utc - RENEWED_BEFORE
    assert abs(first.not_valid_after_utc - NOW - VALID) < timedelta(seconds=1)
    assert made(self_signed, renewal - timedelta(seconds=1)) == first
    assert caplog.messages == [], "the first one is no news"
    second = made(self_signed, renewal)
    files = self_signed.files
    assert caplog.messages == told(
        caplog, f"{files.certificate} is replaced because it is about to expire"
    )
    assert second.serial_number != first.serial_number
    assert second.public_key() == first.public_key()
    assert names_of(second) == names_of(first)
    assert second.not_valid_before_utc < renewal < second.not_valid_after_utc


def test_a_new_name_makes_a_new_one_that_has_the_old_names_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = made(SelfSigned(tmp_path, ("a.example",)))
    both = made(SelfSigned(tmp_path, ("a.example", "b.example")))
    certificate = tmp_path / "certificate.pem"
    assert caplog.messages == told(caplog, f"{certificate} is replaced to add b.example")
    assert names_of(both) == names_of(first) | {"b.example"}
    assert made(SelfSigned(tmp_path, ("b.example",))) == both
    assert len(caplog.records) == 1


SPOILT = {
    "no certificate": ("certificate.pem", None),
    "no key": ("key.pem", None),
    "a broken certificate": ("certificate.pem", b"-----BEGIN CERTIFICATE-----\n"),
    "a broken key": ("key.pem", b""),
    "another key": ("key.pem", key_pem(make_key())),
    "a key of another kind": ("key.pem", key_pem(make_key("rsa"))),
    "a key with a password": ("key.pem", key_pem(make_key(), b"secret")),
}


@pytest.mark.parametrize(("name", "text"), SPOILT.values(), ids=SPOILT)
def test_an_unusable_certificate_is_replaced_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, text: bytes | None
) -> None:
    self_signed = SelfSigned(tmp_path, ())
    first = made(self_signed)
    assert caplog.messages == [], "the first one is no news"
    (tmp_path / name).unlink()
    if text is not None:
        (tmp_path / name).write_bytes(text)
    second = made(self_signed)
    assert second != first
    ServedCertificate(self_signed.files)
    assert made(self_signed) == second
    what = f"{tmp_path / 'certificate.pem'} and key.pem could not be used together and are replaced"
    was_there = (name, text) != ("certificate.pem", None)
    assert caplog.messages == (told(caplog, what) if was_there else [])


def test_many_at_once_make_one(tmp_path: Path) -> None:
    self_signed = SelfSigned(tmp_path / "tls", ())
    with ThreadPoolExecutor(8) as threads:
        shown = set(threads.map(lambda _: made(self_signed), range(32)))
    assert len(shown) == 1


def test_the_keeper_asks_the_clock(tmp_path: Path) -> None:
    ticks = (NOW - datetime(1, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 10
    assert moment(ticks) == NOW
    times = iter([ticks, ticks, ticks + VALID.days * 86_400 * 10_000_000])
    self_signed = SelfSigned(tmp_path, ())
    keep = keeper(self_signed, lambda: next(times))
    first = self_signed.files.certificate.read_bytes()
    keep()
    assert self_signed.files.certificate.read_bytes() == first
    keep()
    assert self_signed.files.certificate.read_bytes() != first


def test_a_broken_certificate_is_logged_at_the_second_look_and_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = ServedCertificate(CertificateFiles(*write_pair(tmp_path, "first")))
    first = served._current
    (tmp_path / "key.pem").write_bytes(key_pem(make_key()))
    told = []
    for _ in range(4):
        served.look()
        told.append(len(caplog.records))
    assert told == [0, 1, 1, 1]
    assert served._current is first
    (tmp_path / "key.pem").write_bytes(b"")
    for _ in range(4):
        served.look()
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    write_pair(tmp_path, "second")
    served.look()
    assert served._current is not first
    (tmp_path / "key.pem").unlink()
    served.look()
    served.look()
    assert len(caplog.records) == 3


def test_a_certificate_that_cannot_be_renewed_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def renew() -> None:
        raise CertificateRefused("The disk is full.")

    served = ServedCertificate(CertificateFiles(*write_pair(tmp_path, "first")), renew)
    for _ in range(4):
        served.look()
    assert [record.getMessage() for record in caplog.records] == [
        "The previous certificate stays in use: The disk is full."
    ]


CLIENTS = {
    # the ends of the connection, the trusted proxies, the address of the client, whether it is on this machine
    "IPv4": (("10.1.2.3", 4711), ("10.1.2.4", 80), "", "10.1.2.3", False),
    "IPv6": (("fd00::1", 4711), ("fd00::2", 80), "", "fd00::1", False),
    "IPv4 on a socket for both": (("::ffff:10.1.2.3", 4711), None, "", "10.1.2.3", False),
    "the server's own address": (("10.1.2.3", 4711), ("10.1.2.3", 80), "", "10.1.2.3", True),
    "a proxy beside the server": (("10.1.2.3", 4711), ("10.1.2.3", 80), "10.1.2.3", "8.8.8.8", False),
    "nobody, as on a Unix socket": (None, None, "", "", False),
}  # fmt: skip


@pytest.mark.parametrize(
    ("client", "own", "proxies", "expected", "is_local"), CLIENTS.values(), ids=CLIENTS
)
def test_a_request_knows_its_client_and_scheme(
    client: tuple[str, int] | None,
    own: tuple[str, int] | None,
    proxies: str,
    expected: str,
    is_local: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    seen: list[RawRequest] = []

    class Noting:
        waits = False

        async def answer(self, request: RawRequest, *_: Any) -> RawResponse:
            seen.append(request)
            return RawResponse(204, [])

        refuse = answer

    trusted = TrustedProxies([proxies]) if proxies else None
    serving = Serving(Noting(), Admission(9, 9, MEBIBYTE), trusted)
    transport = Mock(is_closing=lambda: False)
    transport.get_extra_info = {"peername": client, "sockname": own, "sslcontext": object()}.get
    with closing(asyncio.new_event_loop()) as loop:
        connection = HttpConnection(serving, loop)
        connection.connection_made(transport)
        connection.data_received(b"GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 8.8.8.8\r\n\r\n")
    assert [(request.client, request.scheme) for request in seen] == [(expected, "https")]
    assert [request.is_local for request in seen] == [is_local]
