"""The explorer's ASGI application: its routes, a mount for each account, and its error pages.

Pages are synchronous functions, so each runs in a thread. Changes are posted; a read-only explorer refuses them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from tablestone.clock import system_clock
from tablestone.explorer import (
    changes,
    entity_edit,
    grid,
    heat,
    import_export,
    query_bar,
    selection,
    service_settings,
    signatures,
    tables,
    upkeep,
)
from tablestone.explorer.account import ExploredAccount, ExplorerSettings
from tablestone.explorer.page_guard import PageGuard
from tablestone.explorer.page_templates import (
    ASSETS,
    ASSETS_PATH,
    PostedForm,
    account_of,
    path_of_account,
    problem_page,
)
from tablestone.extras import needs
from tablestone.tools.connection import Connection, Scheme
from tablestone.tools.errors import ServiceError, TransferFailed, TransferRefused, Unreachable

READ_ONLY: Final = "The explorer is read-only: it changes nothing."
FORM_FIELDS_MAX: Final = 8000
"""Fields of a form: an entity of 252 properties has three for each; a selection has one for each entity."""
FORM_PART_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of a field as it is sent. A whole entity may be one: 2 MiB in UTF-16, of which a character takes nine here."""

Show = Callable[[Request], Response]
Post = Callable[[Request, PostedForm], Response]

SHOWN: Final[Mapping[str, Show]] = {
    "/": tables.tables,
    "/tables/{table}/size": tables.size,
    "/tables/{table}": grid.table,
    "/tables/{table}/build": grid.build,
    "/tables/{table}/rows": grid.rows,
    "/tables/{table}/complete": query_bar.complete,
    "/tables/{table}/forget": query_bar.ask_forget,
    "/tables/{table}/entity": entity_edit.entity,
    "/tables/{table}/export": import_export.ask_export,
    "/tables/{table}/download": import_export.download,
    "/tables/{table}/policies": service_settings.policies,
    "/tables/{table}/changes": changes.changes,
    "/tables/{table}/changes/wait": changes.wait,
    "/tables/{table}/indexes": upkeep.shown,
    "/service": service_settings.service,
    "/signature": signatures.signature,
    "/heat": heat.heat,
    "/tables/{table}/heat": heat.heat,
}
POSTED: Final[Mapping[str, Post]] = {
    "/tables/{table}/save": grid.save,
    "/tables/{table}/forget": query_bar.forget,
    "/tables/{table}/copy": selection.copy,
    "/tables/{table}/entity/view": entity_edit.view,
    "/signature/explain": signatures.explain,
}
"""Posted pages that change no data: `--read-only` allows them."""
CHANGE_FORMS: Final[Mapping[str, Show]] = {
    "/tables/{table}/delete": tables.ask_delete,
    "/tables/{table}/new": entity_edit.new,
    "/tables/{table}/entity/delete": entity_edit.ask_delete,
    "/tables/{table}/changes/version": changes.version,
    "/tables/{table}/import": import_export.import_form,
    "/import": import_export.import_form,
    "/tables/{table}/indexes/create": upkeep.ask_create,
    "/tables/{table}/indexes/drop": upkeep.ask_drop,
    "/tables/{table}/expiry": upkeep.ask_remove,
}
"""Forms of changes: a read-only explorer does not show them."""
CHANGES: Final[Mapping[str, Post]] = {
    "/tables": tables.create,
    "/tables/{table}/delete": tables.delete,
    "/tables/{table}/entity": entity_edit.save,
    "/tables/{table}/new": entity_edit.insert,
    "/tables/{table}/entity/delete": entity_edit.delete,
    "/tables/{table}/selected": selection.ask_selected,
    "/tables/{table}/selected/delete": selection.delete_selected,
    "/tables/{table}/import": import_export.import_file,
    "/import": import_export.import_file,
    "/sample": import_export.load_sample,
    "/tables/{table}/policies": service_settings.save_policies,
    "/tables/{table}/indexes/create": upkeep.create_index,
    "/tables/{table}/indexes/drop": upkeep.drop_index,
    "/tables/{table}/expiry/count": upkeep.count,
    "/tables/{table}/expiry": upkeep.change_expiry,
    "/service": service_settings.save_service,
    "/signature": signatures.make,  # a signature can allow changes
}


def create_explorer(accounts: Sequence[ExplorerSettings], token: str) -> ASGIApp:
    """The explorer of one account or several. It answers only requests with the token, to an address or to localhost.

    With several accounts, the pages of each are below `/account/NAME/`. All other paths belong to the first account.
    """
    names = [each.connection.account for each in accounts]
    applications = [_application(each, names) for each in accounts]
    if len(names) == 1:
        return PageGuard(applications[0], token)

    def first_page(request: Request) -> Response:
        name = request.path_params.get("name", names[0])
        return RedirectResponse(path_of_account(request.scope.get("root_path", ""), name))

    switch = Router(
        [
            Route("/", first_page),
            Route("/account/{name}", first_page),
            *(
                Mount(f"/account/{name}", each)
                for name, each in zip(names, applications, strict=True)
            ),
            Mount("/", applications[0]),
        ]
    )
    return PageGuard(switch, token)


def _application(settings: ExplorerSettings, names: Sequence[str]) -> Starlette:
    """The pages of one account. `names` are all accounts of the explorer."""
    writes = not settings.read_only
    application = Starlette(
        routes=[
            *(Route(path, show) for path, show in SHOWN.items()),
            *(Route(path, show if writes else _read_only) for path, show in CHANGE_FORMS.items()),
            *(Route(path, _posted(post), methods=["POST"]) for path, post in POSTED.items()),
            *(
                Route(path, _posted(change) if writes else _read_only, methods=["POST"])
                for path, change in CHANGES.items()
            ),
            Mount(ASSETS_PATH, StaticFiles(directory=ASSETS)),
        ],
        exception_handlers=_ERROR_PAGES,
    )
    application.state.account = ExploredAccount(settings)
    application.state.accounts = names
    return application


def _posted(post: Post) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        limits = {"max_fields": FORM_FIELDS_MAX, "max_part_size": FORM_PART_BYTES_MAX}
        async with request.form(**limits) as form:
            return await run_in_threadpool(post, request, PostedForm(form))

    return answer


def _read_only(request: Request) -> Response:
    return problem_page(request, READ_ONLY, 403)


def _failure(request: Request, error: Exception) -> Response:
    """The page for wrong input, or a failure of the endpoint: its own 4xx status, else 502."""
    connection = account_of(request).settings.connection
    if isinstance(error, TransferRefused):
        return problem_page(request, error, 400)
    if isinstance(error, Unreachable):
        return problem_page(request, f"{connection.url} {error.verb}: {error}", 502)
    answer = error if isinstance(error, ServiceError) else error.__cause__
    sentence = f"{connection.url} answers {error}" if answer is error else str(error)
    if connection.url not in sentence:
        sentence = f"{connection.url}: {sentence}"
    status = 502
    if isinstance(answer, ServiceError):
        sentence += _expired(connection, answer)
        if 400 <= answer.status < 500:
            status = answer.status
    return problem_page(request, sentence, status)


def _expired(connection: Connection, error: ServiceError) -> str:
    """The sentence to add to an authentication error if the connection's signature has expired; else empty."""
    if connection.scheme is not Scheme.SHARED_ACCESS_SIGNATURE or error.status not in (401, 403):
        return ""
    end = signatures.expired_at(connection.secret or "", system_clock())
    return "" if end is None else f" The shared access signature has expired: it ended at {end}."


def _missing_package(request: Request, error: Exception) -> Response:
    assert isinstance(error, ModuleNotFoundError)
    return problem_page(request, f"{needs('This file', str(error.name), 'tools')}.", 501)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(request.scope.get("endpoint"), StaticFiles):
        # These paths need no token, so their answers do not show the account.
        return PlainTextResponse("There is no such file.", error.status_code)
    words = {404: "There is no such page.", 405: "This page cannot be used in this way."}
    sentence = words.get(error.status_code, error.detail)
    return problem_page(request, sentence, error.status_code)


_ERROR_PAGES: Final[Mapping[Any, Any]] = {
    **dict.fromkeys((ServiceError, Unreachable, TransferFailed, TransferRefused), _failure),
    ModuleNotFoundError: _missing_package,
    HTTPException: _http_error,
    Exception: lambda request, _error: problem_page(
        request, "The explorer failed; its log says why.", 500
    ),
}
