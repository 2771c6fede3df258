"""The client and the scheme of a request, as trusted proxies tell them."""

import pytest

from tablestone.server.trusted_proxies import TrustedProxies, unmapped

PROXIES = TrustedProxies(["10.0.0.0/8", "2001:db8::1"])
PEER = "10.1.1.1"
FORWARDED = [
    # X-Forwarded-For headers, and the client
    ([], PEER),
    (["192.0.2.7"], "192.0.2.7"),
    (["192.0.2.7, 10.2.2.2"], "192.0.2.7"),
    (["203.0.113.9, 192.0.2.7, 10.2.2.2"], "192.0.2.7"),  # what stands before it may be invented
    (["203.0.113.9", "192.0.2.7", "10.2.2.2"], "192.0.2.7"),
    (["10.3.3.3, 10.2.2.2"], "10.3.3.3"),  # all are trusted: the first
    (["192.0.2.7:4711"], "192.0.2.7"),
    (["[2001:db8::7]:4711, 2001:db8::1"], "2001:db8::7"),
    (["2001:db8::7"], "2001:db8::7"),
    (["::ffff:192.0.2.7"], "192.0.2.7"),
    (["::FFFF:192.0.2.7"], "192.0.2.7"),
    (["::ffff:c000:207"], "192.0.2.7"),
    (["192.0.2.7, ::ffff:10.2.2.2"], "192.0.2.7"),
    (["unknown, 10.2.2.2"], "unknown"),
    ([""], PEER),
]


@pytest.mark.parametrize(("headers", "client"), FORWARDED)
def test_the_last_address_that_is_no_trusted_proxy_is_the_client(
    headers: list[str], client: str
) -> None:
    fields = [(b"x-forwarded-for", each.encode()) for each in headers]
    assert PROXIES.described(fields, PEER, "http") == (client, "http")


SCHEMES = [("https", "https"), ("HTTPS , https", "https"), ("https, http", "http"), ("ftp", "http")]


@pytest.mark.parametrize(("said", "scheme"), SCHEMES)
def test_the_scheme_is_https_if_every_proxy_says_so(said: str, scheme: str) -> None:
    assert PROXIES.described([(b"x-forwarded-proto", said.encode())], PEER, "http")[1] == scheme


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        *((PEER, True), ("::ffff:10.9.9.9", True), ("11.0.0.1", False), ("2001:db8::2", False)),
        *(("2001:db8::1", True), ("", False), ("10.1.1.1 ", False), ("9" * 100, False)),
    ],
)
def test_who_is_trusted(address: str, trusted: bool) -> None:  # noqa: FBT001
    assert PROXIES.trusts(address) is trusted


def test_only_addresses_of_ipv4_are_shown_as_such() -> None:
    assert unmapped("::ffff:abcd") == "::ffff:abcd"
    assert unmapped("::ffff:no address") == "::ffff:no address"
