"""The ASGI application of the admin address: a table of paths, each with the page that answers it.

A page is a function of the parameters and headers of a request. `mounts` are ASGI applications, each with all paths
below a prefix.
"""

import logging
import platform
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

import orjson

from tablestone import __version__, limits
from tablestone.configuration import Configuration
from tablestone.engines.kind import EngineUrl
from tablestone.server.admin.readiness import Readiness
from tablestone.server.asgi import AsgiApplication, Message, Receive, Send

logger = logging.getLogger(__name__)

TEXT_TYPE: Final = "text/plain; charset=utf-8"
JSON_TYPE: Final = "application/json"
_READS: Final = ("GET", "HEAD")


class PageRequest(NamedTuple):
    """A request for a page. The names of headers are in lower case."""

    parameters: dict[str, str]
    headers: dict[str, str]


class PageAnswer(NamedTuple):
    body: bytes
    content_type: str = JSON_TYPE
    status: int = 200


Page = Callable[[PageRequest], Awaitable[PageAnswer]]


def json_answer(members: Mapping[str, object], status: int = 200) -> PageAnswer:
    return PageAnswer(orjson.dumps(members, option=orjson.OPT_APPEND_NEWLINE), JSON_TYPE, status)


def text_answer(text: str, status: int = 200) -> PageAnswer:
    return PageAnswer(f"{text}\n".encode(), TEXT_TYPE, status)


class AdminApplication:
    """Answers by `pages`, whose keys are whole paths, and by `mounts`, whose keys are prefixes that end with `/`."""

    def __init__(self, pages: Mapping[str, Page], mounts: Mapping[str, AsgiApplication]) -> None:
        self._pages = pages
        self._mounts = mounts

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        for prefix, mounted in self._mounts.items():
            if path.startswith(prefix):
                await mounted({**scope, "root_path": prefix.rstrip("/")}, receive, send)
                return
        await _send(scope, await self._answer(scope, path), send)

    async def _answer(self, scope: Message, path: str) -> PageAnswer:
        page = self._pages.get(path)
        if page is None:
            known = " ".join((*self._pages, *self._mounts))
            if path == "/":
                return text_answer(f"The admin address of a Tablestone server: {known}")
            return text_answer(f"There is no such page. The pages are: {known}", 404)
        if scope["method"] not in _READS:
            return text_answer("This page can only be read.", 405)
        request = PageRequest(
            dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)),
            {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
        )
        try:
            return await page(request)
        except Exception:
            logger.exception("The page %s failed.", path)
            return text_answer("This page failed; the log of the server says why.", 500)


async def _send(scope: Message, answer: PageAnswer, send: Send) -> None:
    headers = [
        (b"content-type", answer.content_type.encode("latin-1")),
        (b"content-length", b"%d" % len(answer.body)),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    if answer.status == 405:
        headers.append((b"allow", ", ".join(_READS).encode("ascii")))
    if scope["method"] not in _READS:  # there may be a body that no one reads
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else answer.body
    await send({"type": "http.response.body", "body": body})


def pages(
    configuration: Configuration, readiness: Readiness, metrics: Page, insight: Page
) -> dict[str, Page]:
    """All pages by their paths; `metrics` and `insight` are given."""

    async def live(_request: PageRequest) -> PageAnswer:
        reason = readiness.why_not_live()
        if reason is not None:
            return json_answer({"status": "not live", "reasons": [reason]}, 503)
        return json_answer({"status": "live"})

    async def ready(_request: PageRequest) -> PageAnswer:
        reasons = await readiness.why_not_ready()
        workers = {"ready": readiness.workers_ready(), "configured": configuration.workers}
        warnings = {"warnings": readiness.warnings} if readiness.warnings else {}
        if reasons:
            found = {"status": "not ready", "reasons": reasons, "workers": workers, **warnings}
            return json_answer(found, 503)
        held = {"archive_check_held": readiness.archive_held} if readiness.archive_held else {}
        return json_answer({"status": "ready", "workers": workers, **held, **warnings})

    async def version(_request: PageRequest) -> PageAnswer:
        return json_answer(
            {
                "version": __version__,
                "compiled": not limits.__file__.endswith(".py"),
                "python": platform.python_version(),
                "engine": EngineUrl.parse(configuration.engine).scheme,
                "workers": configuration.workers,
            }
        )

    return {
        "/health/live": live,
        "/health/ready": ready,
        "/insight": insight,
        "/metrics": metrics,
        "/version": version,
    }
