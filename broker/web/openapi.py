"""The OpenAPI 3.1 document of all HTTP APIs, built from the tables used for routing and checks.

Paths are from the table of calls, schemas from members and answers (`openapi_answers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from delaylog import __version__
from delaylog.broker.calls.access.sessions import COOKIE
from delaylog.broker.calls.context import BULK, JSON, MSGPACK
from delaylog.broker.calls.forms.arrow_stream import ARROW
from delaylog.broker.calls.forms.bulk_bodies import FORMS
from delaylog.broker.engine.limits import Limits
from delaylog.broker.web.openapi_answers import OF_SCHEDULES, answer_schemas, ref
from delaylog.broker.web.request_heads import REFUSALS
from delaylog.contract.calls.call import ApiCall, Right, Takes
from delaylog.contract.calls.schedules import NAME as SCHEDULE_NAME
from delaylog.contract.calls.shapes import JSON_ROWS_MAX, NAME_PATTERN, READ, TRANSACTION_ID_PATTERN
from delaylog.contract.calls.streams import EVENTS
from delaylog.contract.calls.table import ALL
from delaylog.contract.calls.topics import IN_NAMESPACES
from delaylog.contract.error_codes import CODES
from delaylog.contract.members import Schema, Shape
from delaylog.contract.message_fields import ID_PATTERN

ANY_PROBLEM: Final = (401, *REFUSALS, 408, 413, 414, 429, 431)
OF_PAGES: Final = (401, *REFUSALS, 429)
MEANINGS: Final = {
    101: "A WebSocket begins.",
    200: "Done.",
    201: "Created.",
    202: "Accepted: a job carries it out.",
    307: "Another node leads: send the request again to the URL in `Location`.",
    500: "Not now.",
    **{kind.status: f"{kind.title}." for kind in reversed(CODES.values())},
}
PAGES: Final[dict[str, tuple[str, Right | None, str, dict[int, tuple[str, str]]]]] = {
    "/healthz": ("health", None, "Liveness.", {200: (JSON, "Health")}),
    "/readyz": (
        "readiness",
        None,
        "Readiness.",
        {200: (JSON, "Ready"), 503: ("application/problem+json", "Problem")},
    ),
    "/metrics": ("metrics", "metrics", "Prometheus metrics.", {200: ("text/plain", "")}),
    "/openapi.json": ("openapi", "any", "This document.", {200: (JSON, "")}),
    "/": ("about", "any", "What this is.", {200: (JSON, "About")}),
}
"""Pages for operations: name, right (None: none is needed), summary, and for each status its
content type and schema.
"""


@dataclass(frozen=True, slots=True)
class Described:
    """The part that a leaf adds."""

    paths: Mapping[str, Any]
    schemas: Mapping[str, Schema]


def openapi_document(limits: Limits, parts: Iterable[Described] = ()) -> dict[str, Any]:
    """The OpenAPI 3.1 document of a node with these limits. `parts`: what leaves add."""
    schemas = answer_schemas(limits) | OF_SCHEDULES
    paths: dict[str, Any] = {}
    within = [
        replace(
            call,
            name=f"{call.name}InNamespace",
            request_line=call.request_line.replace("/v1", "/v1/ns/{ns}", 1),
        )
        for call in IN_NAMESPACES
    ]
    for call in (*within, *ALL):
        item = paths.setdefault(call.path, _path_item(call.path))
        item[call.method.lower()] = _operation(call, limits, schemas)
    for path, (name, _, doc, answers) in PAGES.items():
        paths[path] = {"get": page(name, doc, answers)}
    for part in parts:
        paths.update(part.paths)
        schemas |= part.schemas
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "delaylog",
            "version": __version__,
            "description": "A delayed-message broker: messages are released at their millisecond.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
        "security": [{"token": []}, {"session": []}, {}],
    }
    _add_types(document)
    return document


_TYPES: Final = {bool: "boolean", int: "integer", str: "string", type(None): "null"}


def _add_types(part: Any) -> None:
    """Complete the schemas for generators of clients.

    They take a value without a type for an object, and an integer without a format for one of 32
    bits, in which no time fits.
    """
    if isinstance(part, list):
        for each in part:
            _add_types(each)
    if not isinstance(part, dict):
        return
    values = part["enum"] if isinstance(part.get("enum"), list) else [part.get("const", ...)]
    if values != [...]:
        kinds = list(dict.fromkeys(_TYPES[type(value)] for value in values))
        part["type"] = kinds if len(kinds) > 1 else kinds[0]
    if part.get("type") in ("integer", ["integer", "null"]):
        part["format"] = "int64"
    for each in part.values():
        _add_types(each)


_NAME: Final[Schema] = {"type": "string", "pattern": NAME_PATTERN}
_ID: Final[Schema] = {"type": "string", "pattern": TRANSACTION_ID_PATTERN}
_PATH_NAMES: Final[dict[str, tuple[str, Schema]]] = {
    "topic": ("Name of the topic.", _NAME),
    "group": ("Name of the group.", _NAME),
    "ns": ("Namespace.", _NAME),
    "schedule": (
        "Name of the schedule.",
        {"type": "string", "maxLength": 200, "pattern": SCHEDULE_NAME.pattern},
    ),
    "claim": ("Name of the claim.", _ID),
    "id": (
        f"Id of the message: your own ({ID_PATTERN}) or one made by the server.",
        {"type": "string", "minLength": 1, "maxLength": 255},
    ),
    "job": ("Name of the job.", {"type": "string", "pattern": "^j[1-9][0-9]{0,17}$"}),
    "transaction": ("Id of the transaction.", _ID),
    "principal": (
        "Name of the principal.",
        {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$"},
    ),
}


def _path_item(path: str) -> dict[str, Any]:
    """The parameters in the path."""
    return {
        "parameters": [
            {
                "name": name,
                "in": "path",
                "required": True,
                "description": doc,
                "schema": schema,
            }
            for name, (doc, schema) in _PATH_NAMES.items()
            if f"{{{name}}}" in path
        ]
    }


def _operation(call: ApiCall, limits: Limits, schemas: dict[str, Schema]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operationId": call.name,
        "summary": call.doc,
        "tags": ["native"],
        "parameters": [
            {
                "name": member.name,
                "in": "query",
                "required": member in call.query_needed,
                "schema": member.schema(limits),
            }
            for member in (*call.query, *((READ,) if call.reads else ()))
        ],
    }
    if call.takes is not None:
        entry["requestBody"] = _request(call.takes, limits, schemas)
    if call.path.endswith("/messages") and call.method == "POST":
        entry["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "A repeat within ten minutes is answered as the first was.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 200},
            }
        )
    responses: dict[str, Any] = {}
    for status, schema in ((200, call.answer), *((call.other,) if call.other else ())):
        kinds = (EVENTS,) if call.streams else (JSON, MSGPACK)
        content = {kind: {"schema": ref(schema)} for kind in kinds}
        if call.bulk_answer:
            content[BULK] = {"schema": {}}
        if call.arrow_answer:
            content[ARROW] = {"schema": {}}
        responses[str(status)] = {"description": MEANINGS[status], "content": content}
    if call.streams:
        responses["101"] = {"description": MEANINGS[101]}
    for status in (*ANY_PROBLEM, *call.refusals):
        responses[str(status)] = problem(status)
    if not call.local:
        responses["307"] = {
            "description": MEANINGS[307],
            "headers": {"Location": {"schema": {"type": "string", "format": "uri"}}},
        }
    responses["503"] = problem(503)
    entry["responses"] = responses
    return entry


def problem(status: int) -> dict[str, Any]:
    return {
        "description": MEANINGS[status],
        "content": {"application/problem+json": {"schema": ref("Problem")}},
    }


def _request(takes: Takes, limits: Limits, schemas: dict[str, Schema]) -> dict[str, Any]:
    content: dict[str, Any]
    if takes.columns:
        content = {form: {"schema": {"type": "string", "format": "binary"}} for form in FORMS}
        return {"required": takes.needed, "content": content}
    if isinstance(takes.shape, Shape):
        name = "".join(word.capitalize() for word in takes.shape.title.split())
        schemas.setdefault(name, takes.shape.schema(limits))
    else:
        name = takes.shape
    schema = ref(name)
    if takes.many:
        many = {
            "type": "array",
            "items": schema,
            "minItems": 1,
            "maxItems": JSON_ROWS_MAX,
        }
        schemas.setdefault(f"{name}OrList", {"anyOf": [schema, many]})
        schema = ref(f"{name}OrList")
    content = {kind: {"schema": schema} for kind in (JSON, MSGPACK)}
    if takes.bulk:
        content[BULK] = {"schema": {"type": "string", "format": "binary"}}
    if takes.arrow:
        content[ARROW] = {"schema": {"type": "string", "format": "binary"}}
    return {"required": takes.needed, "content": content}


def page(name: str, doc: str, answers: dict[int, tuple[str, str]]) -> dict[str, Any]:
    """The GET of a page: its answers are a content type and a schema for each status."""
    return {
        "operationId": name,
        "summary": doc,
        "tags": ["operations"],
        "responses": {
            **{
                str(status): {
                    "description": MEANINGS[status],
                    "content": {kind: {"schema": ref(schema) if schema else {}}},
                }
                for status, (kind, schema) in answers.items()
            },
            **{str(status): problem(status) for status in OF_PAGES},
        },
    }
