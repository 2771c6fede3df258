"""The templates of the explorer, the paths of its pages, and the fields of its forms.

Jinja escapes every value in a page, so no content of a table is executed. A request with `X-Part` gets the content of a
page without the frame around it.
"""

from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse

from tablestone.explorer.account import ExploredAccount
from tablestone.tools.errors import TransferRefused
from tablestone.tools.progress import shown_bytes, shown_count

PART_HEADER: Final = "x-part"
CHANGED_HEADER: Final = "X-Changed"
"""Makes the page read the grid again, because entities have changed."""
MALFORMED: Final = "What this form says of the page cannot be read: load the page again."
ASSETS: Final = Path(__file__).parent / "assets"
ASSETS_PATH: Final = "/assets"

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=select_autoescape(),  # the pages, not the code of SDKs
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _with_code(text: str) -> Markup:
    """A text with its parts in back-ticks as code."""
    parts = text.split("`")
    shown = [
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    ]
    return Markup("").join(shown)


_environment.filters.update(bytes=shown_bytes, counted=shown_count, with_code=_with_code)


class PostedForm:
    """The fields of a posted form. A name may occur several times."""

    def __init__(self, form: FormData) -> None:
        self._form = form

    def text(self, name: str, default: str = "") -> str:
        value = self._form.get(name, default)
        return value if isinstance(value, str) else default

    def typed(self, *names: str) -> dict[str, str]:
        """The fields of these names, to show them again."""
        return {name: self.text(name) for name in names}

    def texts(self, name: str) -> list[str]:
        return [value for value in self._form.getlist(name) if isinstance(value, str)]

    def rows(self, *names: str) -> list[tuple[str, ...]]:
        """The fields as rows: the first field of each name, then the second of each, and so on."""
        return list(zip(*map(self.texts, names), strict=False))

    def members(self, name: str) -> dict[str, Any]:
        """The JSON object in a hidden field; empty if there is none."""
        try:
            found = orjson.loads(self.text(name) or "{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise TransferRefused(MALFORMED)
        return found

    def file(self, name: str) -> UploadFile | None:
        value = self._form.get(name)
        return value if isinstance(value, UploadFile) and value.filename else None


def account_of(request: Request) -> ExploredAccount:
    account: ExploredAccount = request.app.state.account
    return account


def path_to(request: Request, *parts: str, **parameters: object) -> str:
    """The path of a page, with the parameters that are neither None nor empty."""
    path = "/".join(quote(part, safe="") for part in parts)
    given = {name: value for name, value in parameters.items() if value not in (None, "", False)}
    text = f"?{urlencode(given)}" if given else ""
    return f"{request.scope.get('root_path', '')}/{path}{text}"


def path_of_account(root: str, name: str) -> str:
    """The first page of an account, in an explorer of several accounts below `root`."""
    return f"{root}/account/{quote(name, safe='')}/"


def wants_part(request: Request) -> bool:
    return PART_HEADER in request.headers


def page(
    request: Request,
    template: str,
    *,
    status: int | None = None,
    changed: bool = False,
    message: str = "",
    problem: Any = "",
    **values: Any,
) -> HTMLResponse:
    """Render a page, or for a part its content; the template sets `title`. By default, a problem has status 400."""
    account = account_of(request)
    settings = account.settings
    status = status or (400 if problem else 200)
    root = request.scope.get("app_root_path", "")
    is_part = wants_part(request)
    values = request.path_params | values
    overview = values.get("overview", account.known_overview)
    if "overview" not in values and status < 400 and not is_part:
        # The page of a failure does not wait for the endpoint again.
        overview = account.overview()
    if "table" in values:
        values["table"] = overview.own_name(values["table"])
    values |= {
        "message": message,
        "problem": problem,
        "wrong_field": getattr(problem or values.get("sentence"), "field", ""),
        "as_part": is_part,
        "is_posted": request.method == "POST",
        "heading": "h2" if is_part else "h1",
        "to": partial(path_to, request),
        "account": settings.connection.account,
        "accounts": [(path_of_account(root, name), name) for name in request.app.state.accounts],
        "url": settings.connection.url,
        "is_production": settings.connection.is_production,
        "read_only": settings.read_only,
        "overview": overview,
        "has_admin": settings.admin is not None,
        "has_changes": account.has_changes,
        "own_parts": account.own_parts,
        "here": request.scope["path"],
    }
    content: Any = _environment.get_template(template).make_module(values)
    text = (
        str(content)
        if is_part
        else rendered("page.html", content=content, title=content.title, **values)
    )
    return HTMLResponse(text, status, {CHANGED_HEADER: "1"} if changed else {})


def rendered(template: str, **values: Any) -> str:
    """Render a template that shows nothing of the account by itself."""
    return _environment.get_template(template).render(values)


def problem_page(request: Request, sentence: object, status: int) -> HTMLResponse:
    return page(request, "problem.html", sentence=sentence, status=status)


def ask(request: Request, question: str, sentence: str, button: str, back: str) -> HTMLResponse:
    """A page that asks before the form in its address is posted there. `back` is the page with the form.

    It has an address, so that the browser comes back to it without sending anything again.
    """
    fields = request.query_params.multi_items()
    return page(
        request,
        "ask.html",
        question=question,
        sentence=sentence,
        button=button,
        back=back,
        fields=fields,
    )
