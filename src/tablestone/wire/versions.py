"""Versions, and the rules for an unknown one. `server/requests/pipeline.py` decides which part names the version."""

import enum
import logging
import re
from datetime import date
from typing import Final

logger = logging.getLogger(__name__)

VERSIONS: Final = frozenset(
    {
        "2009-04-14",
        "2009-07-17",
        "2009-09-19",
        "2011-08-18",
        "2012-02-12",
        "2013-08-15",
        "2014-02-14",
        "2015-02-21",
        "2015-04-05",
        "2015-07-08",
        "2015-12-11",
        "2016-05-31",
        "2017-04-17",
        "2017-07-29",
        "2017-11-09",
        "2018-03-28",
        "2018-11-09",
        "2019-02-02",
        "2019-07-07",
        "2019-10-10",
        "2019-12-12",
        "2020-02-10",
        "2020-04-08",
        "2020-06-12",
        "2020-08-04",
        "2020-10-02",
        "2020-12-06",
        "2021-02-12",
        "2021-04-10",
        "2021-06-08",
        "2021-08-06",
        "2021-10-04",
        "2021-12-02",
        "2022-11-02",
        "2023-01-03",
        "2023-08-03",
        "2023-11-03",
        "2024-02-04",
        "2024-05-04",
        "2024-08-04",
        "2024-11-04",
        "2025-01-05",
        "2025-05-05",
        "2025-07-05",
        "2025-11-05",
        "2026-02-06",
        "2026-04-06",
        "2026-06-06",
    }
)
"""The versions that are accepted (wire 10.1)."""
VERSION_UNNAMED: Final = ""
"""For a request that names no version. It sorts before all others, so the earliest rules hold (wire 10.2)."""
VERSION_LATEST: Final = max(VERSIONS)
VERSION_ECHOED: Final = "2009-09-19"
"""The first version whose answers have x-ms-version (wire 10.1)."""
VERSION_UPSERTS: Final = "2011-08-18"
"""The first version with `$select`, and with writes without If-Match (wire 10.1)."""
VERSION_JSON: Final = "2013-08-15"
"""The first version with JSON, OData 3 and Prefer (wire 10.1)."""
VERSION_MINIMAL_ETAG: Final = "2015-04-05"
"""The first version whose minimal metadata has `odata.etag` (wire 10.1)."""
VERSION_EXACT_TEXTS: Final = "2016-05-31"
"""The first version whose errors name the broken rule of a transaction, or of types in a filter (wire 10.1)."""
VERSION_XML_ERROR_CODE: Final = "2017-07-29"
"""The first version whose errors in XML have x-ms-error-code (wire 10.1)."""
VERSION_JSON_ONLY: Final = "2015-12-11"
"""The first version without Atom (wire 10.1)."""


TOLD_MAX: Final = 20
"""Unknown versions that a process logs. There is a limit because a client can send any number without a key."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


class UnknownVersions(enum.Enum):
    """Which unknown versions are served: the values of `--any-version`."""

    LATER = "later"
    """Those after the latest known one: a client may be newer than this server."""
    ALL = "true"
    """Every date after the first known version."""
    NONE = "false"

    __hash__ = object.__hash__


class ServedVersions:
    """The versions that one server answers. It logs each unknown one once."""

    def __init__(self, unknown: UnknownVersions) -> None:
        self._unknown = unknown
        self._told: set[str] = set()

    def rules_for(self, version: str) -> str | None:
        """The known version whose rules hold for this one: itself, or the last one before it. None: refused."""
        if version in VERSIONS:
            return version
        if self._unknown is UnknownVersions.NONE:
            return None
        known = _last_before(version)
        if known is None or (known != VERSION_LATEST and self._unknown is UnknownVersions.LATER):
            return None
        if version not in self._told and len(self._told) < TOLD_MAX:
            self._told.add(version)
            logger.warning(
                "version %s of the service is not known: it is served as %s (--any-version)",
                version,
                known,
            )
        return known


ONLY_KNOWN: Final = ServedVersions(UnknownVersions.NONE)


def _last_before(version: str) -> str | None:
    """The last known version before an unknown one; None if this is not a date, or earlier than all."""
    if _DATE.fullmatch(version) is None:
        return None
    try:
        date.fromisoformat(version)
    except ValueError:
        return None
    return max((known for known in VERSIONS if known < version), default=None)
