"""Authentication: picks the scheme of a request, checks the credentials and returns the caller (auth 11, from step 3).

There is no other entry to authentication. An Authorization header decides alone; only without one does the signature in
the URL count (auth 5.1).
"""

from typing import Final, NamedTuple

from tablestone.auth.account import Account
from tablestone.auth.permissions import OWNER, Caller
from tablestone.auth.shared_access_signature import (
    TableSasOfPolicy,
    UserDelegationSas,
    authenticate_account_sas,
    authenticate_table_sas,
    parse_user_delegation_sas,
    require_single,
)
from tablestone.auth.shared_key import SCHEMES, require_shared_key
from tablestone.model.errors import CHALLENGE_TEXT, StorageError
from tablestone.wire.address import Parameters
from tablestone.wire.messages import RawRequest
from tablestone.wire.versions import ONLY_KNOWN, VERSION_UNNAMED, ServedVersions

_VERSION_OF_CHALLENGE: Final = "2020-12-06"
"""From this version on, the answer to a request without credentials is 401 (auth 4.2)."""
_VERSION_OF_TOKENS: Final = "2017-11-09"
"""The first version with bearer tokens (auth 4.1)."""


class PresentedToken(NamedTuple):
    """A bearer token that is not verified yet. It came over HTTPS, with a version that has tokens."""

    text: bytes
    version: str

    def refusal(self, reason: str) -> StorageError:
        """The error for a refused token (auth 4.2). `reason` must not contain any part of the token."""
        if self.version >= _VERSION_OF_CHALLENGE:
            return StorageError(
                "InvalidAuthenticationInfo", CHALLENGE_TEXT, status=401, reason=reason
            )
        return StorageError("AuthenticationFailed", reason=reason)


def _not_permitted(kind: str) -> StorageError:
    """Raised before anything of the credentials is checked, so that nobody can try keys while they are off."""
    reason = f"the shared key is off: {kind}"
    return StorageError("KeyBasedAuthenticationNotPermitted", reason=reason, by_rule=True)


def _raw_comp(parameters: Parameters) -> bytes | None:
    comp = parameters.get("comp") if parameters else None
    return None if comp is None else comp.encode("utf-8")


def is_signed_with(
    key: str, request: RawRequest, account: Account, parameters: Parameters, now: int
) -> bool:
    """Whether the request is signed with this key, by SharedKey, as if it were the account's."""
    authorization = request.headers.get(b"authorization", b"")
    scheme, _, credentials = authorization.partition(b" ")
    if scheme != b"SharedKey":
        return False
    signer = Account(account.name, (key,))
    comp = _raw_comp(parameters)
    try:
        require_shared_key(request, signer, scheme.lower(), credentials.strip(), comp, now)
    except StorageError:
        return False
    return True


PendingCaller = TableSasOfPolicy | PresentedToken | UserDelegationSas
"""Credentials that depend on stored policies, keys or roles. The pipeline reads these and completes the caller."""


def authenticate(
    request: RawRequest,
    account: Account,
    parameters: Parameters,
    version: str,
    now: int,
    repeated: frozenset[str] = frozenset(),
    versions: ServedVersions = ONLY_KNOWN,
) -> Caller | PendingCaller:
    """The caller of a request; raises the service's error if authentication fails. `now` is in ticks.

    `repeated` has the parameters that occur twice; those of a signature must not (auth 2.1). `versions` are those that
    a signature may have. A token, a stored access policy and a user delegation SAS give a `PendingCaller`.
    """
    authorization = request.headers.get(b"authorization")
    if authorization is None:
        if "sig" in parameters:
            if not account.shared_key and "skoid" not in parameters:
                is_of_account = "ss" in parameters or "srt" in parameters
                raise _not_permitted("account-sas" if is_of_account else "table-sas")
            require_single(repeated)
            # Each kind has parameters that no other has (auth 2.1, 3.11).
            if "skoid" in parameters:
                return parse_user_delegation_sas(account, parameters, versions)
            if "ss" in parameters or "srt" in parameters:
                return authenticate_account_sas(request, account, parameters, now, versions)
            return authenticate_table_sas(request, account, parameters, now, versions)
        if version == VERSION_UNNAMED:
            raise StorageError("AuthenticationFailed", reason="no credentials and no version")
        is_challenged = version >= _VERSION_OF_CHALLENGE
        raise StorageError("NoAuthenticationInformation" if is_challenged else "ResourceNotFound")
    scheme, _, credentials = authorization.partition(b" ")
    scheme = scheme.lower()
    if scheme in SCHEMES:
        if not account.shared_key:
            raise _not_permitted(SCHEMES[scheme])
        require_shared_key(
            request, account, scheme, credentials.strip(), _raw_comp(parameters), now
        )
        return OWNER
    if scheme == b"bearer":
        token = PresentedToken(credentials.strip(), version)
        if request.scheme != "https":
            raise token.refusal("a bearer token came over plain HTTP")
        if version < _VERSION_OF_TOKENS:
            raise token.refusal("a bearer token came with a version that has no bearer tokens")
        return token
    raise StorageError("InvalidAuthenticationInfo")
