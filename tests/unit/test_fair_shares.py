"""The shares of client addresses: each table says how many places some addresses have, and which may have another."""

from __future__ import annotations

import pytest

from tablestone.server.admission import ALL, FairShares, address_of


def filled(places: int, percent: int, *addresses: str) -> tuple[FairShares, dict[str, int]]:
    """The shares after each address has asked until no address gets a place, one of them after the other in turn."""
    shares = FairShares(places, percent)
    taken = dict.fromkeys(addresses, 0)
    while sum(_asked(shares, taken, address) for address in addresses):
        pass
    return shares, taken


def _asked(shares: FairShares, taken: dict[str, int], address: str) -> bool:
    got = shares.take(address)
    taken[address] += got
    return got


@pytest.mark.parametrize(
    ("places", "percent", "addresses", "expected"),
    [
        (100, 50, "a", [50]),
        (100, 50, "ab", [34, 33]),
        (100, 99, "a", [50]),
        (100, 10, "a", [10]),
        (100, 10, "abc", [10, 10, 10]),
        (100, ALL, "a", [100]),
        (100, ALL, "ab", [50, 50]),
        (1, 50, "a", [1]),
        (1, 1, "a", [1]),
    ],
)
def test_how_many_places_addresses_get(
    places: int, percent: int, addresses: str, expected: list[int]
) -> None:
    _, taken = filled(places, percent, *addresses)
    assert list(taken.values()) == expected


def test_another_address_always_finds_a_place() -> None:
    for crowd in range(1, 20):
        shares, _ = filled(100, 50, *map(str, range(crowd)))
        assert shares.take("quiet"), f"beside {crowd} addresses"


def test_a_place_that_is_given_back_is_free_again() -> None:
    shares, _ = filled(10, 50, "a")
    assert not shares.take("a")
    shares.give_back("a")
    assert shares.take("a")
    shares.give_back("a", 5)
    assert shares.taken == 0
    with pytest.raises(KeyError):
        shares.give_back("a")


def test_many_places_at_once_are_all_or_nothing() -> None:
    shares = FairShares(100, 50)
    assert not shares.take("a", 51)
    assert shares.taken == 0
    assert shares.take("a", 50)


@pytest.mark.parametrize("percent", [1, 25, 50, ALL])
def test_nobody_is_refused_while_it_is_not_tight(percent: int) -> None:
    shares = FairShares(40, percent)
    while not shares.is_tight:
        assert shares.take("a")
    assert not shares.take("a")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("a name: no address", "a name: no address"),
        ("", ""),
    ],
)
def test_the_address_that_counts(host: str, expected: str) -> None:
    assert address_of(host) == expected
