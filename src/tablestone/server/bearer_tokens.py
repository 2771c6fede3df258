"""Bearer tokens at the server's door: brings the token together with the issuers' keys and the server's own.

What makes a token believed stands in `auth/bearer.py`; where the issuers' keys come from in `token_keys`.
"""

from __future__ import annotations

from collections.abc import Callable

from tablestone.auth.authenticate import PresentedToken
from tablestone.auth.bearer import Issuer, Token, TokenRefused, TokenTrust
from tablestone.auth.token_issuer import own_issuer
from tablestone.server.configuration import LOCAL_DOMAIN, TokenRules
from tablestone.server.identities import OWN_KEY
from tablestone.server.token_keys import IssuerKeys
from tablestone.tables.documents import DocumentKind, Documents, Members


class BearerTokens:
    """Says what a token is worth now. `seconds` never steps back."""

    def __init__(
        self,
        documents: Documents,
        rules: TokenRules,
        seconds: Callable[[], float],
        *,
        tells: bool = True,
    ) -> None:
        self._documents = documents
        self._rules = rules
        self.keys = IssuerKeys(rules.issuers, seconds, tells=tells)
        self._own: tuple[Members, Issuer] | None = None
        self._trust = TokenTrust(())
        self._trusted: tuple[Issuer, ...] = ()

    async def check(self, token: PresentedToken, account: str, now: int) -> Token:
        """What the token says if it is believed for this account, `now` in ticks; else raises the refusal."""
        trust = await self._current_trust()
        issuer = trust.missing_key_of(token.text)
        if issuer is not None and await self.keys.look_again(issuer):
            trust = await self._current_trust()
        try:
            return trust.check(token.text, account, now)
        except TokenRefused as refused:
            raise token.refusal(f"a bearer token is refused: {refused}") from None

    async def _current_trust(self) -> TokenTrust:
        """Made anew only when a key has changed, because it remembers the tokens it has checked."""
        own = await self._documents.get(DocumentKind.SECRETS, OWN_KEY, self._read_own)
        trusted = self.keys.issuers if own is None else (*self.keys.issuers, own)
        if trusted != self._trusted:
            self._trusted = trusted
            rules = self._rules
            domains = (LOCAL_DOMAIN, *rules.domains)
            self._trust = TokenTrust(trusted, rules.audiences, domains, rules.custom_domains)
        return self._trust

    def _read_own(self, members: Members) -> Issuer:
        """The same issuer for the same key: the document is read again whenever any other has changed."""
        if self._own is None or self._own[0] != members:
            self._own = (members, own_issuer(members))
        return self._own[1]
