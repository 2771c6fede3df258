"""Several accounts in one explorer: the part of a path that names an account, and the application that shows it.

`/account/NAME/…` is of that account, and every other path is of the first one, so an address of a query names its
account. Knows paths; knows no page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

ACCOUNT_PATH: Final = "/account"
EXPLORER_ROOT: Final = "explorer_root"
"""The member of a scope with the path of the whole explorer; `root_path` is the one of the account."""


class AccountSwitch:
    """Answers each request by the application of its account. `accounts` has at least two, the first one first."""

    def __init__(self, accounts: Mapping[str, ASGIApp]) -> None:
        self._accounts = dict(accounts)
        self._first = next(iter(self._accounts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = scope.get("root_path", "")
        rest = scope["path"].removeprefix(root)
        name = self._first
        inner = {**scope, EXPLORER_ROOT: root}
        if rest == "/":
            await RedirectResponse(path_of_account(root, name))(scope, receive, send)
            return
        if rest.startswith(f"{ACCOUNT_PATH}/"):
            name = rest.removeprefix(f"{ACCOUNT_PATH}/").partition("/")[0]
            inner["root_path"] = f"{root}{ACCOUNT_PATH}/{name}"
        # An account that is not known is told by the first one: there is no such page.
        application = self._accounts.get(name)
        if application is None:
            application, inner["root_path"] = self._accounts[self._first], root
        await application(inner, receive, send)


def path_of_account(root: str, name: str) -> str:
    """The path of the first page of an account, in an explorer below `root`."""
    return f"{root}{ACCOUNT_PATH}/{quote(name, safe='')}/"


def paths_of_accounts(request: Request, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """The path and the name of each account, for the page of a request."""
    root = request.scope.get(EXPLORER_ROOT, request.scope.get("root_path", ""))
    return [(path_of_account(root, name), name) for name in names]
