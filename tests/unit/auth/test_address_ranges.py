"""Ranges of addresses: how they are read, and which addresses they hold."""

import pytest

from tablestone import limits
from tablestone.auth.address_ranges import AllowedAddresses, parse_ranges
from tablestone.server.trusted_proxies import TrustedProxies

RANGES = ("10.0.0.0/8", "192.0.2.7", "fd00::/8", "::ffff:198.51.100.0/120")


@pytest.mark.parametrize(
    ("address", "is_held"),
    [
        ("10.0.0.0", True),
        ("10.255.255.255", True),
        ("11.0.0.0", False),
        ("9.255.255.255", False),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("::ffff:10.1.2.3", True),  # an address of IPv4
        ("::ffff:11.0.0.1", False),
        ("::FFFF:0a01:0203", True),
        ("198.51.100.200", True),  # so is a range of those
        ("::ffff:198.51.100.200", True),
        ("198.51.101.1", False),
        ("fd12::1", True),
        ("fd12::1%eth0", True),
        ("fe80::1%eth0", False),
        ("::1", False),
        ("127.0.0.1", False),
        ("::10.1.2.3", False),  # an old form, which is no mapped address
        ("", False),  # of a Unix socket
        ("unknown", False),
        ("10.1.2.3:80", False),
        ("010.1.2.3", False),
        ("1" * 65, False),
    ],
)
def test_which_addresses_are_held(address: str, *, is_held: bool) -> None:
    allowed = AllowedAddresses(RANGES)
    assert [allowed.hold(address), allowed.hold(address)] == [is_held, is_held]


def test_every_address_of_one_family_is_none_of_the_other() -> None:
    assert not AllowedAddresses(["0.0.0.0/0"]).hold("::1")
    assert AllowedAddresses(["0.0.0.0/0"]).hold("::ffff:127.0.0.1")
    assert not AllowedAddresses(["::/0"]).hold("127.0.0.1")


def test_ranges_are_written_in_one_way() -> None:
    given = (" 10.0.0.0/8", "10.0.0.0/255.0.0.0", "FD00::/8", "::ffff:10.0.0.9", "10.0.0.0/8")
    assert parse_ranges(given) == ("10.0.0.0/8", "fd00::/8", "10.0.0.9/32")


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["10.0.0.1/8"], "10.0.0.1/8, an address with bits after the prefix: write 10.0.0.0/8 or"),
        (["fd00::1/8"], "fd00::1/8, an address with bits after the prefix: write fd00::/8 or"),
        (["10"], "'10', which is no address and no range"),
        (["10.0.0.0/33"], "'10.0.0.0/33', which is no address and no range"),
        ([""], "'', which is no address and no range"),
        (["fe80::1%eth0"], "'fe80::1%eth0', which is no address"),
        (["weather.example"], "'weather.example', which is no address"),
        (
            [f"10.0.{number}.0/24" for number in range(100)],
            f"100 ranges, and an account has at most {limits.ALLOWED_RANGES_MAX}",
        ),
    ],
)
def test_what_is_no_range(texts: list[str], sentence: str) -> None:
    with pytest.raises(ValueError, match="has ") as raised:
        parse_ranges(texts)
    assert sentence in str(raised.value)


def test_so_many_ranges_may_be() -> None:
    texts = [f"10.0.{number}.0/24" for number in range(limits.ALLOWED_RANGES_MAX)]
    assert AllowedAddresses(parse_ranges(texts * 2)).hold("10.0.63.9")


def test_behind_proxies_the_last_address_that_is_not_trusted_counts() -> None:
    proxies, allowed = TrustedProxies(["10.9.0.0/16"]), AllowedAddresses(["192.0.2.0/24"])

    def is_admitted(forwarded: str) -> bool:
        fields = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
        return allowed.hold(proxies.described(fields, "10.9.0.1", "http")[0])

    assert is_admitted("192.0.2.1")
    assert is_admitted("203.0.113.9, 192.0.2.1, 10.9.0.7")
    assert not is_admitted("192.0.2.1, 203.0.113.9, 10.9.0.7")  # the client wrote the first one
    assert not is_admitted("")


@pytest.mark.parametrize(
    ("network", "overlaps"),
    [("10.1.0.0/16", True), ("0.0.0.0/0", True), ("11.0.0.0/8", False), ("fd00::1", True)],
)
def test_a_range_that_a_trusted_proxy_is_in(network: str, *, overlaps: bool) -> None:
    assert AllowedAddresses(RANGES).overlap(network) == overlaps
