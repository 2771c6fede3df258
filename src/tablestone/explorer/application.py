"""The ASGI application of the explorer: its routes, the guard before them, and errors told in words.

A page is a function that waits, so it runs in a thread. A page that changes something is posted, and is refused if the
explorer only reads. Knows the pages; knows no table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from tablestone.clock import system_clock
from tablestone.explorer import (
    entity_edit,
    grid,
    heat,
    import_export,
    query_bar,
    selection,
    service_settings,
    signatures,
    tables,
)
from tablestone.explorer.account import ExploredAccount, ExplorerSettings
from tablestone.explorer.account_switch import AccountSwitch
from tablestone.explorer.page_guard import ASSETS_PATH, READS, TOKEN_PARAMETER, PageGuard
from tablestone.explorer.page_templates import (
    ASSETS,
    FORM_FIELDS_MAX,
    FORM_PART_BYTES_MAX,
    PostedForm,
    account_of,
    bare_page,
    page,
)
from tablestone.explorer.signatures import expired_at
from tablestone.tools.connection import Connection, Scheme
from tablestone.tools.errors import ServiceError, TransferFailed, TransferRefused, Unreachable

LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1"))
READ_ONLY: Final = "The explorer is read-only: it changes nothing."

Show = Callable[[Request], Response]
Change = Callable[[Request, PostedForm], Response]

SHOWN: Final[Mapping[str, Show]] = {
    **tables.SHOWN,
    **grid.SHOWN,
    **query_bar.SHOWN,
    **entity_edit.SHOWN,
    **import_export.SHOWN,
    **heat.SHOWN,
    **service_settings.SHOWN,
    **signatures.SHOWN,
}
POSTED: Final[Mapping[str, Change]] = {
    **query_bar.POSTED,
    **selection.POSTED,
    **signatures.POSTED,
}
"""Pages that are posted and change no data: `--read-only` allows them."""
CHANGE_FORMS: Final[Mapping[str, Show]] = {
    **tables.CHANGE_FORMS,
    **entity_edit.CHANGE_FORMS,
    **import_export.CHANGE_FORMS,
}
"""Pages with a form that could only be refused if the explorer is read-only."""
CHANGES: Final[Mapping[str, Change]] = {
    **tables.CHANGES,
    **entity_edit.CHANGES,
    **selection.CHANGES,
    **import_export.CHANGES,
    **service_settings.CHANGES,
    **signatures.CHANGES,
}


def create_explorer(
    settings: ExplorerSettings, token: str, hosts: frozenset[str] = LOOPBACK_NAMES
) -> ASGIApp:
    """The explorer of one account, which answers requests that have the token and come to one of these hosts."""
    return create_explorer_of_accounts([settings], token, hosts)


def create_explorer_of_accounts(
    accounts: Sequence[ExplorerSettings], token: str, hosts: frozenset[str] = LOOPBACK_NAMES
) -> ASGIApp:
    """The same of one account or several, which its pages switch between; the first one is shown first."""
    names = tuple(each.connection.account for each in accounts)
    made = {name: _application(each, names) for name, each in zip(names, accounts, strict=True)}
    shown = AccountSwitch(made) if len(made) > 1 else made[names[0]]
    return PageGuard(shown, token, hosts, _refused)


def _application(settings: ExplorerSettings, names: tuple[str, ...]) -> Starlette:
    """The pages of one account; `names` are the accounts of the whole explorer."""
    routes: list[Route | Mount] = [
        Route(path, _shown(show, changes=changes), methods=["GET"])
        for table, changes in ((SHOWN, False), (CHANGE_FORMS, True))
        for path, show in table.items()
    ]
    routes += [
        Route(path, _posted(change, changes=changes), methods=["POST"])
        for posted, changes in ((POSTED, False), (CHANGES, True))
        for path, change in posted.items()
    ]
    routes.append(Mount(ASSETS_PATH, StaticFiles(directory=ASSETS)))
    application = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _http_error, Exception: _bug} | _TOLD,
    )
    application.state.account = ExploredAccount(settings)
    application.state.accounts = names
    return application


def _shown(show: Show, *, changes: bool) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        if changes and account_of(request).settings.read_only:
            return _problem(request, READ_ONLY, 403)
        return await run_in_threadpool(show, request)

    return answer


def _posted(change: Change, *, changes: bool) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        if changes and account_of(request).settings.read_only:
            return _problem(request, READ_ONLY, 403)
        form: FormData = await request.form(
            max_fields=FORM_FIELDS_MAX, max_part_size=FORM_PART_BYTES_MAX
        )
        try:
            return await run_in_threadpool(change, request, PostedForm(form))
        finally:
            await form.close()

    return answer


def _refused(scope: Scope, sentence: str, status: int) -> Response:
    """The page that asks for the token; the page that was asked for comes after it."""
    root = scope.get("root_path", "")
    asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    kept = [pair for pair in asked if pair[0] != TOKEN_PARAMETER]
    is_read = scope["method"] in READS
    path, parameters = (scope["path"], kept) if is_read else (f"{root}/", [])
    return HTMLResponse(bare_page(root, sentence, quote(path), parameters), status)


def _problem(request: Request, sentence: str, status: int) -> Response:
    return page(request, "problem.html", sentence=sentence, status=status)


def _told(request: Request, error: Exception) -> Response:
    """A failure of the endpoint, or a wrong input, as a sentence on a page that can be used further."""
    connection = account_of(request).settings.connection
    url = connection.url
    if isinstance(error, ServiceError):
        return _problem(
            request, f"{url} answers {error}{_expired(connection, error)}", _status_of(error)
        )
    if isinstance(error, Unreachable):
        return _problem(request, f"{url} {error.told}: {error}", 502)
    if isinstance(error, TransferRefused):
        return _problem(request, str(error), 400)
    sentence = str(error)
    status = 502
    if isinstance(error.__cause__, ServiceError):
        status = _status_of(error.__cause__)
        sentence += _expired(connection, error.__cause__)
    return _problem(request, sentence if url in sentence else f"{url}: {sentence}", status)


def _expired(connection: Connection, error: ServiceError) -> str:
    """A sentence behind an error of authentication, if the signature of the connection has expired."""
    if connection.scheme is not Scheme.SHARED_ACCESS_SIGNATURE or error.status not in (401, 403):
        return ""
    end = expired_at(connection.secret or "", system_clock())
    return "" if end is None else f" The shared access signature has expired: it ended at {end}."


def _status_of(error: ServiceError) -> int:
    """The status of a page that tells an error of the endpoint: the same if the request was wrong."""
    return error.status if 400 <= error.status < 500 else 502


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    root = request.scope.get("app_root_path", request.scope.get("root_path", ""))
    if request.scope["path"].startswith(f"{root}{ASSETS_PATH}/"):
        # These paths need no token, so their answers do not show the account.
        return PlainTextResponse("There is no such file.", error.status_code)
    words = {404: "There is no such page.", 405: "This page cannot be used in this way."}
    return _problem(request, words.get(error.status_code, error.detail), error.status_code)


def _bug(request: Request, _error: Exception) -> Response:
    return _problem(request, "The explorer failed; its log says why.", 500)


_TOLD: Final[dict[Any, Any]] = dict.fromkeys(
    (ServiceError, Unreachable, TransferFailed, TransferRefused), _told
)
