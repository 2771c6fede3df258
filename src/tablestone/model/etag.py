"""The ETag: the text of an entity's version (wire 4). Knows no entities, HTTP headers or conditions."""

import functools
import re
from typing import Final

from tablestone.model.edm import format_date_time, parse_date_time
from tablestone.model.errors import StorageError

ETAG_START: Final = "W/\"datetime'"
"""The text before the time in an ETag. The time has no apostrophe."""
ETAG_END: Final = "'\""
VERSION_OF_NOTHING: Final = 1
"""The version in a well-formed ETag of another origin. No entity has it."""
_WEAK_TAG = re.compile(r'W/"([^"]*)"')
_DATE_TIME_TAG = re.compile(r"datetime'([^']*)'", re.IGNORECASE)


def format_etag(version: int) -> str:
    """The ETag of a version: a weak tag with its Timestamp, `:` as `%3A` (wire 4)."""
    return etag_and_timestamp(version)[0]


@functools.lru_cache(maxsize=256)
def etag_and_timestamp(version: int) -> tuple[str, str]:
    """Cached, because a write needs both twice, and the writes of a transaction share one version."""
    time = format_date_time(version)
    return etag_of_time(time.replace(":", "%3A")), time


def etag_of_time(time: str) -> str:
    """The ETag with this time, in which `:` is already `%3A`."""
    return f"{ETAG_START}{time}{ETAG_END}"


def version_of_time(time: str) -> int:
    """The version with the time in an ETag; `ValueError` if the text is not a time."""
    return parse_date_time(time.replace("%3A", ":"))


def parse_etag(text: str) -> int:
    """The version that an ETag names; `VERSION_OF_NOTHING` for a well-formed ETag of another origin (wire 4).

    Colons may be written as `:` or as `%3A`. Raises `InvalidInput` for a text that is not a weak tag, and
    `ConditionNotMet` for a datetime tag with doubled quotes, as recorded from the service.
    """
    weak = _WEAK_TAG.fullmatch(text)
    if weak is None:
        raise StorageError(
            "InvalidInput",
            f"The etag value '{text}' specified in one of the request headers is not valid. Please make sure only "
            "one etag value is specified and is valid.",
        )
    if weak[1].startswith("datetime''"):
        raise StorageError("ConditionNotMet")
    tag = _DATE_TIME_TAG.fullmatch(weak[1])
    if tag is None:
        return VERSION_OF_NOTHING
    try:
        version = version_of_time(tag[1].replace("%3a", "%3A"))
    except ValueError:
        return VERSION_OF_NOTHING
    return max(version, VERSION_OF_NOTHING)
