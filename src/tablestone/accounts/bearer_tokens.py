"""Checking bearer tokens: supplies `auth/bearer.py` with the issuers' keys and with the server's own key.

`auth/bearer.py` has the rules of a valid token; `issuer_keys.py` gets the issuers' keys.
"""

from __future__ import annotations

from collections.abc import Callable

from tablestone.accounts.issuer_keys import IssuerKeys
from tablestone.auth.authenticate import PresentedToken
from tablestone.auth.bearer import Issuer, Token, TokenRefused, TokenTrust
from tablestone.auth.token_issuer import own_issuer
from tablestone.configuration import LOCAL_DOMAIN, TokenRules
from tablestone.tables.documents import OWN_KEY, DocumentKind, Documents, Members


class BearerTokens:
    """Checks tokens with the current keys. `seconds` never steps back."""

    def __init__(
        self,
        documents: Documents,
        rules: TokenRules,
        seconds: Callable[[], float],
        *,
        logs_warnings: bool = True,
    ) -> None:
        self._documents = documents
        self._rules = rules
        self.keys = IssuerKeys(rules.issuers, seconds, logs_warnings=logs_warnings)
        self._own: tuple[Members, Issuer] | None = None
        self._trust = TokenTrust(())
        self._trusted: tuple[Issuer, ...] = ()

    async def check(self, token: PresentedToken, account: str, now: int) -> Token:
        """The content of a token that is valid for this account, `now` in ticks; else raises the refusal."""
        trust = await self._current_trust()
        issuer = trust.missing_key_of(token.text)
        if issuer is not None and await self.keys.look_again(issuer):
            trust = await self._current_trust()
        try:
            return trust.check(token.text, account, now)
        except TokenRefused as refused:
            raise token.refusal(f"a bearer token is refused: {refused}") from None

    async def _current_trust(self) -> TokenTrust:
        """The rules with the current keys: a new object only if a key has changed, because it caches checked tokens."""
        own = await self._documents.get(DocumentKind.SECRETS, OWN_KEY, self._read_own)
        trusted = self.keys.issuers if own is None else (*self.keys.issuers, own)
        if trusted != self._trusted:
            self._trusted = trusted
            rules = self._rules
            domains = (LOCAL_DOMAIN, *rules.domains)
            self._trust = TokenTrust(trusted, rules.audiences, domains, rules.custom_domains)
        return self._trust

    def _read_own(self, members: Members) -> Issuer:
        """The same issuer object for the same key: any change of a document makes this one be read again."""
        if self._own is None or self._own[0] != members:
            self._own = (members, own_issuer(members))
        return self._own[1]
