"""The panel of one entity: edit under its ETag (after a conflict, both versions are shown), insert, clone, delete.

The properties are fields, or a text of JSON: whichever the form has is what is read.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tablestone.explorer.page_templates import (
    MALFORMED,
    PostedForm,
    account_of,
    page,
    path_to,
    wants_part,
)
from tablestone.explorer.property_fields import (
    EMPTY,
    ESCAPED,
    FIELD_TYPES,
    HINTS,
    PropertyField,
    ReadForm,
    differences,
    field_of,
    fields_of,
    json_of,
    read_form,
    read_json_form,
    types_of,
    with_changes,
)
from tablestone.explorer.selection import LANGUAGES
from tablestone.model.edm import EdmType
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import FORBIDDEN_IN_KEY, PARTITION_KEY, ROW_KEY, EntityKey
from tablestone.tools import odata
from tablestone.tools.client import Operation, RawEntity
from tablestone.tools.errors import ServiceError, TransferFailed, TransferRefused, Unreachable

FIELDS_OF_NEW_MAX: Final = 20
"""The form of a new entity offers at most this many of the properties seen in the table."""
NO_KEYS: Final = (
    "Nothing is written: type a PartitionKey and a RowKey, or choose “Both keys are empty”."
)
DONE: Final = {
    "saved": "The entity is saved.",
    "inserted": "The entity is inserted.",
    "back": "The earlier version is put back, as a new one.",
}
CHANGED: Final = "The entity has changed since it was shown, at {}. This is its present state."
AS_OF: Final = "“Insert” stores its version of {} again."
DELETED: Final = "Another client has deleted this entity since it was shown."
EXPIRED: Final = "This entity has expired: those of this table expire {}. It is hidden until the server removes it."
KEY_RULE: Final = r" A key cannot have /, \, #, ? or a control character."
GONE: Final = "The entity is deleted."
INSERT: Final = "Nothing is written. “Insert” stores your values, which are below, as a new entity."
HIDDEN: Final = "With these values it is hidden at once: entities of this table expire {}."
AWAY: Final = "Since then it was deleted, or has expired."


def entity(request: Request) -> Response:
    """The stored entity; says what was done if the address has the ETag that this gave the entity."""
    key = _key_in_address(request)
    raw = _stored(request, key)
    if raw is None:
        return _gone(request, key)
    given, etag = request.query_params, raw.get(odata.ETAG)
    done = [sentence for each, sentence in DONE.items() if given.get(each) == etag]
    return _panel(request, key, fields_of(raw), raw, message="".join(done))


def new(request: Request) -> Response:
    """The panel of a new entity; a copy of the entity that the address names, if it names one."""
    account, table = account_of(request), request.path_params["table"]
    key = _key_in_address(request)
    if not {"pk", "clone"} & request.query_params.keys():
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
        hint = KEY_RULE if any(map(FORBIDDEN_IN_KEY.search, key)) else ""
        return _panel(request, key, read.fields, problem=read.problem + hint, **typed)
    if key == ("", "") and not form.text("empty_keys"):
        return _panel(request, key, read.fields, no_keys=True, problem=NO_KEYS, **typed)
    try:
        etag = _write(request, Operation("POST", key, odata.write_body(read.entity)))
    except ServiceError as error:
        if error.code != "EntityAlreadyExists":
            raise
        problem = "An entity with these keys already exists."
        return _panel(request, key, read.fields, problem=problem, status=409, **typed)
    return _written(request, read.entity, "back" if form.text("back") else "inserted", etag)


def save(request: Request, form: PostedForm) -> Response:
    """Replace an entity if it still has the ETag that the panel showed.

    With `mine`, after a conflict, only what the person changed is put into what is stored.
    """
    key, read, typed = _read(form, is_new=False)
    yours, etag = read.entity, form.text("etag")
    if yours is None:
        return _panel(request, key, read.fields, problem=read.problem, **typed)
    shown, written = form.members("shown"), yours
    try:
        if form.text("mine") and (present := _stored(request, key)):
            # If it is not what the conflict showed, it has another ETag, and nothing is written.
            written = with_changes(yours, present, shown or present)
        body = odata.write_body(written)
        new_etag = _write(request, Operation("PUT", key, body, if_match=etag or None))
    except ServiceError as error:
        stored = _stored_now(request, key, error)
    else:
        is_back = form.text("back") and not form.text("mine")
        return _written(request, written, "back" if is_back else "saved", new_etag)
    if stored is None:
        why = _if_expired(request, {**shown, TIMESTAMP: form.text("timestamp") or None}, EXPIRED)
        problem = f"{why or DELETED} {INSERT} {_if_hidden(request, yours)}"
        back = form.text("back")
        return _as_insert(request, yours, problem=problem, is_typed=True, status=409, back=back)
    more = form.typed("again", "back")
    return _both(request, yours, read.fields, stored, shown or stored, status=409, **more)


def put_back(request: Request, version: RawEntity, when: str) -> Response:
    """A version from the record of changes beside the stored entity; `Insert` if that is gone."""
    given = odata.read_entity(version)
    stored = _stored(request, given.key)
    if stored is None:
        why = _if_expired(request, version, EXPIRED)
        message = f"{why or GONE} {AS_OF.format(when)} {_if_hidden(request, given)}"
        return _as_insert(request, given, message=message, back="1")
    if not any(each.differs for each in differences(given, stored, stored)):
        message = "This version is what is stored now."
        return _panel(request, given.key, fields_of(stored), stored, message=message)
    return _both(request, given, fields_of(version), stored, stored, version=when, back="1")


def _both(
    request: Request,
    yours: odata.TypedEntity,
    fields: list[PropertyField],
    stored: RawEntity,
    shown: RawEntity,
    **more: Any,
) -> Response:
    """The versions side by side, and the write under the ETag of the stored one."""
    values = {"version": "", "again": "", **more}
    return page(
        request,
        "conflict.html",
        key=yours.key,
        fields=fields,
        compared=differences(yours, stored, shown),
        shown=_text_of(shown),
        etag=stored.get(odata.ETAG, ""),
        timestamp=stored.get(TIMESTAMP, ""),
        **values,
    )


def _written(request: Request, given: odata.TypedEntity, done: str, etag: str | None) -> Response:
    """The entity after a write. A page gets an address of its own, so that a reload writes nothing."""
    table, key = request.path_params["table"], given.key
    raw, message = _stored(request, key), DONE[done]
    if raw is None:
        return _as_insert(request, given, message=f"{message} {_if_hidden(request, given) or AWAY}")
    if wants_part(request):
        return _panel(request, key, fields_of(raw), raw, message=message, changed=True)
    names = {"pk": key.partition_key, "rk": key.row_key, done: etag}
    return RedirectResponse(path_to(request, "tables", table, "entity", **names), 303)


def _as_insert(request: Request, given: odata.TypedEntity, **shown: Any) -> Response:
    """The panel that inserts an entity which is not there."""
    fields = [field_of(name, value) for name, value in given.properties.items()]
    return _panel(request, given.key, _as_new(fields), is_new=True, changed=True, **shown)


def _if_expired(request: Request, raw: RawEntity, sentence: str) -> str:
    """The sentence, with the policy of the table, if this version of an entity has expired; else empty."""
    try:
        policy = account_of(request).policy_of_expired(request.path_params["table"], raw)
    except (ValueError, TypeError, KeyError):
        raise TransferRefused(MALFORMED) from None
    return sentence.format(policy.in_words) if policy else ""


def _if_hidden(request: Request, given: odata.TypedEntity) -> str:
    """The sentence if a write of these values stores an entity that has expired; else empty."""
    return _if_expired(request, json.loads(odata.write_body(given)), HIDDEN)


def view(request: Request, form: PostedForm) -> Response:
    """Show what was typed in the other form, as JSON or as fields. Nothing is written."""
    is_new, wanted = bool(form.text("is_new")), form.text("view")
    key, read, typed = _read(form, is_new=is_new)
    if read.entity is None:
        return _panel(request, key, read.fields, problem=read.problem, **typed)
    del typed["json"]
    shown = differences(read.entity, {}, form.members("shown"))
    typed["is_typed"] = is_new or any(each.is_yours for each in shown)
    if wanted == "JSON":
        typed["json_types"] = _text_of(types_of(read.entity))
        return _panel(request, key, read.fields, json=json_of(read.entity), **typed)
    return _panel(request, key, _as_new(read.fields) if is_new else read.fields, **typed)


def _read(form: PostedForm, *, is_new: bool) -> tuple[EntityKey, ReadForm, dict[str, Any]]:
    """The key and the entity of the form, and what `_panel` needs to show it again as it was typed."""
    key = EntityKey(form.text("pk"), form.text("rk"))
    typed: dict[str, Any] = {"is_new": is_new, "json": None, "is_typed": True}
    typed |= form.typed("etag", "timestamp", "shown", "json_types", "back")
    for text in form.texts("json"):
        read, line = read_json_form(key, text, form.members("json_types"))
        return key, read, typed | {"json": text, "line": line}
    # Only a String and a Binary can be empty, and a new entity leaves out all empty fields.
    rows = form.rows("name", "kind", "text")
    kept = [row for row in rows if row[2] or (row[1] in ("String", "Binary") and not is_new)]
    return key, read_form(key, kept), typed


def ask_delete(request: Request) -> Response:
    """Ask whether to delete the version of an entity that the address names."""
    given, key, is_kept = request.query_params, _key_in_address(request), False
    account, table = account_of(request), request.path_params["table"]
    etag, time = given.get("etag", ""), given.get("timestamp", "")
    with suppress(TransferFailed, Unreachable):  # most services have no record of changes
        is_kept = account.kept_version(table, key, etag, time) is not None
    return page(request, "delete_entity.html", key=key, etag=etag, is_kept=is_kept)


def delete(request: Request, form: PostedForm) -> Response:
    """Delete an entity if its ETag is still the one shown."""
    etag, table = form.text("etag"), request.path_params["table"]
    key = EntityKey(form.text("pk"), form.text("rk"))
    try:
        _write(request, Operation("DELETE", key, if_match=etag or "*"))
    except ServiceError as error:
        raw = _stored_now(request, key, error)
        if raw is None:
            return _gone(request, key)
        problem = CHANGED.format(raw.get(TIMESTAMP, ""))
        return _panel(request, key, fields_of(raw), raw=raw, problem=problem, status=409)
    if not wants_part(request):
        return RedirectResponse(path_to(request, "tables", table), 303)
    return page(request, "done.html", changed=True, sentences=["1 entity is deleted."])


def _write(request: Request, operation: Operation) -> str | None:
    return account_of(request).endpoint.write(request.path_params["table"], operation)


def _stored(request: Request, key: EntityKey) -> RawEntity | None:
    return account_of(request).endpoint.get(request.path_params["table"], key)


def _text_of(members: Mapping[str, Any]) -> str:
    """The content of an entity, or its types, for a form that says later what it showed."""
    return orjson.dumps(odata.content_of(members)).decode("utf-8")


def _stored_now(request: Request, key: EntityKey, error: ServiceError) -> RawEntity | None:
    """The present state of an entity whose ETag was refused; None if it was deleted. Raises any other error."""
    if error.status == 404 and error.code in ("ResourceNotFound", ""):
        return None
    if error.status != 412:
        raise error
    return _stored(request, key)


def _key_in_address(request: Request) -> EntityKey:
    return EntityKey(request.query_params.get("pk", ""), request.query_params.get("rk", ""))


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
        "shown": _text_of(stored) if raw else "",
        "json_types": "",
        "back": "",
        "is_typed": False,
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
    policy = account_of(request).expiry(request.path_params["table"])
    sentence = f"The entity {key.partition_key!r}, {key.row_key!r} does not exist."
    if policy and not policy.suspended:
        sentence = (
            f"{sentence[:-1]}, or has expired: entities of this table expire {policy.in_words}."
        )
    return page(request, "problem.html", changed=True, sentence=sentence, key=key, status=404)
