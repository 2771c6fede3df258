"""Delete the selected entities, or copy them as JSON, a filter, or code, which takes the key from the environment."""

import json
from collections.abc import Callable, Sequence
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tablestone.explorer.page_templates import PostedForm, account_of, page, rendered
from tablestone.limits import CHANGE_SET_OPERATIONS_MAX
from tablestone.model.keys import EntityKey
from tablestone.tools import odata
from tablestone.tools.client import Operation
from tablestone.tools.connection import CONNECTION_STRING_VARIABLE
from tablestone.tools.errors import ServiceError, TransferRefused
from tablestone.tools.writing import quoted

COPIED_MAX: Final = 1000
POINTS_IN_FILTER_MAX: Final = 100


def _by_code_point(text: str) -> str:
    """An ASCII string literal for languages whose literals have no surrogate pairs."""
    parts = [
        json.dumps(each)[1:-1] if ord(each) < 0x10000 else f"\\U{ord(each):08x}" for each in text
    ]
    return f'"{"".join(parts)}"'


LANGUAGES: Final[dict[str, Callable[[str], str]]] = {
    "Python": _by_code_point,
    "JavaScript": json.dumps,
    "Go": _by_code_point,
    "Java": json.dumps,
    "C#": json.dumps,
}
"""The languages of `templates/code`, each with the function that makes a string literal."""


def code_of(language: str, table: str, filter_text: str, key: EntityKey | None = None) -> str:
    """The code that reads one entity or, without a key, runs a query. An empty filter finds all entities."""
    pk, rk = key or (None, None)
    texts = {"table": table, "filter": filter_text or None, "pk": pk, "rk": rk}
    literals = {  # a key may be empty
        name: None if text is None else LANGUAGES[language](text) for name, text in texts.items()
    }
    file = f"code/{language.lower().replace('#', 'sharp')}.txt"
    return rendered(file, variable=CONNECTION_STRING_VARIABLE, **literals)


def ask_selected(request: Request, form: PostedForm) -> Response:
    keys = _selected(form)
    return page(request, "delete_entities.html", keys=keys, rows=form.texts("row"))


def delete_selected(request: Request, form: PostedForm) -> Response:
    """Delete the selected entities, each partition in transactions of its own."""
    table = request.path_params["table"]
    endpoint = account_of(request).endpoint
    by_partition: dict[str, list[EntityKey]] = {}
    for key in _selected(form):
        by_partition.setdefault(key.partition_key, []).append(key)
    deleted = 0
    sentences = []
    for partition, keys in by_partition.items():
        for start in range(0, len(keys), CHANGE_SET_OPERATIONS_MAX):
            part = keys[start : start + CHANGE_SET_OPERATIONS_MAX]
            try:
                endpoint.transact(table, [Operation("DELETE", key, if_match="*") for key in part])
            except ServiceError as error:
                sentences.append(f"{len(part)} in {partition!r} are not deleted: {error}")
            else:
                deleted += len(part)
    noun = "entity is" if deleted == 1 else "entities are"
    return page(
        request,
        "done.html",
        changed=True,
        sentences=[f"{deleted:,} {noun} deleted.", *sentences],
        status=409 if sentences else 200,
    )


def copy(request: Request, form: PostedForm) -> Response:
    """Copy the selected entities as JSON with types (for `tablestone import`), as a filter, or as code."""
    table = request.path_params["table"]
    keys = _selected(form)
    wanted = form.text("as", "JSON")
    if len(keys) > COPIED_MAX:
        raise TransferRefused(f"At most {COPIED_MAX:,} entities are copied at a time.")
    if wanted == "JSON":
        endpoint = account_of(request).endpoint
        found = [raw for key in keys if (raw := endpoint.get(table, key)) is not None]
        text = "".join(orjson.dumps(odata.content_of(raw)).decode() + "\n" for raw in found)
    elif wanted == "filter":
        text = filter_of(keys)
    elif wanted not in LANGUAGES:
        raise TransferRefused(f"There is no copy as {wanted[:40]}.")
    elif len(keys) == 1:
        text = code_of(wanted, table, "", keys[0])
    else:
        text = code_of(wanted, table, filter_of(keys))
    return page(request, "copied.html", text=text, wanted=wanted, count=len(keys))


def filter_of(keys: Sequence[EntityKey]) -> str:
    """The filter that finds these entities. Raises `TransferRefused` if there are too many."""
    if len(keys) > POINTS_IN_FILTER_MAX:
        raise TransferRefused(f"At most {POINTS_IN_FILTER_MAX} entities are copied as a filter.")
    points = [f"PartitionKey eq {quoted(pk)} and RowKey eq {quoted(rk)}" for pk, rk in keys]
    return points[0] if len(points) == 1 else " or ".join(f"({point})" for point in points)


def _selected(form: PostedForm) -> list[EntityKey]:
    found = []
    for text in form.texts("row"):
        try:
            keys = orjson.loads(text)
        except ValueError:
            keys = None
        if not (isinstance(keys, list) and [type(key) for key in keys] == [str, str]):
            raise TransferRefused("A selected row is malformed: load the page again.")
        found.append(EntityKey(*keys))
    if not found:
        raise TransferRefused("Select entities first, with their boxes or the space bar.")
    return found
