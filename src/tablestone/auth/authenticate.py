"""Picks the scheme a request authenticates with, has it checked, and says who asks (auth 11, step 3 on).

The only door to authentication: an Authorization header decides alone, without one a signature in the URL (auth 5.1).
Bearer tokens and what belongs to a user's key are refused by name: nothing that is not checked gets in.
"""

from __future__ import annotations

from tablestone.auth.account_sas import authenticate_account_sas
from tablestone.auth.accounts import Account
from tablestone.auth.callers import OWNER, Caller
from tablestone.auth.sas_parameters import refused
from tablestone.auth.shared_key import SCHEMES, require_shared_key
from tablestone.auth.table_sas import TableSasOfPolicy, authenticate_table_sas
from tablestone.errors import CHALLENGE_TEXT, StorageError
from tablestone.wire.address import Parameters
from tablestone.wire.messages import RawRequest

_VERSION_OF_CHALLENGE = "2020-12-06"
"""From here on a request without credentials is answered 401 (auth 4.2)."""


def authenticate(
    request: RawRequest, account: Account, parameters: Parameters, version: str, now: int
) -> Caller | TableSasOfPolicy:
    """Who asks; raises the service's error for who does not get in. `now` is in ticks.

    A signature that names a stored access policy is a caller once it is given the table's policies.
    """
    authorization = request.headers.get(b"authorization")
    if authorization is None:
        if "sig" in parameters:
            return _authenticate_sas(request, account, parameters, now)
        raise _no_credentials(version)
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


def _authenticate_sas(
    request: RawRequest, account: Account, parameters: Parameters, now: int
) -> Caller | TableSasOfPolicy:
    """The kind is told by parameters that only one kind has (auth 2.1, 3.11)."""
    if "skoid" in parameters:
        raise refused("signatures of users' keys are not served")
    if "ss" in parameters or "srt" in parameters:
        return authenticate_account_sas(request, account, parameters, now)
    return authenticate_table_sas(request, account, parameters, now)


def _no_credentials(version: str) -> StorageError:
    if version >= _VERSION_OF_CHALLENGE:
        return StorageError("NoAuthenticationInformation")
    return StorageError("ResourceNotFound")
