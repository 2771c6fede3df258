"""The templates of the explorer, and the fields of the forms that it gets.

Jinja escapes every value, so nothing of a table is ever run. A request for a part of a page (`X-Part`) gets the part
alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse

from tablestone import __version__
from tablestone.explorer.account import ExploredAccount
from tablestone.explorer.account_switch import paths_of_accounts

FORM_FIELDS_MAX: Final = 8000
"""Fields of a form: an entity of 252 properties has four for each; a selection has one for each entity."""
FORM_PART_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of a field: a string of 64 KiB is up to 200 KiB of UTF-8, and more with escapes."""


class PostedForm:
    """The fields of a form, each once or several times."""

    def __init__(self, form: FormData) -> None:
        self._form = form

    def text(self, name: str, default: str = "") -> str:
        """The text of a field, or the default if it is absent."""
        value = self._form.get(name, default)
        return value if isinstance(value, str) else default

    def texts(self, name: str) -> list[str]:
        """The texts of all fields of a name, in their order."""
        return [value for value in self._form.getlist(name) if isinstance(value, str)]

    def file(self, name: str) -> UploadFile | None:
        """A file that was chosen, or None."""
        value = self._form.get(name)
        return value if isinstance(value, UploadFile) and value.filename else None


PART_HEADER: Final = "x-part"
CHANGED_HEADER: Final = "X-Changed"
"""Tells the page that the entities of the table have changed, so that the grid is read again."""
MENU: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    ((), "Tables"),
    (("heat",), "Heat"),
    (("service",), "Service"),
    (("signature",), "Signatures"),
)
"""The pages that can be opened from every page: the parts of the path, and the name."""
_PLACE: Final = Path(__file__).parent
ASSETS: Final = _PLACE / "assets"

_environment = Environment(
    loader=FileSystemLoader(_PLACE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 table`, `2 tables`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _with_code(text: str) -> Markup:
    """A text with its parts between back-ticks as code."""
    parts = text.split("`")
    shown = [
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    ]
    return Markup("").join(shown)


_environment.filters["counted"] = counted
_environment.filters["with_code"] = _with_code


def account_of(request: Request) -> ExploredAccount:
    """The account that the application of a request shows."""
    account: ExploredAccount = request.app.state.account
    return account


def path_to(request: Request, *parts: str, **parameters: object) -> str:
    """The path of a page with its parameters; those that are None or empty are left out."""
    path = "/".join(quote(part, safe="") for part in parts)
    given = {name: value for name, value in parameters.items() if value not in (None, "", False)}
    text = f"?{urlencode(given)}" if given else ""
    return f"{request.scope.get('root_path', '')}/{path}{text}"


def wants_part(request: Request) -> bool:
    """Whether the page's script asks for a part of a page."""
    return PART_HEADER in request.headers


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    changed: bool = False,
    **values: Any,
) -> HTMLResponse:
    """The answer with a page, or with the part of a page that was asked for."""
    account = account_of(request)
    connection = account.settings.connection

    def to(*parts: str, **parameters: object) -> str:
        return path_to(request, *parts, **parameters)

    text = _environment.get_template(template).render(
        layout="part.html" if wants_part(request) else "page.html",
        as_part=wants_part(request),
        heading="h2" if wants_part(request) else "h1",
        to=to,
        account=connection.account,
        accounts=paths_of_accounts(request, request.app.state.accounts),
        url=connection.url,
        is_production=connection.is_production,
        read_only=account.settings.read_only,
        has_admin=account.settings.admin_url is not None,
        version=__version__,
        here=request.scope["path"],
        pages=_pages(request),
        **values,
    )
    headers = {CHANGED_HEADER: "1"} if changed else {}
    return HTMLResponse(text, status, headers)


def _pages(request: Request) -> list[tuple[str, str]]:
    """The pages in the menu: the path of each and its name."""
    return [(path_to(request, *parts), word) for parts, word in MENU]


def bare_page(root_path: str, sentence: str, path: str, parameters: list[tuple[str, str]]) -> str:
    """A page without an account, for a request that is refused: with the token it goes on to `path`."""
    return _environment.get_template("refused.html").render(
        sentence=sentence, root=root_path, path=path, parameters=parameters, version=__version__
    )
