"""The guard before every page of the explorer: which requests are answered, and with which headers.

A request needs the token, a host name that no other site can take over, and for a change the page's own origin. The
policy of every answer lets the browser load and send nothing elsewhere, and run no script that is part of a page.
Knows HTTP; knows no page and no table.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, MutableMapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tablestone.dns_rebinding import cannot_be_rebound

TOKEN_PARAMETER: Final = "token"  # noqa: S105 - the name of a parameter
ASSETS_PATH: Final = "/assets"
"""The looks and the script of the pages: everybody may have them, so the page of a refusal has its looks."""
TOKEN_BYTES: Final = 24
READS: Final = ("GET", "HEAD")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # With no-referrer the browser would send `Origin: null` with the forms of the page.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
UNINVITED: Final = (
    "This page needs the token in the address that the explorer printed when it started."
)

RefusalPage = Callable[[Scope, str, int], Response]


class PageGuard:
    """Answers requests by `application` if they may pass. `refuse` makes the page that says why one may not."""

    def __init__(
        self, application: ASGIApp, token: str, hosts: frozenset[str], refuse: RefusalPage
    ) -> None:
        self._application = application
        self._token = token
        self._hosts = hosts
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), *HEADERS]
                if not any(name.lower() == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        answer: ASGIApp | None = self._refusal(scope, headers)
        await (answer or self._application)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, headers: MutableMapping[str, str]) -> Response | None:
        """The answer to a request that may not pass; None if it may."""
        host = headers.get("host", "")
        if not cannot_be_rebound(host, self._hosts):
            return self._refuse(
                scope, "The explorer does not answer to this host name: use 127.0.0.1.", 403
            )
        if headers.get("sec-fetch-site") == "cross-site" and not self._opens_page(scope, headers):
            return self._refuse(scope, "The explorer answers no request of another site.", 403)
        parameters = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(parameters).get(TOKEN_PARAMETER)
        if given is not None and scope["method"] in READS:
            if not secrets.compare_digest(given.encode(), self._token.encode()):
                return self._refuse(scope, f"The token is not right. {UNINVITED}", 403)
            return self._entered(scope, host, parameters)
        if scope["path"].startswith(f"{scope.get('root_path', '')}{ASSETS_PATH}/"):
            return None
        if not self._has_cookie(headers, host):
            return self._refuse(scope, UNINVITED, 403)
        if scope["method"] not in READS and not _is_same_origin(headers, host):
            return self._refuse(scope, "Only a page of the explorer itself may ask for this.", 403)
        return None

    def _opens_page(self, scope: Scope, headers: MutableMapping[str, str]) -> bool:
        """Whether a person follows a link: then nothing of the answer reaches the other site."""
        return scope["method"] in READS and headers.get("sec-fetch-mode") == "navigate"

    def _entered(self, scope: Scope, host: str, parameters: list[tuple[str, str]]) -> Response:
        """Keep the token in a cookie and out of the address.

        A page goes on by itself. A redirect would lose the cookie if the link stood on another site (SameSite=Strict).
        """
        rest = urlencode([pair for pair in parameters if pair[0] != TOKEN_PARAMETER])
        root = scope.get("root_path", "")
        target = scope["path"] + (f"?{rest}" if rest else "")
        response = Response(
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Tablestone</title>'
            f'<link rel="icon" href="{_in_attribute(root)}{ASSETS_PATH}/icon.svg">'
            f'<meta http-equiv="refresh" content="0;url={_in_attribute(target)}"><p><a href="{_in_attribute(target)}">'
            "Open the explorer</a>",
            media_type="text/html",
        )
        response.set_cookie(
            _cookie_name(host), self._token, path=root or "/", httponly=True, samesite="strict"
        )
        return response

    def _has_cookie(self, headers: MutableMapping[str, str], host: str) -> bool:
        # Each port of the host may have set cookies, of any form. A parser of all would stop at the first odd one.
        pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
        wanted = _cookie_name(host)
        return any(
            name == wanted and secrets.compare_digest(value.encode(), self._token.encode())
            for name, _, value in pairs
        )


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def _cookie_name(host: str) -> str:
    """The cookies of all ports of a host are sent to each of them: the name has the port."""
    return f"tablestone_explorer_{host.rpartition(':')[2] if ':' in host else 80}".replace("]", "")


def _is_same_origin(headers: MutableMapping[str, str], host: str) -> bool:
    origin = headers.get("origin")
    return origin in (f"http://{host}", f"https://{host}")


def _in_attribute(text: str) -> str:
    for character, entity in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return text
