"""The OpenAPI document of the control API, written from its table of routes."""

from __future__ import annotations

import re
from typing import Any, Final

from tablestone import __version__
from tablestone.testing.control_operations import BYTES, JSON
from tablestone.testing.control_routes import ANSWERS, ROUTES, Member, Route, Schema

DESCRIPTION: Final = (
    "State, faults and clock of a Tablestone server that was started with --control. It is for tests, and only "
    "programs on the same machine reach it. Each error is one sentence."
)
_NAME_IN_PATH: Final = re.compile(r"\{(\w+)\}")


def openapi(address: str) -> Schema:
    """The document, for the API at this address."""
    paths: dict[str, Schema] = {
        "/openapi.json": {
            "get": {
                "summary": "This document.",
                "operationId": "openapi",
                "responses": {
                    "200": {
                        "description": "Done.",
                        "content": {JSON: {"schema": {"type": "object"}}},
                    }
                },
            }
        }
    }
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Control of a Tablestone server for tests",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": address}],
        "paths": paths,
        "components": {"schemas": dict(ANSWERS)},
    }


def schema_of(members: tuple[Member, ...] | None) -> Schema:
    """The schema of a request's JSON."""
    if members is None:
        return _answer("Entities")
    return {
        "type": "object",
        "properties": {
            member.name: member.kind.schema | {"description": member.text} for member in members
        },
        "required": [member.name for member in members if member.is_required],
        "additionalProperties": False,
    }


def _operation(route: Route) -> Schema:
    written: Schema = {
        "summary": route.summary,
        "operationId": getattr(route.perform, "__name__", route.path),
        "responses": {
            str(route.status): _done(route),
            "default": {
                "description": "Refused, in one sentence.",
                "content": {JSON: {"schema": _answer("Error")}},
            },
        },
    }
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _NAME_IN_PATH.findall(route.path)
    ]
    parameters += [
        {
            "name": member.name,
            "in": "query",
            "required": member.is_required,
            "description": member.text,
            "schema": member.kind.schema,
        }
        for member in route.query
    ]
    if parameters:
        written["parameters"] = parameters
    content: dict[str, Any] = {}
    if route.members is None or route.members:
        content[JSON] = {"schema": schema_of(route.members)}
    for form in route.bodies:
        content[form] = {} if form == BYTES else {"schema": {"type": "string"}}
    if content:
        is_required = route.members is None or any(each.is_required for each in route.members)
        written["requestBody"] = {"required": is_required, "content": content}
    return written


def _done(route: Route) -> Schema:
    if route.answer is None:
        return {"description": "Done."}
    if route.answers_bytes:
        return {"description": "Done.", "content": {BYTES: {}}}
    return {"description": "Done.", "content": {JSON: {"schema": _answer(route.answer)}}}


def _answer(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
