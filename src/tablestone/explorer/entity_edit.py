"""The panel of one entity: edit under its ETag, insert, clone, delete.

If another client has changed the entity since it was shown, a conflict shows both versions. Knows entities and forms;
knows no grid.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tablestone.explorer.account import SeenProperty
from tablestone.explorer.page_templates import PostedForm, account_of, page
from tablestone.explorer.property_fields import (
    ESCAPED,
    FIELD_TYPES,
    HINTS,
    PropertyField,
    ReadForm,
    differences,
    fields_of,
    read_form,
)
from tablestone.explorer.selection import LANGUAGES
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey
from tablestone.tools import odata
from tablestone.tools.client import Operation, RawEntity
from tablestone.tools.errors import ServiceError

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
CHANGE_FORMS: Final = {"/tables/{table}/new": new}
CHANGES: Final = {
    "/tables/{table}/entity": save,
    "/tables/{table}/new": insert,
    "/tables/{table}/entity/delete": delete,
}
