"""`--any-version`: which unknown versions are served, by whose rules, and what the log says."""

import logging
from datetime import date, timedelta

import pytest

from tablestone.wire.versions import (
    ONLY_KNOWN,
    TOLD_MAX,
    VERSION_LATEST,
    VERSIONS,
    ServedVersions,
    UnknownVersions,
)

LATER, ALL, NONE = UnknownVersions.LATER, UnknownVersions.ALL, UnknownVersions.NONE
NEXT_DAY = (date.fromisoformat(VERSION_LATEST) + timedelta(days=1)).isoformat()

# The version, and the one whose rules apply: with `later`, and with `true`. With `false` each is refused.
UNKNOWN = {
    NEXT_DAY: (VERSION_LATEST, VERSION_LATEST),
    "2999-01-01": (VERSION_LATEST, VERSION_LATEST),
    "9999-12-31": (VERSION_LATEST, VERSION_LATEST),
    "2028-02-29": (VERSION_LATEST, VERSION_LATEST),
    "2026-06-05": (None, "2026-04-06"),
    "2019-02-03": (None, "2019-02-02"),
    "2015-12-10": (None, "2015-07-08"),
    "2009-04-13": (None, None),
    "1999-01-01": (None, None),
    "2027-02-29": (None, None),  # not a leap year
    "2027-13-01": (None, None),
    "2027-00-10": (None, None),
    "2027-1-1": (None, None),
    "20270101": (None, None),
    "2027-W01-1": (None, None),
    "2027-01-01T00:00:00Z": (None, None),
    "2027-01-01\n": (None, None),
    "２０２７-01-01": (None, None),
    "12.0.0b1": (None, None),
    "latest": (None, None),
    "": (None, None),
}


@pytest.mark.parametrize("version", UNKNOWN)
def test_whose_rules_hold_for_an_unknown_version(version: str) -> None:
    assert version not in VERSIONS
    by_later, by_all = UNKNOWN[version]
    assert ServedVersions(LATER).rules_for(version) == by_later
    assert ServedVersions(ALL).rules_for(version) == by_all
    assert ServedVersions(NONE).rules_for(version) is None
    assert ONLY_KNOWN.rules_for(version) is None


@pytest.mark.parametrize("unknown", UnknownVersions)
def test_a_known_version_has_its_own_rules(
    unknown: UnknownVersions, caplog: pytest.LogCaptureFixture
) -> None:
    versions = ServedVersions(unknown)
    assert {version: versions.rules_for(version) for version in VERSIONS} == {
        version: version for version in VERSIONS
    }
    assert not caplog.records


def test_each_version_is_logged_once_and_twenty_at_most(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a client without credentials could fill the log."""
    versions = ServedVersions(LATER)
    for _ in range(3):
        for year in range(2100, 2150):
            assert versions.rules_for(f"{year}-01-01") == VERSION_LATEST
        assert versions.rules_for("2019-02-03") is None
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == TOLD_MAX == 20
    assert told == [
        f"version {year}-01-01 of the service is not known: it is served as {VERSION_LATEST} (--any-version)"
        for year in range(2100, 2120)
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
