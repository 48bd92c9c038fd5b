"""The OpenAPI document is legal, and a live server keeps to it whatever is thrown at it.

schemathesis makes requests from the document, legal ones and broken ones, and holds every answer
against it: no 5xx, documented statuses and content types, bodies that match their schemas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from openapi_spec_validator import validate
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from delaylog.broker.camellia.openapi import described
from delaylog.broker.engine.limits import Limits
from delaylog.broker.streams.live import LIVE, PAGE
from delaylog.broker.web.openapi import openapi_document
from delaylog.contract.calls.shapes import FILTER
from tests.broker.web.access_calls import filled
from tests.effort import tries

BULK = "application/vnd.delaylog.batch"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 30
KEPT, BROKEN = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
DOCUMENT = openapi_document(Limits(), [PAGE.described, described()])
ANSWERS_OF_EVERY_CLIENT = ("Sent", "SentMessage", "Received", "ReceivedMessage", "Settled")


def has_twin(path: str) -> bool:
    """Whether it is a call outside of a namespace: the same as within one, by the same declaration
    and handler, which has a parameter more.
    """
    within = path.replace("/v1/", "/v1/ns/{ns}/", 1)
    return within != path and within in DOCUMENT["paths"]


def may_be_broken(item: dict[str, Any], operation: dict[str, Any]) -> bool:
    """Where nothing is taken nothing can be broken."""
    return bool(item.get("parameters") or operation.get("parameters") or "requestBody" in operation)


CALLS = [
    pytest.param(path, method, mode, id=f"{method} {path} {mode.value}")
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    # A stream of live reads has no end; test_live.py has its refusals.
    if method != "parameters" and not has_twin(path) and path != LIVE
    for mode in (KEPT, BROKEN)
    if mode is KEPT or may_be_broken(item, operation)
]


@schemathesis.serializer("application/msgpack")
def to_msgpack(_ctx: Any, value: Any) -> bytes:
    """The same members as msgpack."""
    try:
        return bytes(msgpack.packb(value))
    except (TypeError, ValueError, OverflowError):
        return b"\xc1"


@schemathesis.serializer(BULK)
def to_bulk(_ctx: Any, value: Any) -> bytes:
    """Anything at all: bulk bodies have tests of their own."""
    return value if isinstance(value, bytes) else bytes(msgpack.packb(str(value)))


@schemathesis.deserializer("application/msgpack")
def from_msgpack(_ctx: Any, response: Any) -> Any:
    """Members of an answer; bodies are bytes there, which the document calls text."""
    return json.loads(json.dumps(msgpack.unpackb(response.content), default=as_text))


def as_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


@pytest.fixture(scope="module")
def served(sound_broker: Callable[..., Any]) -> Any:
    shapes = "delaylog.contract.calls.shapes"
    waits = (
        f"{shapes}.WAIT_MS.high",
        f"{shapes}.TAIL_WAIT_MS.high",
        "delaylog.broker.camellia.queue_calls.WAIT_MS_MAX",
    )
    return sound_broker(constants=dict.fromkeys(waits, 20))


@pytest.fixture(scope="module")
def document(served: Any) -> Any:
    return served.call("GET", "/openapi.json").json


@pytest.fixture(scope="module")
def api(document: Any) -> Any:
    """The document, which shall name every member of every answer of this release."""
    return schemathesis.openapi.from_dict(closed(document))


def closed(part: Any) -> Any:
    """Schemas that allow no other members than theirs."""
    if isinstance(part, list):
        return [closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    limits = {}
    if part.get("type") == "object" and "properties" in part:
        limits["additionalProperties"] = False
    return limits | {name: closed(each) for name, each in part.items()}


def test_the_document_is_openapi_3_1(document: Any) -> None:
    validate(document)
    assert document["openapi"].startswith("3.1")


def test_what_generators_of_clients_need_is_there(document: Any) -> None:
    """A type beside each list of values, and 64 bits for each integer: a time has 41."""
    count = 0
    for schema in schemas_within(document):
        if "enum" in schema or "const" in schema:
            assert "type" in schema, schema
        if schema.get("type") in ("integer", ["integer", "null"]):
            assert schema["format"] == "int64", schema
            count += 1
    assert count > 100
    for name, answer in document["components"]["schemas"].items():
        if name in ANSWERS_OF_EVERY_CLIENT:
            assert not answer.keys() & {"oneOf", "additionalProperties"}, name


def schemas_within(part: Any) -> Iterator[dict[str, Any]]:
    """All schemas, and objects that are none."""
    if isinstance(part, dict):
        yield part
    if isinstance(part, (dict, list)):
        for each in part.values() if isinstance(part, dict) else part:
            yield from schemas_within(each)


def test_every_call_is_described_once(document: Any) -> None:
    names = [
        operation["operationId"]
        for item in document["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
    ]
    assert len(names) == len(set(names))
    assert len(names) > 50


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("Origin", "http://evil.example", 403),
        ("Content-Encoding", "gzip", 415),
        ("Host", "evil.example", 421),
    ],
)
def test_what_any_request_may_be_refused_for_is_described(
    served: Any, document: Any, name: str, value: str, status: int
) -> None:
    for template, item in document["paths"].items():
        for method in item.keys() - {"parameters"}:
            body = None if method == "get" else b"{}"
            answer = served.call(method.upper(), filled(template, "n", "t"), body, {name: value})
            assert answer.status == status, (method, template, answer)
            kind = answer.headers["Content-Type"].partition(";")[0]
            assert kind in item[method]["responses"][str(status)]["content"], (method, template)


def test_what_is_described_is_served_and_nothing_else(served: Any, document: Any) -> None:
    """A method that is not described is refused with 405; a described one never is."""
    for template, item in document["paths"].items():
        path = filled(template, "n", "t")
        for method in ("GET", "PUT", "POST", "PATCH", "DELETE"):
            answer = served.call(method, path, b"{}" if method != "GET" else None)
            if template.startswith("/camellia/health/"):
                continue
            refused = answer.status == 405
            assert refused == (method.lower() not in item), (method, path, answer)


def test_a_call_outside_of_a_namespace_is_described_as_within_one(document: Any) -> None:
    """So requests are made for the one within it only."""
    paths = document["paths"]
    twins = [(path, path.replace("/v1/ns/{ns}/", "/v1/")) for path in paths if "{ns}" in path]
    assert len(twins) > 20
    for within, outside in twins:
        shown, also = dict(paths[within]), dict(paths[outside])
        named = [each for each in shown.pop("parameters") if each["name"] != "ns"]
        assert named == also.pop("parameters", [])
        assert shown.keys() == also.keys()
        for method, operation in shown.items():
            same = {"operationId": operation["operationId"]}
            assert operation == also[method] | same, (method, within)


def test_a_job_is_described_with_every_member_of_its_filter() -> None:
    """No request that schemathesis makes begins a job by reason: its topic would have to exist."""
    job = DOCUMENT["components"]["schemas"]["Job"]["properties"]
    assert job["filter"]["properties"].keys() == FILTER.shape.names


def test_limits_of_the_node_stand_in_the_document(document: Any) -> None:
    receive = document["components"]["schemas"]["ReceiveOrPeek"]["properties"]
    assert receive["wait_ms"]["maximum"] == 20


def may_be_5xx(path: str, response: Any) -> bool:
    """Whether this call may answer so; everywhere else it is a fault.

    camellia's health switch says 500 for "out of service". A claim may be asked for with a lease
    of a millisecond, which can be over before the claim is made.
    """
    if path.startswith("/camellia/health/"):
        return True
    return (
        path.endswith("/claims/{claim}")
        and response.status_code == 503
        and "took longer than it may" in response.json()["detail"]
    )


@pytest.mark.parametrize(("path", "method", "mode"), CALLS)
def test_every_answer_matches(served: Any, api: Any, path: str, method: str, mode: Any) -> None:
    """Requests that keep to the document, and such that break it."""
    operation = api[path][method]
    session = requests.Session()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=tries(EXAMPLES),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def run(case: Any) -> None:
        response = case.call(base_url=served.url, session=session, timeout=30)
        checks = CHECKS[1:] if may_be_5xx(path, response) else CHECKS
        case.validate_response(response, checks=checks)

    run()
