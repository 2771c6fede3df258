"""Keeps the public keys of the configured token issuers fresh, while requests are answered.

A file is looked at every few seconds, an address every quarter of an hour and when a token names a key that is not
known yet, which anybody can make a token do: therefore seldom. What cannot be read or fetched is logged and leaves the
old keys in place for a day; an empty set or a file that is gone withdraws them at once. Fetching happens on threads;
nobody waits for it but the request that named a new key.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, Final

import orjson

from tablestone.auth.bearer import Issuer
from tablestone.auth.json_web_keys import Keys, read_keys
from tablestone.server.configuration import TrustedIssuer
from tablestone.server.token_addresses import is_safe_address

log = logging.getLogger(__name__)

FILE_SECONDS: Final = 5.0
"""How often a file is read again."""
ADDRESS_SECONDS: Final = 15 * 60.0
"""How often an address is asked again; issuers publish a key a day before they use it."""
FAILED_SECONDS: Final = 30.0
"""How soon an address is asked again that could not be had."""
ASK_AGAIN_SECONDS: Final = 10.0
"""How soon an unknown key may make us ask an address again, whoever names it."""
READ_AGAIN_SECONDS: Final = 1.0
"""How soon it may make us read a file again."""
KEPT_SECONDS_MAX: Final = 24 * 3600.0
"""How long keys are believed that cannot be had any more: who may withdraw them cannot tell us."""
WAIT_SECONDS_MAX: Final = 3.0
"""How long the request that named an unknown key waits for the answer."""
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
        handlers.append(
            urllib.request.ProxyHandler({})
        )  # what comes through a proxy is not this machine's
    opener = urllib.request.build_opener(*handlers)
    with opener.open(address, timeout=FETCH_SECONDS_MAX) as response:
        document: bytes = response.read(DOCUMENT_BYTES_MAX + 1)
    if len(document) > DOCUMENT_BYTES_MAX:
        raise ValueError("it is too long")
    return document


def _discovered(issuer: str) -> str:
    """Where an issuer's OpenID configuration says its keys are."""
    document = orjson.loads(_fetch(issuer.rstrip("/") + DISCOVERY))
    if not isinstance(document, dict) or document.get("issuer") != issuer:
        raise ValueError("its OpenID configuration is of another issuer")
    address = document.get("jwks_uri")
    if not isinstance(address, str):
        raise ValueError("its OpenID configuration names no keys")  # noqa: TRY004 - not our mistake
    return address


def _reason(error: Exception) -> str:
    """Why keys cannot be had, in words where there are any."""
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        error = error.reason
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


class _Source:
    """One issuer: its keys, and when they were last asked for."""

    def __init__(self, issuer: TrustedIssuer) -> None:
        self.issuer = issuer
        self.is_file = issuer.keys_file is not None
        self.keys: Keys = {}
        self.document = b""
        self.asked_at = self.looked_at = self.had_at = float("-inf")
        self.failure: str | None = None
        self.asking: asyncio.Task[bool] | None = None

    def read(self) -> bytes:
        """The document with the keys; runs on a thread."""
        where = self.issuer.keys
        if where is None:
            return _fetch(_discovered(self.issuer.name))
        return Path(where).read_bytes() if self.is_file else _fetch(where)

    @property
    def seconds(self) -> float:
        """How long its keys are taken as they are."""
        if self.is_file:
            return FILE_SECONDS
        return ADDRESS_SECONDS if self.failure is None else FAILED_SECONDS


class IssuerKeys:
    """The configured issuers with their keys of this moment. `seconds` never steps back.

    One process of several `tells` the operator what fails, as it fails in all of them; the others do at level info.
    """

    def __init__(
        self,
        issuers: Sequence[TrustedIssuer],
        seconds: Callable[[], float],
        *,
        tells: bool = True,
    ) -> None:
        self._tells = tells
        self._sources = {issuer.name: _Source(issuer) for issuer in issuers}
        self._seconds = seconds
        self.issuers: tuple[Issuer, ...] = self._snapshot()

    async def watch(self) -> None:
        """Fetch and fetch again for as long as the server lives."""
        while self._sources:
            for source in self._sources.values():
                self._forget_old(source)
                if self._seconds() - source.asked_at >= source.seconds:
                    self._ask(source)
            await asyncio.sleep(FILE_SECONDS)

    async def look_again(self, name: str) -> bool:
        """Whether an issuer has other keys than before, now that it was asked again, if it is time to ask."""
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
        """Read the keys again; whether they are others than before. Never raises."""
        asked_at = source.asked_at
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
            self._failed(source, error)
            return False
        finally:
            source.asking = None
        source.had_at = asked_at
        if source.failure is not None:
            level = logging.WARNING if self._tells else logging.INFO
            log.log(level, "the keys of %s can be had again", source.issuer.name)
            source.failure = None
        if changed:
            self.issuers = self._snapshot()
            log.info("%s has %d keys", source.issuer.name, len(source.keys))
        return changed

    def _forget_old(self, source: _Source) -> None:
        """Also while a fetch hangs, which is no failure yet."""
        if source.keys and self._seconds() - source.had_at >= KEPT_SECONDS_MAX:
            log.error("the keys of %s are too old to be believed", source.issuer.name)
            self._withdraw(source)

    def _withdraw(self, source: _Source) -> None:
        source.keys, source.document = {}, b""
        self.issuers = self._snapshot()

    def _failed(self, source: _Source, error: Exception) -> None:
        """Told once, until it is another failure or none."""
        failure = _reason(error)
        if failure != source.failure:
            log.log(
                logging.ERROR if self._tells else logging.INFO,
                "the keys of %s cannot be had, %s in use: %s",
                source.issuer.name,
                f"{len(source.keys)} stay" if source.keys else "none is",
                failure,
            )
        source.failure = failure

    def _snapshot(self) -> tuple[Issuer, ...]:
        return tuple(
            Issuer(source.issuer.name, source.issuer.tenant, source.keys)
            for source in self._sources.values()
        )
