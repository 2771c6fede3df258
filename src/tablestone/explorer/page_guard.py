"""The guard before every page, against CSRF and DNS rebinding; and the content security policy.

A request needs the token, a host name that no other site can take over and, if it is posted, the explorer's own origin.
The policy keeps the browser from loading or sending anything elsewhere, and from running inline scripts.
"""

import secrets
from html import escape
from typing import Final
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tablestone.dns_rebinding import cannot_be_rebound
from tablestone.explorer.page_templates import ASSETS_PATH, rendered

TOKEN_PARAMETER: Final = "token"  # noqa: S105 - the name of a parameter
READS: Final = ("GET", "HEAD")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With no-referrer the browser would send `Origin: null` with the forms of the page.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
UNINVITED: Final = (
    "This page needs the token in the address that the explorer printed when it started."
)


class PageGuard:
    """Passes a request to `application` if it has the token and names an address or localhost as its host."""

    def __init__(self, application: ASGIApp, token: str) -> None:
        self._application = application
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        answer: ASGIApp | None = self._refusal(Request(scope))
        await (answer or self._application)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that is refused; None if it may pass."""
        host = request.headers.get("host", "")
        is_read = request.method in READS
        if not cannot_be_rebound(host, ("localhost",)):
            return _refused(
                request, "The explorer does not answer to this host name: use 127.0.0.1."
            )
        if request.headers.get("sec-fetch-site") == "cross-site" and not (
            # A person follows a link; the other site does not see the answer.
            is_read and request.headers.get("sec-fetch-mode") == "navigate"
        ):
            return _refused(request, "The explorer answers no request of another site.")
        given = request.query_params.get(TOKEN_PARAMETER)
        if given is not None and is_read:
            if not secrets.compare_digest(given.encode(), self._token.encode()):
                return _refused(request, f"The token is wrong. {UNINVITED}")
            return self._entered(request, host)
        # The assets show nothing of the account, and the page of a refusal needs them.
        if request.scope["path"].startswith(f"{_root(request)}{ASSETS_PATH}/"):
            return None
        if not self._has_cookie(request, host):
            return _refused(request, UNINVITED)
        own = (f"http://{host}", f"https://{host}")
        if not is_read and request.headers.get("origin") not in own:
            return _refused(request, "Only pages of the explorer may send this request.")
        return None

    def _entered(self, request: Request, host: str) -> Response:
        """Set the cookie and reload: after a link on another site, a redirect would lose it (SameSite=Strict)."""
        root, rest = _root(request), urlencode(_without_token(request))
        target = escape(request.scope["path"] + (f"?{rest}" if rest else ""))
        response = HTMLResponse(
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Tablestone</title>'
            f'<link rel="icon" href="{escape(root)}{ASSETS_PATH}/mark.svg">'
            f'<meta http-equiv="refresh" content="0;url={target}"><p><a href="{target}">Open the explorer</a>'
        )
        response.set_cookie(
            _cookie_name(host), self._token, path=root or "/", httponly=True, samesite="strict"
        )
        return response

    def _has_cookie(self, request: Request, host: str) -> bool:
        # Another explorer may have set a cookie of the same name for another path.
        pairs = (
            pair.strip().partition("=") for pair in request.headers.get("cookie", "").split(";")
        )
        wanted = _cookie_name(host)
        return any(
            name == wanted and secrets.compare_digest(value.encode(), self._token.encode())
            for name, _, value in pairs
        )


def _refused(request: Request, sentence: str) -> Response:
    """The page that asks for the token, and then opens the requested page."""
    root = _root(request)
    path, parameters = quote(request.scope["path"]), _without_token(request)
    if request.method not in READS:
        path, parameters = f"{root}/", []
    values = {"root": root, "sentence": sentence, "path": path, "parameters": parameters}
    return HTMLResponse(rendered("refused.html", **values), 403)


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


def _without_token(request: Request) -> list[tuple[str, str]]:
    return [each for each in request.query_params.multi_items() if each[0] != TOKEN_PARAMETER]


def _cookie_name(host: str) -> str:
    """A name with the port, because browsers send the cookies of a host to all its ports."""
    return f"tablestone_explorer_{host.rpartition(':')[2] if ':' in host else 80}".replace("]", "")
