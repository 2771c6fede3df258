"""The guard in front of the explorer: which requests it answers, by token, host, origin and site."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tablestone.explorer.account import ExplorerSettings
from tablestone.explorer.application import CHANGE_FORMS, SHOWN, create_explorer
from tablestone.explorer.page_guard import POLICY
from tablestone.tools.connection import (
    LOCAL_KEY,
    Connection,
    local_connection,
    parse_connection_string,
)

TOKEN = "a-token-of-the-test"
HOST = "127.0.0.1:7777"
ORIGIN = f"http://{HOST}"
COOKIE = f"tablestone_explorer_7777={TOKEN}"
# Nothing listens there; a page that passes the guard says so.
NOWHERE = parse_connection_string(
    f"AccountName=devstoreaccount1;AccountKey={LOCAL_KEY};TableEndpoint=http://127.0.0.1:9/devstoreaccount1"
)
PASSED = 502
"""The status of a page that passes the guard, since its endpoint does not answer."""


def send(
    method: str,
    path: str,
    headers: Mapping[str, str],
    *,
    root: str = "",
    connection: Connection = NOWHERE,
    data: Mapping[str, str] | None = None,
    files: Mapping[str, tuple[str, bytes]] | None = None,
    **settings: Any,
) -> httpx.Response:
    async def ask() -> httpx.Response:
        application: Any = create_explorer([ExplorerSettings(connection, **settings)], TOKEN)
        transport = httpx.ASGITransport(application, root_path=root)
        try:
            async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
                return await client.request(method, path, headers=headers, data=data, files=files)
        finally:
            application._application.state.account.endpoint.__exit__()

    return asyncio.run(ask())


CROSS = {"cookie": COOKIE, "sec-fetch-site": "cross-site"}
EVIL = "http://evil.example"
ROWS: list[tuple[str, str, str, dict[str, str], int]] = [
    # what, method, path, headers, status
    ("with the cookie", "GET", "/", {"cookie": COOKIE}, PASSED),
    ("without a cookie", "GET", "/", {}, 403),
    ("with another cookie", "GET", "/", {"cookie": COOKIE + "x"}, 403),
    # Other ports of the host set cookies too, and not all of them follow the rules.
    ("beside a cookie with JSON", "GET", "/", {"cookie": 'j={"a":1}; ' + COOKIE}, PASSED),
    ("beside a cookie with brackets", "GET", "/", {"cookie": "a[b]=1; " + COOKIE}, PASSED),
    ("beside a cookie with a space", "GET", "/", {"cookie": "x=1 2; " + COOKIE}, PASSED),
    ("beside a cookie without a value", "GET", "/", {"cookie": "flag; " + COOKIE}, PASSED),
    ("with a broken cookie", "GET", "/", {"cookie": "a=b=c;;=,\x7f"}, 403),
    ("with the cookie of another port", "GET", "/", {"cookie": f"tablestone_explorer_1={TOKEN}"}, 403),
    ("with the token", "GET", f"/?token={TOKEN}", {}, 200),
    ("with a wrong token", "GET", "/?token=x", {}, 403),
    ("with a wrong token that is no ASCII", "GET", "/?token=%C3%A9", {}, 403),
    ("a host name of another site (DNS rebinding)", "GET", "/", {"cookie": COOKIE, "host": "evil.example:7777"}, 403),
    ("a host that is no host", "GET", "/", {"cookie": COOKIE, "host": "[::1"}, 403),
    ("localhost", "GET", "/", {"cookie": COOKIE, "host": "localhost:7777"}, PASSED),
    ("IPv6", "GET", "/", {"cookie": COOKIE, "host": "[::1]:7777"}, PASSED),
    ("a picture on another site", "GET", "/", CROSS | {"sec-fetch-mode": "no-cors"}, 403),
    ("a link on another site", "GET", "/", CROSS | {"sec-fetch-mode": "navigate"}, PASSED),
    ("a form of the page", "POST", "/tables", {"cookie": COOKIE, "origin": ORIGIN}, 400),
    ("a form without an origin", "POST", "/tables", {"cookie": COOKIE}, 403),
    ("a form of another origin", "POST", "/tables", {"cookie": COOKIE, "origin": "http://evil.example"}, 403),
    ("a form of another port", "POST", "/tables", {"cookie": COOKIE, "origin": "http://127.0.0.1:1"}, 403),
    ("a form of a page without an origin", "POST", "/tables", {"cookie": COOKIE, "origin": "null"}, 403),
    ("a form with the token in its address", "POST", f"/tables?token={TOKEN}", {"origin": ORIGIN}, 403),
    ("the looks without a cookie", "GET", "/assets/explorer.css", {}, 200),
    ("a path out of the looks", "GET", "/assets/%2e%2e/page_guard.py", {}, 404),
    ("no such page", "GET", "/nowhere", {"cookie": COOKIE}, 404),
    ("a page that is only shown", "POST", "/tables/Weather/rows", {"cookie": COOKIE, "origin": ORIGIN}, 405),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_which_requests_are_answered(
    method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = send(method, path, headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_policy_allows_no_inline_code_and_no_other_host() -> None:
    assert "default-src 'none'" in POLICY
    assert not re.search(r"unsafe|http|\*|data:", POLICY)


def test_the_token_leaves_the_address() -> None:
    """The page that takes the token stores it in an HttpOnly cookie and redirects."""
    answer = send("GET", f"/tables/Weather?filter=a+eq+%27%3Cb%3E%27&token={TOKEN}", {})
    assert answer.headers["set-cookie"] == f"{COOKIE}; HttpOnly; Path=/; SameSite=strict"
    assert 'content="0;url=/tables/Weather?filter=a+eq+%27%3Cb%3E%27"' in answer.text
    assert TOKEN not in answer.text


def test_under_a_prefix() -> None:
    """As on the admin address of a server."""
    answer = send("GET", f"/explorer/?token={TOKEN}", {}, root="/explorer")
    assert answer.headers["set-cookie"] == f"{COOKIE}; HttpOnly; Path=/explorer; SameSite=strict"
    shown = send("GET", "/explorer/", {"cookie": COOKIE}, root="/explorer")
    assert shown.status_code == PASSED
    assert 'href="/explorer/assets/explorer.css"' in shown.text


def changing_paths() -> list[str]:
    from tablestone.explorer.application import CHANGES  # noqa: PLC0415 - beside its only use

    return [path.replace("{table}", "Weather") for path in CHANGES]


@pytest.mark.parametrize("path", changing_paths())
def test_read_only_refuses_every_change(path: str) -> None:
    answer = send("POST", path, {"cookie": COOKIE, "origin": ORIGIN}, read_only=True)
    assert answer.status_code == 403
    assert "read-only" in answer.text


@pytest.mark.parametrize("path", [*SHOWN, *CHANGE_FORMS])
def test_no_page_has_a_key_or_the_token(path: str, tmp_path: Path) -> None:
    answer = send(
        "GET", path.replace("{table}", "Weather"), {"cookie": COOKIE}, saved_queries=tmp_path / "queries.json"
    )  # fmt: skip
    assert LOCAL_KEY not in answer.text
    assert TOKEN not in answer.text


def test_the_connection_hides_its_key() -> None:
    assert LOCAL_KEY not in repr(ExplorerSettings(local_connection()))


def test_a_file_that_is_not_there_shows_no_account() -> None:
    """The files need no token."""
    answer = send("GET", "/assets/none.css", {})
    assert answer.status_code == 404
    assert "devstoreaccount1" not in answer.text


def test_the_page_that_was_asked_for_comes_after_the_token() -> None:
    """Somebody follows a link to a query: the form for the token leads on to it, with its parameters as text."""
    answer = send("GET", "/tables/T?filter=a eq '<b>'&top=5&token=guessed", {}, root="")
    assert answer.status_code == 403
    assert 'action="/tables/T"' in answer.text
    assert '<input type="hidden" name="filter" value="a eq &#39;&lt;b&gt;&#39;">' in answer.text
    assert '<input type="hidden" name="top" value="5">' in answer.text
    assert "guessed" not in answer.text
