"""The version of a request: which of its parts says it, and whether it is one that is answered.

Knows headers and parameters, nothing of what a version changes.
"""

from __future__ import annotations

from tablestone.model.errors import StorageError
from tablestone.model.service_properties import ServiceProperties
from tablestone.wire.address import Parameters
from tablestone.wire.messages import RawRequest
from tablestone.wire.versions import VERSION_LATEST, VERSIONS, ServedVersions


def version_of(
    request: RawRequest,
    parameters: Parameters,
    properties: ServiceProperties | None,
    versions: ServedVersions,
) -> str:
    """The version of the request: its own, else the account's default, else the latest (wire 10.2, auth 11).

    If the URL has a signature, `api-version` decides, and a header beside it is no error. The result is always a known
    version: the one whose rules hold.
    """
    header = request.headers.get(b"x-ms-version")
    if header is None or ("api-version" in parameters and _is_signed_in_url(request, parameters)):
        default = None if properties is None else properties.default_version
        version = parameters.get("api-version") or parameters.get("sv") or default or VERSION_LATEST
    else:
        if "api-version" in parameters:
            raise StorageError("MultipleVersionsSpecified")
        version = header.decode("latin-1")
    if version in VERSIONS:
        return version
    known = versions.rules_for(version.strip())  # white space is no part of a value (RFC 9110, 5.5)
    if known is None:
        raise StorageError("InvalidHeaderValue")
    return known


def _is_signed_in_url(request: RawRequest, parameters: Parameters) -> bool:
    return "sig" in parameters and b"authorization" not in request.headers
