"""With `--any-version`: which known version answers a request of a version that is not known."""

from __future__ import annotations

import pytest

from tablestone.wire.http.negotiate import VERSION_LATEST, VERSIONS, known_version

KNOWN = {
    "2999-01-01": VERSION_LATEST,
    "2019-02-03": "2019-02-02",
    "2015-12-10": "2015-07-08",
    "2008-01-01": None,
    "latest": None,
    "2019-2-3": None,
    "": None,
}


@pytest.mark.parametrize(("version", "answered"), KNOWN.items())
def test_an_unknown_version(version: str, answered: str | None) -> None:
    assert version not in VERSIONS
    assert known_version(version) == answered
