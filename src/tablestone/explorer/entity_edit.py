"""The panel of one entity: edit under its ETag (after a conflict, both versions are shown), insert, clone, delete.

The properties are fields, or a text of JSON: whichever the form has is what is read.
"""

from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tablestone.explorer.page_templates import PostedForm, account_of, page
from tablestone.explorer.property_fields import (
    EMPTY,
    ESCAPED,
    FIELD_TYPES,
    HINTS,
    PropertyField,
    ReadForm,
    differences,
    fields_of,
    json_of,
    read_form,
    read_json_form,
)
from tablestone.explorer.selection import LANGUAGES
from tablestone.model.edm import EdmType
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey
from tablestone.tools import odata
from tablestone.tools.client import Operation, RawEntity
from tablestone.tools.errors import ServiceError

FIELDS_OF_NEW_MAX: Final = 20
"""The form of a new entity offers at most this many of the properties seen in the table."""
NO_KEYS: Final = (
    "Nothing is written: type a PartitionKey and a RowKey, or choose “Both keys are empty”."
)
CHANGED: Final = "The entity has changed since it was shown. This is its present state."
AS_OF: Final = "The entity is deleted. “Insert” stores its version of {} again."
DELETED: Final = (
    "Another client has deleted this entity since it was shown. Nothing is written. “Insert” stores your values, "
    "which are below, as a new entity."
)


def entity(request: Request) -> Response:
    return _stored_panel(request, _key_in_address(request))


def new(request: Request) -> Response:
    """The panel of a new entity; a copy of the entity that the address names, if it names one."""
    account, table = account_of(request), request.path_params["table"]
    key = _key_in_address(request)
    if "pk" not in request.query_params:
        fields = [
            PropertyField(name, next(iter(types), EdmType.STRING).value.removeprefix("Edm."), "")
            for name, types in account.seen.of(table).items()
            if name not in (PARTITION_KEY, ROW_KEY, TIMESTAMP)
        ]
        return _panel(request, key, fields[:FIELDS_OF_NEW_MAX], is_new=True)
    raw = account.endpoint.get(table, key)
    if raw is None:
        return _gone(request, key)
    return _panel(request, key, _as_new(fields_of(raw)), is_new=True)


def insert(request: Request, form: PostedForm) -> Response:
    """Insert an entity without its empty fields."""
    key, read, typed = _read(form, is_new=True)
    if read.entity is None:
        return _panel(request, key, read.fields, problem=read.problem, **typed)
    if key == ("", "") and not form.text("empty_keys"):
        return _panel(request, key, read.fields, no_keys=True, problem=NO_KEYS, **typed)
    try:
        _write(request, Operation("POST", key, odata.write_body(read.entity)))
    except ServiceError as error:
        if error.code != "EntityAlreadyExists":
            raise
        problem = "An entity with these keys already exists."
        return _panel(request, key, read.fields, problem=problem, status=409, **typed)
    return _stored_panel(request, key, message="The entity is inserted.", changed=True)


def save(request: Request, form: PostedForm) -> Response:
    """Replace an entity if it still has the ETag that the panel showed."""
    key, read, typed = _read(form, is_new=False)
    etag = form.text("etag")
    if read.entity is None:
        return _panel(request, key, read.fields, problem=read.problem, **typed)
    body = odata.write_body(read.entity)
    try:
        _write(request, Operation("PUT", key, body, if_match=etag or None))
    except ServiceError as error:
        stored = _stored_now(request, key, error)
    else:
        return _stored_panel(request, key, message="The entity is saved.", changed=True)
    if stored is None:
        fields = _as_new(read.fields)
        return _panel(request, key, fields, is_new=True, problem=DELETED, status=409, changed=True)
    return _both(request, read.entity, read.fields, stored, status=409)


def put_back(request: Request, key: EntityKey, version: RawEntity, when: str) -> Response:
    """A version from the record of changes beside the stored entity; `Insert` if that is deleted."""
    stored = account_of(request).endpoint.get(request.path_params["table"], key)
    fields = fields_of(version)
    if stored is None:
        return _panel(request, key, _as_new(fields), is_new=True, message=AS_OF.format(when))
    given = odata.read_entity(version)
    if not any(each.differs for each in differences(given, stored)):
        message = "This version is what is stored now."
        return _panel(request, key, fields_of(stored), stored, message=message)
    return _both(request, given, fields, stored, version=when)


def _both(
    request: Request,
    yours: odata.TypedEntity,
    fields: list[PropertyField],
    stored: RawEntity,
    **shown: Any,
) -> Response:
    """Two versions side by side, and the write under the ETag of the stored one."""
    values = {"version": "", **shown}
    return page(
        request,
        "conflict.html",
        key=yours.key,
        fields=fields,
        both=differences(yours, stored),
        stored_etag=stored.get(odata.ETAG, ""),
        stored_at=stored.get(TIMESTAMP, ""),
        **values,
    )


def view(request: Request, form: PostedForm) -> Response:
    """Show what was typed in the other form, as JSON or as fields. Nothing is written."""
    is_new, wanted = bool(form.text("is_new")), form.text("view")
    key, read, typed = _read(form, is_new=is_new)
    if read.entity is None:
        return _panel(request, key, read.fields, problem=read.problem, **typed)
    del typed["json"]
    if wanted == "JSON":
        return _panel(request, key, read.fields, json=json_of(read.entity), **typed)
    return _panel(request, key, _as_new(read.fields) if is_new else read.fields, **typed)


def _read(form: PostedForm, *, is_new: bool) -> tuple[EntityKey, ReadForm, dict[str, Any]]:
    """The key and the entity of the form, and what `_panel` needs to show it again as it was typed."""
    key = EntityKey(form.text("pk"), form.text("rk"))
    typed: dict[str, Any] = {"is_new": is_new, "json": None}
    typed |= {name: form.text(name) for name in ("etag", "timestamp")}
    for text in form.texts("json"):
        read, line = read_json_form(key, text)
        return key, read, typed | {"json": text, "line": line}
    # Only a String and a Binary can be empty, and a new entity leaves out all empty fields.
    rows = form.rows("name", "kind", "text")
    kept = [row for row in rows if row[2] or (row[1] in ("String", "Binary") and not is_new)]
    return key, read_form(key, kept), typed


def delete(request: Request, form: PostedForm) -> Response:
    """Ask first; then delete the entity if its ETag is still the one shown."""
    etag = form.text("etag")
    key = EntityKey(form.text("pk"), form.text("rk"))
    if not form.text("sure"):
        return page(request, "delete_entity.html", key=key, etag=etag)
    try:
        _write(request, Operation("DELETE", key, if_match=etag or "*"))
    except ServiceError as error:
        raw = _stored_now(request, key, error)
        if raw is None:
            return _gone(request, key)
        return _panel(request, key, fields_of(raw), raw=raw, problem=CHANGED, status=409)
    return page(request, "done.html", changed=True, sentences=["1 entity is deleted."])


def _write(request: Request, operation: Operation) -> None:
    account_of(request).endpoint.write(request.path_params["table"], operation)


def _stored_now(request: Request, key: EntityKey, error: ServiceError) -> RawEntity | None:
    """The present state of an entity whose ETag was refused; None if it was deleted. Raises any other error."""
    if error.status == 404 and error.code in ("ResourceNotFound", ""):
        return None
    if error.status != 412:
        raise error
    return account_of(request).endpoint.get(request.path_params["table"], key)


def _key_in_address(request: Request) -> EntityKey:
    return EntityKey(request.query_params.get("pk", ""), request.query_params.get("rk", ""))


def _stored_panel(request: Request, key: EntityKey, **shown: Any) -> Response:
    raw = account_of(request).endpoint.get(request.path_params["table"], key)
    return (
        _gone(request, key) if raw is None else _panel(request, key, fields_of(raw), raw, **shown)
    )


def _panel(
    request: Request,
    key: EntityKey,
    fields: list[PropertyField],
    raw: RawEntity | None = None,
    **shown: Any,
) -> Response:
    """The panel with these fields. `shown` holds further values for the template, and the status of the answer."""
    stored = raw or {}
    values = {
        "is_new": False,
        "no_keys": False,
        "etag": stored.get(odata.ETAG, ""),
        "timestamp": stored.get(TIMESTAMP, ""),
        "json": None,
        "line": 0,
        **shown,
    }
    return page(
        request,
        "entity.html",
        key=key,
        row=orjson.dumps(list(key)).decode("utf-8"),
        fields=fields,
        types=FIELD_TYPES,
        hints=HINTS,
        kinds_of_text=("String", ESCAPED, "Binary", "GeographyPoint"),
        languages=LANGUAGES,
        **values,
    )


def _as_new(fields: list[PropertyField]) -> list[PropertyField]:
    """The fields for an insert. It leaves out empty fields, so an empty String or Binary becomes `""`."""
    return [
        field
        if field.text
        else field._replace(kind="Binary" if field.kind == "Binary" else ESCAPED, text=EMPTY)
        for field in fields
    ]


def _gone(request: Request, key: EntityKey) -> Response:
    sentence = f"The entity {key.partition_key!r}, {key.row_key!r} does not exist."
    return page(request, "problem.html", changed=True, sentence=sentence, status=404)
