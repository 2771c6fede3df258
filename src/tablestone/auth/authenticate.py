"""Picks the scheme a request authenticates with, has it checked, and says who asks (auth 11, step 3 on).

The only door to authentication: an Authorization header decides alone, without one a signature in the URL (auth 5.1).
Nothing that is not checked gets in.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tablestone.auth.account_sas import authenticate_account_sas
from tablestone.auth.accounts import Account
from tablestone.auth.callers import OWNER, Caller
from tablestone.auth.shared_key import SCHEMES, require_shared_key
from tablestone.auth.table_sas import TableSasOfPolicy, authenticate_table_sas
from tablestone.auth.user_delegation_sas import UserDelegationSas, parse_user_delegation_sas
from tablestone.errors import CHALLENGE_TEXT, StorageError
from tablestone.wire.address import Parameters
from tablestone.wire.messages import RawRequest

_VERSION_OF_CHALLENGE: Final = "2020-12-06"
"""From here on a request without credentials is answered 401 (auth 4.2)."""
_VERSION_OF_TOKENS: Final = "2017-11-09"
"""From here on bearer tokens (auth 4.1)."""


class PresentedToken(NamedTuple):
    """A bearer token that may be looked at; who checks it says who its holder is."""

    text: bytes
    version: str

    def refusal(self, reason: str) -> StorageError:
        """What its sender hears if it is not believed (auth 4.2); `reason` must hold nothing of it."""
        if self.version >= _VERSION_OF_CHALLENGE:
            return StorageError(
                "InvalidAuthenticationInfo", CHALLENGE_TEXT, status=401, reason=reason
            )
        return StorageError("AuthenticationFailed", reason=reason)


Unfinished = TableSasOfPolicy | PresentedToken | UserDelegationSas
"""Who is a caller only together with what is stored at this moment: policies, keys, roles."""


def authenticate(
    request: RawRequest, account: Account, parameters: Parameters, version: str, now: int
) -> Caller | Unfinished:
    """Who asks; raises the service's error for who does not get in. `now` is in ticks.

    Who is not known without what is stored is `Unfinished`: whoever has a token, or a signature by a policy or a user.
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
        return _presented(PresentedToken(credentials.strip(), version), request.scheme)
    raise StorageError("InvalidAuthenticationInfo")


def _authenticate_sas(
    request: RawRequest, account: Account, parameters: Parameters, now: int
) -> Caller | TableSasOfPolicy | UserDelegationSas:
    """The kind is told by parameters that only one kind has (auth 2.1, 3.11)."""
    if "skoid" in parameters:
        return parse_user_delegation_sas(account, parameters)
    if "ss" in parameters or "srt" in parameters:
        return authenticate_account_sas(request, account, parameters, now)
    return authenticate_table_sas(request, account, parameters, now)


def _presented(token: PresentedToken, scheme: str) -> PresentedToken:
    if scheme != "https":
        raise token.refusal("a bearer token came over plain HTTP")
    if token.version < _VERSION_OF_TOKENS:
        raise token.refusal("a bearer token came with a version before there were any")
    return token


def _no_credentials(version: str) -> StorageError:
    if version >= _VERSION_OF_CHALLENGE:
        return StorageError("NoAuthenticationInformation")
    return StorageError("ResourceNotFound")
