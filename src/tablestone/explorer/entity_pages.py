"""The panel of one entity, and what is done with the selected ones: edit under ETag, insert, clone, delete, copy.

A conflict shows both versions. Knows entities and forms; knows no grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tablestone.explorer.explored_account import SeenProperty
from tablestone.explorer.page_templates import account_of, page
from tablestone.explorer.posted_forms import PostedForm
from tablestone.explorer.property_forms import (
    ESCAPED,
    FIELD_TYPES,
    HINTS,
    PropertyField,
    ReadForm,
    differences,
    fields_of,
    read_form,
)
from tablestone.explorer.sdk_code import LANGUAGES, point_code, query_code
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey
from tablestone.tools import odata
from tablestone.tools.client import Operation, RawEntity
from tablestone.tools.refusals import TransferRefused
from tablestone.tools.service_errors import ServiceError
from tablestone.tools.writing import quoted

DELETED_TOGETHER_MAX: Final = 100
"""Entities of one partition that an entity group transaction deletes."""
COPIED_MAX: Final = 1000
"""Entities that are copied at a time."""
POINTS_IN_FILTER_MAX: Final = 100
NO_KEYS: Final = (
    "Nothing is written: type a PartitionKey and a RowKey, or choose that both are empty."
)
DELETED: Final = (
    "Another client has deleted this entity since it was shown. Nothing is written. These are your values: "
    "“Insert” stores them as a new entity."
)


def entity(request: Request) -> Response:
    """The panel of one entity."""
    key = _key_in_address(request)
    table = request.path_params["table"]
    raw = account_of(request).endpoint.get(table, key)
    if raw is None:
        return _gone(request, table, key)
    return _panel(request, table, key, fields_of(raw), raw=raw)


def new(request: Request) -> Response:
    """The panel of a new entity; with keys in the address, a copy of that entity."""
    table = request.path_params["table"]
    if "pk" not in request.query_params:
        seen = account_of(request).seen.of(table)
        names = [name for name in seen if name not in (PARTITION_KEY, ROW_KEY, TIMESTAMP)]
        fields = [PropertyField(name, _first_type(seen[name]), "") for name in names[:20]]
        return _panel(request, table, EntityKey("", ""), fields, is_new=True)
    key = _key_in_address(request)
    raw = account_of(request).endpoint.get(table, key)
    if raw is None:
        return _gone(request, table, key)
    return _panel(request, table, key, _as_new(fields_of(raw)), is_new=True)


def insert(request: Request, form: PostedForm) -> Response:
    """Insert an entity. Of a new entity, a property without a text is absent."""
    table = request.path_params["table"]
    key = EntityKey(form.text("pk"), form.text("rk"))
    names, kinds, texts = _fields(form)
    given = [each for each in zip(names, kinds, texts, strict=False) if each[2]]
    read = read_form(key, *([each[part] for each in given] for part in range(3)))
    if read.entity is None:
        return _not_written(request, table, key, read, is_new=True)
    if key == ("", "") and not form.text("empty_keys"):
        return _panel(
            request, table, key, read.fields, is_new=True, problem=NO_KEYS, status=400, no_keys=True
        )
    body = odata.write_body(read.entity)
    try:
        account_of(request).endpoint.write(table, Operation("POST", key, body))
    except ServiceError as error:
        if error.code != "EntityAlreadyExists":
            raise
        problem = "An entity with these keys already exists."
        return _panel(request, table, key, read.fields, is_new=True, problem=problem, status=409)
    return _written(request, table, key, "The entity is inserted.")


def save(request: Request, form: PostedForm) -> Response:
    """Replace an entity if it still has the ETag that the panel showed."""
    table = request.path_params["table"]
    key = EntityKey(form.text("pk"), form.text("rk"))
    read = read_form(key, *_fields(form))
    if read.entity is None:
        return _not_written(request, table, key, read, etag=form.text("etag"))
    endpoint = account_of(request).endpoint
    body = odata.write_body(read.entity)
    try:
        endpoint.write(table, Operation("PUT", key, body, if_match=form.text("etag") or None))
    except ServiceError as error:
        if error.status == 404 and error.code in ("ResourceNotFound", ""):
            return _deleted_meanwhile(request, table, key, read.fields)
        if error.status != 412:
            raise
    else:
        return _written(request, table, key, "The entity is saved.")
    stored = endpoint.get(table, key)
    if stored is None:
        return _deleted_meanwhile(request, table, key, read.fields)
    return page(
        request,
        "conflict.html",
        table=table,
        key=key,
        fields=read.fields,
        both=differences(read.entity, stored),
        stored_etag=stored.get(odata.ETAG, ""),
        stored_at=stored.get(TIMESTAMP, ""),
        status=409,
    )


def delete(request: Request, form: PostedForm) -> Response:
    """Ask before one entity is deleted; then delete it if it still has its ETag."""
    table = request.path_params["table"]
    key = EntityKey(form.text("pk"), form.text("rk"))
    if not form.text("sure"):
        etag = form.text("etag")
        return page(request, "delete_entity.html", table=table, key=key, etag=etag)
    endpoint = account_of(request).endpoint
    try:
        endpoint.write(table, Operation("DELETE", key, if_match=form.text("etag") or "*"))
    except ServiceError as error:
        if error.status == 404 and error.code in ("ResourceNotFound", ""):
            return _gone(request, table, key)
        if error.status != 412:
            raise
        raw = endpoint.get(table, key)
        if raw is None:
            return _gone(request, table, key)
        problem = "The entity has changed since it was shown. This is its present state."
        return _panel(request, table, key, fields_of(raw), raw=raw, problem=problem, status=409)
    return page(request, "done.html", changed=True, table=table, sentences=["1 entity is deleted."])


def ask_selected(request: Request, form: PostedForm) -> Response:
    """The question before the selected entities are deleted."""
    keys = _selected(form)
    table = request.path_params["table"]
    return page(request, "delete_entities.html", table=table, keys=keys, rows=form.texts("row"))


def delete_selected(request: Request, form: PostedForm) -> Response:
    """Delete the selected entities, each partition in transactions; the page says how many there were."""
    table = request.path_params["table"]
    endpoint = account_of(request).endpoint
    by_partition: dict[str, list[EntityKey]] = {}
    for key in _selected(form):
        by_partition.setdefault(key.partition_key, []).append(key)
    deleted = 0
    sentences = []
    for partition, keys in by_partition.items():
        for start in range(0, len(keys), DELETED_TOGETHER_MAX):
            part = keys[start : start + DELETED_TOGETHER_MAX]
            try:
                endpoint.transact(table, [Operation("DELETE", key, if_match="*") for key in part])
            except ServiceError as error:
                sentences.append(f"Nothing of {len(part)} in {partition!r} is deleted: {error}")
            else:
                deleted += len(part)
    noun = "entity is" if deleted == 1 else "entities are"
    return page(
        request,
        "done.html",
        changed=True,
        table=table,
        sentences=[f"{deleted:,} {noun} deleted.", *sentences],
        status=409 if sentences else 200,
    )


def copy(request: Request, form: PostedForm) -> Response:
    """The selected entities as JSON, as a filter, or as code in a language."""
    table = request.path_params["table"]
    keys = _selected(form)
    wanted = form.text("as", "JSON")
    if len(keys) > COPIED_MAX:
        raise TransferRefused(f"At most {COPIED_MAX:,} entities are copied at a time.")
    if wanted == "JSON":
        endpoint = account_of(request).endpoint
        found = [raw for key in keys if (raw := endpoint.get(table, key)) is not None]
        text = "".join(_as_json(raw) for raw in found)
    elif wanted == "filter":
        text = filter_of(keys)
    elif wanted in LANGUAGES:
        text = (
            point_code(wanted, table, keys[0])
            if len(keys) == 1
            else query_code(wanted, table, filter_of(keys))
        )
    else:
        raise TransferRefused(f"There is no copy as {wanted[:40]}.")
    return page(request, "copied.html", table=table, text=text, wanted=wanted, count=len(keys))


def filter_of(keys: Sequence[EntityKey]) -> str:
    """The filter that finds these entities; `TransferRefused` if there are too many for a filter."""
    if len(keys) > POINTS_IN_FILTER_MAX:
        raise TransferRefused(f"At most {POINTS_IN_FILTER_MAX} entities are copied as a filter.")
    points = [f"PartitionKey eq {quoted(pk)} and RowKey eq {quoted(rk)}" for pk, rk in keys]
    return points[0] if len(points) == 1 else " or ".join(f"({point})" for point in points)


def _as_json(raw: RawEntity) -> str:
    """An entity as JSON with its types, as `tablestone import` reads it."""
    return orjson.dumps(odata.content_of(raw)).decode("utf-8") + "\n"


def _selected(form: PostedForm) -> list[EntityKey]:
    found = []
    for text in form.texts("row"):
        try:
            keys = orjson.loads(text)
        except ValueError:
            keys = None
        if not (isinstance(keys, list) and [type(key) for key in keys] == [str, str]):
            raise TransferRefused("A selected row is not known: load the page again.")
        found.append(EntityKey(*keys))
    if not found:
        raise TransferRefused("Select entities first: with their boxes, or with the space bar.")
    return found


def _fields(form: PostedForm) -> tuple[list[str], list[str], list[str]]:
    return form.texts("name"), form.texts("kind"), form.texts("text")


def _key_in_address(request: Request) -> EntityKey:
    return EntityKey(request.query_params.get("pk", ""), request.query_params.get("rk", ""))


def _first_type(seen: SeenProperty) -> str:
    return next((kind.value.removeprefix("Edm.") for kind in seen.types), "String")


def _panel(
    request: Request,
    table: str,
    key: EntityKey,
    fields: list[PropertyField],
    *,
    raw: RawEntity | None = None,
    is_new: bool = False,
    problem: str = "",
    message: str = "",
    etag: str = "",
    status: int = 200,
    changed: bool = False,
    no_keys: bool = False,
) -> Response:
    values: dict[str, Any] = {
        "table": table,
        "key": key,
        "row": orjson.dumps(list(key)).decode("utf-8"),
        "fields": fields,
        "is_new": is_new,
        "problem": problem,
        "no_keys": no_keys,
        "message": message,
        "etag": etag or ("" if raw is None else raw.get(odata.ETAG, "")),
        "timestamp": "" if raw is None else raw.get(TIMESTAMP, ""),
        "types": FIELD_TYPES,
        "hints": HINTS,
        "languages": LANGUAGES,
    }
    return page(request, "entity.html", status=status, changed=changed, **values)


def _not_written(
    request: Request,
    table: str,
    key: EntityKey,
    read: ReadForm,
    *,
    is_new: bool = False,
    etag: str = "",
) -> Response:
    return _panel(
        request,
        table,
        key,
        read.fields,
        is_new=is_new,
        problem=read.problem,
        etag=etag,
        status=400,
    )


def _written(request: Request, table: str, key: EntityKey, message: str) -> Response:
    """The panel of an entity as it is stored now."""
    raw = account_of(request).endpoint.get(table, key)
    if raw is None:
        return _gone(request, table, key)
    return _panel(request, table, key, fields_of(raw), raw=raw, message=message, changed=True)


def _as_new(fields: list[PropertyField]) -> list[PropertyField]:
    """The fields for a new entity: one without a text is no property of it, so an empty string has its quotes."""
    return [field if field.text else field._replace(kind=ESCAPED, text='""') for field in fields]


def _deleted_meanwhile(
    request: Request, table: str, key: EntityKey, fields: list[PropertyField]
) -> Response:
    """The panel that inserts the values that were typed for an entity that another client has deleted."""
    return _panel(
        request, table, key, _as_new(fields), is_new=True, problem=DELETED, status=409, changed=True
    )


def _gone(request: Request, table: str, key: EntityKey) -> Response:
    sentence = f"The entity {key.partition_key!r}, {key.row_key!r} does not exist, or no longer."
    return page(request, "done.html", changed=True, table=table, sentences=[sentence], status=404)


SHOWN: Final = {"/tables/{table}/entity": entity}
POSTED: Final = {"/tables/{table}/copy": copy}
CHANGE_FORMS: Final = {"/tables/{table}/new": new}
CHANGES: Final = {
    "/tables/{table}/selected": ask_selected,
    "/tables/{table}/entity": save,
    "/tables/{table}/new": insert,
    "/tables/{table}/entity/delete": delete,
    "/tables/{table}/selected/delete": delete_selected,
}
