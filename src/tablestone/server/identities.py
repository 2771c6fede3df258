"""Who is behind a request that no account key signed: tokens, the roles of their holders, keys that users sign with.

Joins what is configured with what is stored. Everything stored is read from memory while it is true, so that a role
given or taken acts on the very next request in every process. What makes a token believed stands in `auth/bearer.py`,
which is loaded when the first token or a configured issuer asks for it.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tablestone.auth.authenticate import PresentedToken
from tablestone.auth.callers import Caller
from tablestone.auth.roles import NO_ASSIGNMENTS, Assignments, RoleHolder
from tablestone.auth.user_delegation import SECRET_LENGTH, issue_key
from tablestone.errors import StorageError
from tablestone.operations import GetUserDelegationKey, UserDelegationKey
from tablestone.server.configuration import TokenRules
from tablestone.tables.documents import DocumentKind, Documents, Members

if TYPE_CHECKING:
    from tablestone.server.bearer_tokens import BearerTokens

DELEGATION: Final = "user-delegation"
"""The name of the document with the secret that user delegation keys follow from."""
OWN_KEY: Final = "token-key"
"""The name of the document with the server's own key pair, which signs tokens."""


class Identities:
    """Answers who asks, for what `authenticate` cannot tell by itself. `seconds` never steps back.

    `tells`: whether this is the process that tells the operator of issuers whose keys cannot be had.
    """

    def __init__(
        self,
        documents: Documents,
        rules: TokenRules,
        seconds: Callable[[], float],
        *,
        tells: bool = True,
    ) -> None:
        self._tells = tells
        self._documents = documents
        self._rules = rules
        self._seconds = seconds
        self._tokens: BearerTokens | None = None
        self.challenge = _challenge(rules)

    async def watch(self) -> None:
        """Keep the keys of configured issuers fresh for as long as the server lives."""
        if self._rules.issuers:
            await self._bearer_tokens().keys.watch()

    async def caller(self, token: PresentedToken, account: str, now: int) -> RoleHolder:
        """Who holds a token, with the roles of this moment in this account; raises the service's refusal."""
        checked = await self._bearer_tokens().check(token, account, now)
        assigned = (await self.assignments(account)).of(checked.principals)
        tenant = checked.tenant_id or self._rules.tenant
        return RoleHolder(checked.object_id, tenant, checked.claimed, assigned)

    async def assignments(self, account: str) -> Assignments:
        """The roles that are assigned in an account now."""
        found = await self._documents.get(DocumentKind.ROLES, account, Assignments.read)
        return NO_ASSIGNMENTS if found is None else found

    async def delegation_secret(self) -> bytes | None:
        """The secret that user delegation keys follow from; None if none was ever handed out."""
        return await self._documents.get(DocumentKind.SECRETS, DELEGATION, read_secret)

    async def make_delegation_secret(self) -> bytes:
        """The same, made now if there is none."""
        found = await self.delegation_secret()
        if found is not None:
            return found
        fresh = {"secret": base64.b64encode(secrets.token_bytes(SECRET_LENGTH)).decode("ascii")}
        await self._documents.change(
            DocumentKind.SECRETS, DELEGATION, lambda members: members or fresh
        )
        made = await self.delegation_secret()
        assert made is not None
        return made

    async def user_delegation_key(
        self, identity: str, caller: Caller, asked: GetUserDelegationKey, version: str, now: int
    ) -> UserDelegationKey:
        """A key for who came with a token; whoever came with a key or a signature has no name to sign in."""
        if not isinstance(caller, RoleHolder):
            raise StorageError(
                "AuthenticationFailed", reason="a user delegation key without a token"
            )
        secret = await self.make_delegation_secret()
        return issue_key(secret, identity, caller, asked, version, now)

    def _bearer_tokens(self) -> BearerTokens:
        if self._tokens is None:
            # Cryptography takes a tenth of a second to load, and most servers never meet a token.
            from tablestone.server.bearer_tokens import BearerTokens  # noqa: PLC0415

            self._tokens = BearerTokens(
                self._documents, self._rules, self._seconds, tells=self._tells
            )
        return self._tokens


def read_secret(members: Members) -> bytes:
    """The secret that a document has."""
    return base64.b64decode(members["secret"])


def _challenge(rules: TokenRules) -> tuple[str, str]:
    """The header of a 401: where tokens are to be had, to the byte as SDKs read it (auth 4.2)."""
    authorize = f"{rules.authority}/{rules.tenant}/oauth2/authorize"
    return (
        "WWW-Authenticate",
        f"Bearer authorization_uri={authorize} resource_id=https://storage.azure.com",
    )
