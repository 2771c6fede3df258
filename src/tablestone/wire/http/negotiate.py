"""The form of the answer: the versions there are, JSON at a metadata level or Atom, and the client's preference.

`negotiate` never fails. If the requested form is impossible, `refusal` has the error's code, so that every error, also
this one, can be written in a form that the client reads (wire 5.1, 10). Results for short headers are cached.
"""

from __future__ import annotations

import enum
import functools
import re
from typing import Final, NamedTuple

from tablestone.wire.http.address import Parameters
from tablestone.wire.http.messages import Headers

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
VERSION_LATEST: Final = max(VERSIONS)
VERSION_ECHOED: Final = "2009-09-19"
"""The first version whose answers have x-ms-version (wire 10.1)."""
VERSION_UPSERTS: Final = "2011-08-18"
"""The first version with `$select`, and with writes without If-Match (wire 10.1)."""
VERSION_JSON: Final = "2013-08-15"
"""The first version with JSON, OData 3 and Prefer (wire 10.1)."""
VERSION_JSON_ONLY: Final = "2015-12-11"
"""The first version without Atom (wire 10.1)."""


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def known_version(version: str) -> str | None:
    """The last known version before one that is not known; None for a text that is no date, or an older one."""
    if _DATE.fullmatch(version) is None:
        return None
    return max((known for known in VERSIONS if known < version), default=None)


class MetadataLevel(enum.Enum):
    """The amount of OData metadata in a JSON answer (wire 5.2)."""

    NONE = "nometadata"
    MINIMAL = "minimalmetadata"
    FULL = "fullmetadata"

    __hash__ = object.__hash__  # a member is looked up for every answer; Enum's own hash is slow


class AtomForm(enum.Enum):
    """The Content-Type of Atom: plain in 2011-08-18, as recorded; with `type=` since OData 3 (wire 2.3, 10.1)."""

    PLAIN = "application/atom+xml"
    TYPED = "application/atom+xml;type="

    __hash__ = object.__hash__


PayloadForm = MetadataLevel | AtomForm


class Negotiated(NamedTuple):
    """The form of the answer. `refusal` is the error's code if the requested form is impossible; it needs a body."""

    form: PayloadForm
    refusal: str | None


_MINIMAL: Final = Negotiated(MetadataLevel.MINIMAL, None)
_LEVELS: Final = {f"odata={level.value}": level for level in MetadataLevel}
_ANY_TYPES: Final = frozenset(("", "*/*", "application/*"))
_BEFORE_ODATA_3 = re.compile(r"\s*0*[0-2]\.\d")

ATOM_TYPES: Final = frozenset(("application/atom+xml", "application/xml", "text/xml"))
"""The media types that mean Atom, in Accept and in Content-Type."""


def negotiate(headers: Headers, parameters: Parameters, version: str) -> Negotiated:
    """The form of the answer: `$format` overrides Accept (wire 1.5)."""
    wanted = parameters.get("$format") if parameters else None
    if wanted is None:
        wanted = headers.get(b"accept", b"").decode("latin-1")
    data_version = (
        headers.get(b"maxdataserviceversion") or headers.get(b"dataserviceversion") or b""
    )
    if len(wanted) + len(data_version) > _SHORT:
        return _negotiate(wanted, version, data_version)
    return _negotiate_short(wanted, version, data_version)


def default_form(version: str) -> PayloadForm:
    """The form of the answer if the request asks for none: Atom in all versions that have it (wire 5.1)."""
    if version >= VERSION_JSON_ONLY:
        return MetadataLevel.MINIMAL
    return AtomForm.PLAIN if version < VERSION_JSON else AtomForm.TYPED


def _negotiate(wanted: str, version: str, data_version: bytes) -> Negotiated:
    """The first requested form that is possible; if there is none, the refusal of the first one."""
    refused: Negotiated | None = None
    for media_range in wanted.lower().split(","):
        media_type, *parameters = (part.strip() for part in media_range.split(";"))
        if media_type in _ANY_TYPES:
            found = Negotiated(default_form(version), None)
        elif media_type == "application/json":
            found = _json(parameters, version, data_version)
        elif media_type in ATOM_TYPES:
            found = _atom(version)
        else:
            continue
        if found.refusal is None:
            return found
        refused = refused or found
    return refused or Negotiated(default_form(version), "MediaTypeNotSupported")


_SHORT: Final = 512
"""The length of the headers, in characters, up to which the result is cached, so that the cache stays small."""
_negotiate_short = functools.lru_cache(maxsize=256)(_negotiate)


def _atom(version: str) -> Negotiated:
    form = default_form(version)
    return Negotiated(form, None if isinstance(form, AtomForm) else "AtomFormatNotSupported")


def _json(parameters: list[str], version: str, data_version: bytes) -> Negotiated:
    """JSON at the requested level; refused to clients whose data service version is too old for JSON (wire 5.1)."""
    if version < VERSION_JSON or _is_before_odata_3(data_version):
        return Negotiated(MetadataLevel.MINIMAL, "JsonFormatNotSupported")
    for parameter in parameters:
        setting = parameter.replace(" ", "")
        if setting in _LEVELS:
            return Negotiated(_LEVELS[setting], None)
        if setting == "odata=verbose":
            return Negotiated(MetadataLevel.MINIMAL, "JsonVerboseFormatNotSupported")
    return _MINIMAL


def _is_before_odata_3(data_version: bytes) -> bool:
    return _BEFORE_ODATA_3.match(data_version.decode("latin-1")) is not None


class Preference(enum.Enum):
    """The value of Prefer: whether an insert or create returns the new resource (wire 2.1)."""

    RETURN_CONTENT = "return-content"
    RETURN_NO_CONTENT = "return-no-content"

    __hash__ = object.__hash__


def preference(headers: Headers, version: str) -> Preference | None:
    """The Prefer header, if it was sent and is known; it exists since 2013-08-15 and OData 3 (wire 10.1)."""
    value = headers.get(b"prefer")
    if value is None or version < VERSION_JSON:
        return None
    data_version = (
        headers.get(b"maxdataserviceversion") or headers.get(b"dataserviceversion") or b""
    )
    if len(value) + len(data_version) > _SHORT:
        return _preference(value, data_version)
    return _preference_short(value, data_version)


def _preference(value: bytes, data_version: bytes) -> Preference | None:
    if _is_before_odata_3(data_version):
        return None
    return _PREFERENCES.get(value.strip().lower())


_preference_short = functools.lru_cache(maxsize=256)(_preference)
_PREFERENCES: Final = {item.value.encode("ascii"): item for item in Preference}
