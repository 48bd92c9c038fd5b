"""The part of the OpenAPI document that describes camellia's API."""

from __future__ import annotations

from typing import Any, Final

from delaylog.broker.calls.context import JSON
from delaylog.broker.camellia.face import BASE, CALLS, PLAIN, Call
from delaylog.broker.camellia.monitor import REQUEST_KINDS, STRETCH_NAMES
from delaylog.broker.camellia.params import FORM
from delaylog.broker.web.openapi import ANY_PROBLEM, MEANINGS, OF_PAGES, Described, problem
from delaylog.broker.web.openapi_answers import COUNT, INT, TEXT, each, list_of, object_of, ref
from delaylog.contract.members import Schema


def described() -> Described:
    """It depends on nothing of a node."""
    return Described(_paths(), _schemas())


def _schemas() -> dict[str, Schema]:
    """By name."""
    gaps = list_of(object_of(topic=TEXT, **each(COUNT, "count", "max"), avg={"type": "number"}))
    return {
        "CamelliaMessage": object_of(
            **each(TEXT, "topic", "msgId", "msg"),
            **each(INT, "produceTime", "triggerTime", "expireTime"),
            **each(COUNT, "maxRetry", "retry"),
            status={"type": "integer", "minimum": 1, "maximum": 7},
        ),
        "CamelliaTopicInfo": object_of(
            topic=TEXT,
            waitingQueueInfo=object_of(**each(COUNT, *STRETCH_NAMES)),
            **each(COUNT, "waitingQueueSize", "readyQueueSize", "ackQueueSize"),
        ),
        "CamelliaRequests": object_of(topic=TEXT, **each(COUNT, *REQUEST_KINDS)),
        "CamelliaMonitorData": object_of(
            requestStatsList=list_of(ref("CamelliaRequests")),
            **each(gaps, "pullMsgTimeGapStatsList", "readyQueueTimeGapStatsList"),
        ),
        "CamelliaHealth": object_of(code={"enum": [200, 500]}),
    }


_ANSWERED: Final[dict[str, Schema]] = {
    "sendMsg": ref("CamelliaMessage"),
    "getMsg": ref("CamelliaMessage"),
    "pullMsg": {"type": "array", "items": ref("CamelliaMessage")},
    "longPollingMsg": {"type": "array", "items": ref("CamelliaMessage")},
    "getTopicInfo": ref("CamelliaTopicInfo"),
    "getTopicInfoList": {"type": "array", "items": ref("CamelliaTopicInfo")},
    "getMonitorData": ref("CamelliaMonitorData"),
}


def _paths() -> dict[str, Any]:
    paths = {
        f"{BASE}{name}": {call.method.lower(): _call(name, call)} for name, call in CALLS.items()
    }
    for path, (methods, _, handler) in PLAIN.items():
        health = "/health/" in path
        content = {"application/json" if health else "text/plain": _plain_schema(health)}
        statuses = (200, 500) if path.endswith(("status", "offline")) else (200,)
        entry = {
            "operationId": f"camellia_{handler.__name__}",
            "summary": (handler.__doc__ or "").strip(),
            "tags": ["camellia"],
            "responses": {
                **{
                    str(status): {"description": MEANINGS[status], "content": content}
                    for status in statuses
                },
                **{str(status): problem(status) for status in OF_PAGES},
            },
        }
        paths[path] = {
            method.lower(): {**entry, "operationId": f"{entry['operationId']}_{method.lower()}"}
            for method in methods
        }
    return paths


def _plain_schema(health: bool) -> dict[str, Any]:
    return {"schema": ref("CamelliaHealth") if health else {"type": "string"}}


def _call(name: str, call: Call) -> dict[str, Any]:
    members: dict[str, Schema] = {
        "code": {"enum": [200, 400, 404, 500]},
        "msg": {"type": ["string", "null"]},
    }
    if call.answer:
        members[call.answer] = {"anyOf": [_ANSWERED[name], {"type": "null"}]}
    answer = {
        "type": "object",
        "properties": members,
        "required": list(members) if call.null_members else ["code"],
    }
    entry: dict[str, Any] = {
        "operationId": f"camellia_{name}",
        "summary": call.doc,
        "tags": ["camellia"],
        "responses": {
            "200": {
                "description": "The outcome is in `code`.",
                "content": {JSON: {"schema": answer}},
            },
            **{str(status): problem(status) for status in ANY_PROBLEM},
        },
    }
    if call.method == "GET":
        entry["parameters"] = [
            {
                "name": param.name,
                "in": "query",
                "required": param.required,
                "schema": param.schema(),
            }
            for param in call.params
        ]
        return entry
    form = {
        "type": "object",
        "properties": {param.name: param.schema() for param in call.params},
        "required": [param.name for param in call.params if param.required],
    }
    entry["requestBody"] = {"required": True, "content": {FORM: {"schema": form}}}
    return entry
