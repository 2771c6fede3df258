"""The report on advisories: a vulnerable package fails the step, with an unreachable index it is skipped."""

import json
from typing import Any

import pytest

from deploy.supply_chain.advisories import NOT_LOOKED_UP, report
from deploy.supply_chain.installed_packages import needed_by_users

VULNERABLE = {
    "name": "jinja2",
    "version": "2.4.1",
    "vulns": [{"id": "PYSEC-2014-8", "fix_versions": ["2.7.2"], "aliases": []}],
}
SOUND = {"name": "click", "version": "8.2.0", "vulns": []}
UNKNOWN = {"name": "apsw", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "status", "lines"),
    [
        ([SOUND], 0, ["1 packages were looked up, 0 advisories were found."]),
        (
            [SOUND, VULNERABLE],
            1,
            [
                "2 packages were looked up, 1 advisories were found.",
                "jinja2 2.4.1: PYSEC-2014-8, fixed in 2.7.2",
            ],
        ),
        (
            [SOUND, UNKNOWN],
            0,
            [
                "1 packages were looked up, 0 advisories were found.",
                "No advisories can be had here for 1 packages: apsw, …",
            ],
        ),
        (
            [UNKNOWN],
            NOT_LOOKED_UP,
            [
                "0 packages were looked up, 0 advisories were found.",
                "No advisories can be had here for 1 packages: apsw, …",
            ],
        ),
    ],
)
def test_a_report(packages: list[dict[str, Any]], status: int, lines: list[str]) -> None:
    assert report(json.dumps({"dependencies": packages, "fixes": []}), "") == (status, lines)


def test_an_index_that_cannot_be_reached() -> None:
    assert report("", "Traceback\nrequests.ConnectionError: no route\n") == (
        NOT_LOOKED_UP,
        ["No advisories were looked up: requests.ConnectionError: no route"],
    )


def test_the_packages_of_users_are_looked_up() -> None:
    """The packages of the base installation and their dependencies, not those of the tests."""
    packages = needed_by_users()
    assert {"apsw-sqlite3mc", "cffi", "click", "cryptography", "pyjwt", "uvloop"} <= packages.keys()
    assert not {"pytest", "mypy", "ruff"} & packages.keys()
