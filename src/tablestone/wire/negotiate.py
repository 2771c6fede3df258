"""The form of the answer: JSON at a metadata level or Atom, and whether the client wants a body at all.

`negotiate` never fails. If the requested form is impossible, `refusal` has the error's code, so that every error,
including this one, is written in a form that the client reads (wire 5.1, 10).
"""

import enum
import functools
import re
from typing import Final, NamedTuple

from tablestone.wire.address import Parameters
from tablestone.wire.messages import Headers
from tablestone.wire.versions import VERSION_JSON, VERSION_JSON_ONLY, VERSION_MINIMAL_ETAG


class MetadataLevel(enum.Enum):
    """The amount of OData metadata in a JSON answer (wire 5.2)."""

    NONE = "nometadata"
    MINIMAL = "minimalmetadata"
    FULL = "fullmetadata"
    MINIMAL_WITHOUT_ETAG = "minimalmetadata of versions before 2015-04-05"

    __hash__ = object.__hash__  # a member is looked up for every answer; Enum's own hash is slow


class AtomForm(enum.Enum):
    """Atom by the version of the service, and by the client's version of OData (wire 2.3, 5.7, 10.1)."""

    PLAIN = "up to 2012-02-12: no type= in the Content-Type"
    ODATA_2 = "a client that declares OData 1 or 2"
    ODATA_3 = "any other client"

    __hash__ = object.__hash__


PayloadForm = MetadataLevel | AtomForm


class Negotiated(NamedTuple):
    """The form of the answer."""

    form: PayloadForm
    refusal: str | None
    """The code of the error if the answer cannot have a body in this form."""
    preference: bytes | None = None
    """Prefer: whether an insert or create returns the new resource. From 2013-08-15 and OData 3 on (wire 2.1, 10.1)."""


_LEVELS: Final = {
    f"odata={level.value}": level
    for level in (MetadataLevel.NONE, MetadataLevel.MINIMAL, MetadataLevel.FULL)
}
RETURN_NO_CONTENT: Final = b"return-no-content"
_PREFERENCES: Final = frozenset((b"return-content", RETURN_NO_CONTENT))
_BEFORE_ODATA_3 = re.compile(r"\s*0*[0-2]\.\d")

ATOM_TYPES: Final = frozenset(("application/atom+xml", "application/xml", "text/xml"))
"""The media types that mean Atom, in Accept and in Content-Type."""
_ATOM_OR_ANY: Final = ATOM_TYPES | {"", "*/*", "application/*"}
"""The media ranges in Accept that mean Atom, which is the default (wire 5.1)."""


def negotiate(headers: Headers, parameters: Parameters, version: str) -> Negotiated:
    """The form of the answer. `$format` overrides Accept (wire 1.5)."""
    wanted = parameters.get("$format") if parameters else None
    if not wanted:
        wanted = headers.get(b"accept", b"").decode("latin-1")
    elif wanted == "json":
        wanted = "application/json"
    data_version = (
        headers.get(b"maxdataserviceversion") or headers.get(b"dataserviceversion") or b""
    )
    prefer = headers.get(b"prefer", b"")
    if len(wanted) + len(data_version) + len(prefer) > _SHORT:
        return _negotiate(wanted, version, data_version, prefer)
    return _negotiate_short(wanted, version, data_version, prefer)


def _negotiate(wanted: str, version: str, data_version: bytes, prefer: bytes) -> Negotiated:
    negotiated = _form(wanted, version, data_version)
    prefer = prefer.strip().lower()
    if prefer in _PREFERENCES and version >= VERSION_JSON and not _is_before_odata_3(data_version):
        return negotiated._replace(preference=prefer)
    return negotiated


def _form(wanted: str, version: str, data_version: bytes) -> Negotiated:
    """The first requested form that is possible. If none is, the refusal of the first one."""
    atom = _atom(version, data_version)
    refused: Negotiated | None = None
    for media_range in wanted.lower().split(","):
        media_type, *parameters = (part.strip() for part in media_range.split(";"))
        if media_type in _ATOM_OR_ANY:
            found = atom
        elif media_type == "application/json":
            found = _json(parameters, version, data_version)
        else:
            continue
        if found.refusal is None:
            return found
        refused = refused or found
    return refused or atom._replace(refusal="MediaTypeNotSupported")


_SHORT: Final = 512
"""Characters of the longest headers whose result is cached, so that the cache stays small."""
_negotiate_short = functools.lru_cache(maxsize=256)(_negotiate)


def _atom(version: str, data_version: bytes) -> Negotiated:
    """Atom, or its refusal: versions without Atom still write errors in it."""
    if version < VERSION_JSON:
        return Negotiated(AtomForm.PLAIN, None)
    form = AtomForm.ODATA_2 if _is_before_odata_3(data_version) else AtomForm.ODATA_3
    return Negotiated(form, None if version < VERSION_JSON_ONLY else "AtomFormatNotSupported")


def _json(parameters: list[str], version: str, data_version: bytes) -> Negotiated:
    """JSON at the requested level. Clients whose data service version is too old for JSON are refused (wire 5.1)."""
    if version < VERSION_JSON or _is_before_odata_3(data_version):
        return Negotiated(MetadataLevel.MINIMAL, "JsonFormatNotSupported")
    level = MetadataLevel.MINIMAL
    for parameter in parameters:
        setting = parameter.replace(" ", "")
        if setting in _LEVELS:
            level = _LEVELS[setting]
            break
        if setting == "odata=verbose":
            return Negotiated(MetadataLevel.MINIMAL, "JsonVerboseFormatNotSupported")
    if level is MetadataLevel.MINIMAL and version < VERSION_MINIMAL_ETAG:
        level = MetadataLevel.MINIMAL_WITHOUT_ETAG
    return Negotiated(level, None)


def _is_before_odata_3(data_version: bytes) -> bool:
    return _BEFORE_ODATA_3.match(data_version.decode("latin-1")) is not None
