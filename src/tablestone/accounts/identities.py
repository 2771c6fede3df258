"""Who sends a request without an account key: holders of tokens, their roles, user delegation keys.

Documents come from the cache only while it is valid, so a change of roles acts on the very next request in every
process. `auth/bearer_tokens.py` is loaded only for the first token, or for a configured issuer.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tablestone.auth.authenticate import PresentedToken
from tablestone.auth.permissions import Caller
from tablestone.auth.roles import NO_ASSIGNMENTS, Assignments, RoleHolder
from tablestone.auth.user_delegation_key import SECRET_LENGTH, issue_key
from tablestone.configuration import TokenRules
from tablestone.model.errors import StorageError
from tablestone.model.operations import GetUserDelegationKey, UserDelegationKey
from tablestone.tables.metadata import DELEGATION, DocumentKind, Documents, read_secret

if TYPE_CHECKING:
    from tablestone.accounts.issuer_keys import BearerTokens


@dataclass
class Identities:
    """Finds the callers that need stored data. `seconds` never steps back; `logs_warnings` of keys it cannot fetch."""

    documents: Documents
    rules: TokenRules
    seconds: Callable[[], float]
    _: KW_ONLY
    logs_warnings: bool = True

    def __post_init__(self) -> None:
        self._tokens: BearerTokens | None = None
        # In the exact form that SDKs read (auth 4.2).
        authorize = f"{self.rules.authority}/{self.rules.tenant}/oauth2/authorize"
        self.challenge = (
            b"WWW-Authenticate",
            f"Bearer authorization_uri={authorize} resource_id=https://storage.azure.com".encode(),
        )

    async def watch(self) -> None:
        """Keep the keys of configured issuers fresh until cancelled."""
        if self.rules.issuers:
            await self._bearer_tokens().keys.watch()

    async def caller(self, token: PresentedToken, account: str, now: int) -> RoleHolder:
        """The holder of a token, with the present roles in this account; raises the service's refusal."""
        checked = await self._bearer_tokens().check(token, account, now)
        assigned = (await self.assignments(account)).of(checked.principals)
        tenant = checked.tenant_id or self.rules.tenant
        return RoleHolder(checked.object_id, tenant, checked.claimed, assigned)

    async def assignments(self, account: str) -> Assignments:
        found = await self.documents.get(DocumentKind.ROLES, account, Assignments.read)
        return NO_ASSIGNMENTS if found is None else found

    async def delegation_secret(self) -> bytes | None:
        """The secret of user delegation keys; None before the first key."""
        return await self.documents.get(DocumentKind.SECRETS, DELEGATION, read_secret)

    async def user_delegation_key(
        self, identity: str, caller: Caller, asked: GetUserDelegationKey, version: str, now: int
    ) -> UserDelegationKey:
        """A user delegation key for the holder of a token: other callers have no identity."""
        if not isinstance(caller, RoleHolder):
            reason = "a user delegation key without a token"
            raise StorageError("AuthenticationFailed", reason=reason)
        secret = await self.delegation_secret()
        if secret is None:  # this is the first key
            text = base64.b64encode(secrets.token_bytes(SECRET_LENGTH)).decode("ascii")
            await self.documents.change(
                DocumentKind.SECRETS, DELEGATION, lambda members: members or {"secret": text}
            )
            secret = await self.delegation_secret()
            assert secret is not None
        return issue_key(secret, identity, caller, asked, version, now)

    def _bearer_tokens(self) -> BearerTokens:
        if self._tokens is None:
            # Cryptography takes a tenth of a second to load, and most servers never see a token.
            from tablestone.accounts.issuer_keys import BearerTokens  # noqa: PLC0415

            self._tokens = BearerTokens(
                self.documents, self.rules, self.seconds, logs_warnings=self.logs_warnings
            )
        return self._tokens
