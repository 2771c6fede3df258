"""Keeps the public keys of token issuers fresh in the background, and checks tokens with them.

A file is read every few seconds, an address every quarter of an hour. A token with an unknown key causes one more read,
but seldom, because any client can send such a token; only its request waits. After a failure, which is logged, the old
keys stay valid for a day. An empty set of keys, or a file that is gone, withdraws the keys at once.
"""

import asyncio
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, Final

import orjson

from tablestone.auth.authenticate import PresentedToken
from tablestone.auth.bearer_tokens import (
    Issuer,
    Keys,
    TokenRefused,
    TokenTrust,
    VerifiedToken,
    own_issuer,
    read_keys,
)
from tablestone.configuration import LOCAL_DOMAIN, TokenRules, TrustedIssuer, is_safe_address
from tablestone.tables.metadata import OWN_KEY, DocumentKind, Documents, Members

log = logging.getLogger(__name__)

FILE_SECONDS: Final = 5.0
"""From one read of a file to the next."""
ADDRESS_SECONDS: Final = 15 * 60.0
"""From one fetch from an address to the next. Issuers publish a key a day before they use it."""
FAILED_SECONDS: Final = 30.0
"""From a failed fetch to the next one."""
ASK_AGAIN_SECONDS: Final = 10.0
"""The shortest time between two fetches because of unknown keys."""
READ_AGAIN_SECONDS: Final = 1.0
"""The same for two reads of a file."""
KEPT_SECONDS_MAX: Final = 24 * 3600.0
"""How long keys stay valid that cannot be fetched again. Not longer: the issuer may have withdrawn them."""
WAIT_SECONDS_MAX: Final = 3.0
"""How long a request with an unknown key waits for the fetch."""
FETCH_SECONDS_MAX: Final = 10.0
DOCUMENT_BYTES_MAX: Final = 1024 * 1024
DISCOVERY: Final = "/.well-known/openid-configuration"


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not is_safe_address(newurl):
            raise ValueError("it leads to an address without https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch(address: str) -> bytes:
    if not is_safe_address(address):
        raise ValueError("it is an address without https")
    handlers: list[Any] = [_SafeRedirects]
    if address.startswith("http:"):
        handlers.append(urllib.request.ProxyHandler({}))  # a proxy is not this machine
    opener = urllib.request.build_opener(*handlers)
    with opener.open(address, timeout=FETCH_SECONDS_MAX) as response:
        document: bytes = response.read(DOCUMENT_BYTES_MAX + 1)
    if len(document) > DOCUMENT_BYTES_MAX:
        raise ValueError("it is too long")
    return document


def _discovered(issuer: str) -> str:
    """The address of an issuer's keys, from its OpenID configuration."""
    document = orjson.loads(_fetch(issuer.rstrip("/") + DISCOVERY))
    if not isinstance(document, dict) or document.get("issuer") != issuer:
        raise ValueError("its OpenID configuration is of another issuer")
    address = document.get("jwks_uri")
    if not isinstance(address, str):
        raise ValueError("its OpenID configuration names no keys")  # noqa: TRY004 - not our mistake
    return address


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        error = error.reason
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


class _Source:
    def __init__(self, issuer: TrustedIssuer) -> None:
        self.issuer = issuer
        self.is_file = issuer.keys_file is not None
        self.keys: Keys = {}
        self.document = b""
        self.asked_at = self.looked_at = self.had_at = float("-inf")
        self.failure: str | None = None
        self.asking: asyncio.Task[bool] | None = None

    def read(self) -> bytes:
        where = self.issuer.keys
        if where is None:
            return _fetch(_discovered(self.issuer.name))
        return Path(where).read_bytes() if self.is_file else _fetch(where)


class IssuerKeys:
    """The configured issuers with their present keys. `seconds` never steps back.

    Without `logs_warnings`, failures are logged at level info: every process has the same, and one of them warns.
    """

    def __init__(
        self,
        issuers: Sequence[TrustedIssuer],
        seconds: Callable[[], float],
        *,
        logs_warnings: bool = True,
    ) -> None:
        self._logs_warnings = logs_warnings
        self._sources = {issuer.name: _Source(issuer) for issuer in issuers}
        self._seconds = seconds
        self.issuers: tuple[Issuer, ...] = self._snapshot()

    async def watch(self) -> None:
        while self._sources:
            for source in self._sources.values():
                self._forget_old(source)
                pause = ADDRESS_SECONDS if source.failure is None else FAILED_SECONDS
                if self._seconds() - source.asked_at >= (FILE_SECONDS if source.is_file else pause):
                    self._ask(source)
            await asyncio.sleep(FILE_SECONDS)

    async def look_again(self, name: str) -> bool:
        """Fetch an issuer's keys again, unless the last fetch is too recent. Returns whether they changed."""
        source = self._sources.get(name)
        if source is None:
            return False
        if source.asking is None:
            soonest = READ_AGAIN_SECONDS if source.is_file else ASK_AGAIN_SECONDS
            if self._seconds() - source.looked_at < soonest:
                return False
            source.looked_at = self._seconds()
        asking = self._ask(source)
        await asyncio.wait({asking}, timeout=WAIT_SECONDS_MAX)
        return asking.done() and asking.result()

    def _ask(self, source: _Source) -> asyncio.Task[bool]:
        if source.asking is None:
            source.asked_at = self._seconds()
            source.asking = asyncio.create_task(self._refresh(source))
        return source.asking

    async def _refresh(self, source: _Source) -> bool:
        """Read the keys again. Returns whether they changed; never raises."""
        name, asked_at = source.issuer.name, source.asked_at
        try:
            document = await asyncio.to_thread(source.read)
            changed = document != source.document
            if changed:
                source.keys = read_keys(document)
                source.document = document
        except (OSError, ValueError, HTTPException) as error:
            if source.is_file and isinstance(error, FileNotFoundError):
                self._withdraw(source)
            self._forget_old(source)
            failure = _reason(error)
            if failure != source.failure:  # logged once, until it changes or ends
                number = len(source.keys)
                stay = f"{number} stay{'s' * (number == 1)}" if number else "none is"
                level = logging.ERROR if self._logs_warnings else logging.INFO
                log.log(level, "the keys of %s cannot be read, %s in use: %s", name, stay, failure)
            source.failure = failure
            return False
        finally:
            source.asking = None
        source.had_at = asked_at
        if source.failure is not None:
            level = logging.WARNING if self._logs_warnings else logging.INFO
            log.log(level, "the keys of %s can be read again", name)
            source.failure = None
        if changed:
            self.issuers = self._snapshot()
            number = len(source.keys)
            log.info("%s has %d %s", name, number, "key" if number == 1 else "keys")
        return changed

    def _forget_old(self, source: _Source) -> None:
        """Withdraw keys that are too old, even while a fetch hangs."""
        if source.keys and self._seconds() - source.had_at >= KEPT_SECONDS_MAX:
            log.error("the keys of %s are too old to be used", source.issuer.name)
            self._withdraw(source)

    def _withdraw(self, source: _Source) -> None:
        source.keys, source.document = {}, b""
        self.issuers = self._snapshot()

    def _snapshot(self) -> tuple[Issuer, ...]:
        return tuple(
            Issuer(source.issuer.name, source.issuer.tenant, source.keys)
            for source in self._sources.values()
        )


class BearerTokens:
    """Checks tokens with the present keys. `seconds` never steps back."""

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

    async def check(self, token: PresentedToken, account: str, now: int) -> VerifiedToken:
        """The content of a token that is valid for this account at `now` (ticks); else raises the service's refusal."""
        trust = await self._current_trust()
        issuer = trust.missing_key_of(token.text)
        if issuer is not None and await self.keys.look_again(issuer):
            trust = await self._current_trust()
        try:
            return trust.check(token.text, account, now)
        except TokenRefused as refused:
            raise token.refusal(f"a bearer token is refused: {refused}") from None

    async def _current_trust(self) -> TokenTrust:
        """The trust in the present keys. It caches verified tokens, so the object stays until a key changes."""
        own = await self._documents.get(DocumentKind.SECRETS, OWN_KEY, self._read_own)
        trusted = self.keys.issuers if own is None else (*self.keys.issuers, own)
        if trusted != self._trusted:
            self._trusted = trusted
            rules = self._rules
            domains = (LOCAL_DOMAIN, *rules.domains)
            self._trust = TokenTrust(trusted, rules.audiences, domains, rules.custom_domains)
        return self._trust

    def _read_own(self, members: Members) -> Issuer:
        """The issuer in a document: the same object until it changes, so that `TokenTrust` stays."""
        if self._own is None or self._own[0] != members:
            self._own = (members, own_issuer(members))
        return self._own[1]
