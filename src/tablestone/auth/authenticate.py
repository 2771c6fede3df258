"""Picks the scheme a request authenticates with, has it checked, and says who asks (auth 11, step 3 on).

The only door to authentication. SAS and bearer tokens are refused by name: nothing that is not checked gets in.
"""

from __future__ import annotations

from tablestone.auth.accounts import Account
from tablestone.auth.callers import OWNER, Caller
from tablestone.auth.shared_key import SCHEMES, require_shared_key
from tablestone.errors import CHALLENGE_TEXT, StorageError
from tablestone.wire.address import Parameters
from tablestone.wire.messages import RawRequest

_VERSION_OF_CHALLENGE = "2020-12-06"
"""From here on a request without credentials is answered 401 (auth 4.2)."""


def authenticate(
    request: RawRequest, account: Account, parameters: Parameters, version: str, now: int
) -> Caller:
    """Who asks; raises the service's error for who does not get in. `now` is in ticks."""
    authorization = request.headers.get(b"authorization")
    if authorization is None:
        raise _no_credentials(parameters, version)
    scheme, _, credentials = authorization.partition(b" ")
    scheme = scheme.lower()
    if scheme in SCHEMES:
        comp = parameters.get("comp") if parameters else None
        raw_comp = None if comp is None else comp.encode("utf-8")
        require_shared_key(request, account, scheme, credentials.strip(), raw_comp, now)
        return OWNER
    if scheme == b"bearer":
        if version >= _VERSION_OF_CHALLENGE:
            raise StorageError("InvalidAuthenticationInfo", CHALLENGE_TEXT, status=401)
        raise StorageError("AuthenticationFailed")
    raise StorageError("InvalidAuthenticationInfo")


def _no_credentials(parameters: Parameters, version: str) -> StorageError:
    if "sig" in parameters:
        return StorageError("AuthenticationFailed")
    if version >= _VERSION_OF_CHALLENGE:
        return StorageError("NoAuthenticationInformation")
    return StorageError("ResourceNotFound")
