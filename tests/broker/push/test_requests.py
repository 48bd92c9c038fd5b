"""Requests of pushes: attributes in both modes, and headers that inject or replace nothing."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.push.requests import (
    HEADER_PREFIX,
    PushedMessage,
    event_id,
    make_request,
    rfc3339,
)
from delaylog.contract.calls.targets import BINARY, STRUCTURED

SOURCE = "/topics/mails"


def message(body: bytes = b'{"a":1}', **more: Any) -> PushedMessage:
    values: dict[str, Any] = {
        "id": "~0000000000000001",
        "own_id": "",
        "deliver_at_ms": 1_790_000_000_123,
        "attempts": 2,
        "key": "",
        "tags": [],
        "headers": {},
        "body": body,
    }
    return PushedMessage(**values | more)


def test_binary_mode_has_attributes_as_headers() -> None:
    made = make_request(message(own_id="o 1", key="k", tags=["a", "b"]), SOURCE, BINARY)
    assert made.body == b'{"a":1}'
    assert made.headers == [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "~0000000000000001"),
        ("ce-source", "/topics/mails"),
        ("ce-type", "delaylog.message"),
        ("ce-deliverat", "2026-09-21T14:13:20.123Z"),
        ("ce-attempt", "2"),
        ("ce-subject", "o%201"),
        ("ce-partitionkey", "k"),
        ("ce-tags", "a,b"),
    ]


def test_structured_mode_has_all_in_one_document() -> None:
    made = make_request(message(key="k", headers={"X": "1"}), SOURCE, STRUCTURED)
    assert made.headers == [
        ("content-type", "application/cloudevents+json; charset=utf-8"),
        ("delaylog-header-x", "1"),
    ]
    assert json.loads(made.body) == {
        "specversion": "1.0",
        "id": "~0000000000000001",
        "source": "/topics/mails",
        "type": "delaylog.message",
        "deliverat": "2026-09-21T14:13:20.123Z",
        "attempt": 2,
        "partitionkey": "k",
        "datacontenttype": "application/json",
        "data": {"a": 1},
    }


@pytest.mark.parametrize("mode", [BINARY, STRUCTURED])
def test_the_trace_of_the_send_is_an_attribute(mode: str) -> None:
    """By the extension of CloudEvents, not as headers that would continue the trace."""
    context = {"Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    made = make_request(message(headers=context | {"tracestate": "v=1", "x": "1"}), SOURCE, mode)
    told = {"traceparent": context["Traceparent"], "tracestate": "v=1"}
    if mode == STRUCTURED:
        assert told.items() <= json.loads(made.body).items()
    else:
        assert {(f"ce-{name}", value) for name, value in told.items()} <= set(made.headers)
    assert [name for name, _ in made.headers if not name.startswith("ce-")] == [
        "content-type",
        "delaylog-header-x",
    ]


@pytest.mark.parametrize(
    ("body", "headers", "media_type", "data"),
    [
        (b"[1]", {}, "application/json", {"data": [1]}),
        (b"hello", {}, "text/plain; charset=utf-8", {"data": "hello"}),
        (b"\xff", {}, "application/octet-stream", {"data_base64": "/w=="}),
        (b"1", {"Content-Type": "text/csv"}, "text/csv", {"data": "1"}),
        (b"{}", {"content-type": "application/x+json"}, "application/x+json", {"data": {}}),
        (b"{", {"content-type": "application/json"}, "application/json", {"data_base64": "ew=="}),
        (b"x", {"content-type": "text/plain\r\nX: y"}, "text/plain; charset=utf-8", {"data": "x"}),
        (b"x", {"content-type": "text/plain\r\n;a=b"}, "text/plain; charset=utf-8", {"data": "x"}),
        (b"x", {"content-type": "text/plain;\x0ba=b"}, "text/plain; charset=utf-8", {"data": "x"}),
        (b"x", {"content-type": "no type"}, "text/plain; charset=utf-8", {"data": "x"}),
        (b"NaN", {}, "text/plain; charset=utf-8", {"data": "NaN"}),
        (b"", {}, "text/plain; charset=utf-8", {"data": ""}),
    ],
)
def test_the_type_of_a_body(
    body: bytes, headers: dict[str, str], media_type: str, data: dict[str, Any]
) -> None:
    binary = make_request(message(body, headers=headers), SOURCE, BINARY)
    assert dict(binary.headers)["content-type"] == media_type
    assert binary.body == body
    document = json.loads(make_request(message(body, headers=headers), SOURCE, STRUCTURED).body)
    assert document["datacontenttype"] == media_type
    assert {
        name: document[name] for name in document if name.startswith("data") and name in data
    } == data


@given(
    headers=st.dictionaries(st.text(max_size=20), st.text(max_size=40), max_size=5), id=st.text()
)
@pytest.mark.parametrize("mode", [BINARY, STRUCTURED])
def test_no_header_injects_or_replaces_another(mode: str, headers: dict[str, str], id: str) -> None:
    own = ("content-type", "traceparent", "tracestate")
    sent = {name: value for name, value in headers.items() if name.lower() not in own}
    plain = make_request(message(own_id=id), SOURCE, mode).headers
    made = make_request(message(own_id=id, headers=sent), SOURCE, mode).headers
    assert made[: len(plain)] == plain
    for name, value in made:
        assert re.fullmatch(r"[A-Za-z0-9_.~%-]+", name)
        assert re.fullmatch(r"[\x20-\x7e]*", value)
    more = made[len(plain) :]
    assert all(name.startswith(HEADER_PREFIX) for name, _ in more)
    assert [(unquote(name[len(HEADER_PREFIX) :]), unquote(value)) for name, value in more] == [
        (name.lower(), value) for name, value in sent.items()
    ]


def test_bytes_survive_structured_mode() -> None:
    body = bytes(range(256))
    document = json.loads(make_request(message(body), SOURCE, STRUCTURED).body)
    assert base64.b64decode(document["data_base64"]) == body


def test_a_time_that_no_calendar_has() -> None:
    assert rfc3339(2**60) == "9999-12-31T23:59:59.999Z"
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"


FIRING = {"schedule": "tick", "due": "1790000000000", "n": "7"}


@pytest.mark.parametrize(
    ("own_id", "headers", "firing"),
    [
        ("tick@1790000000000", FIRING, True),
        ("tick@1790000000000", FIRING | {"n": "8", "x": "y"}, True),
        # A backfill sends a further message for the instant.
        ("tick@1790000000000", FIRING | {"n": "0"}, False),
        ("tick@1790000000001", FIRING, False),
        ("other@1790000000000", FIRING, False),
        ("", FIRING, False),
        ("tick@1790000000000", {}, False),
        ("order@1790000000000", {"schedule": "tick"}, False),
        ("None@None", {"schedule": "None", "n": "1"}, False),
    ],
)
def test_only_a_firing_has_an_id_of_its_instant(
    own_id: str, headers: dict[str, str], firing: bool
) -> None:
    """Copies of a broker give different refs to one instant; everything else keeps its ref."""
    ids = {event_id(ref, own_id, headers, SOURCE) for ref in ("~1", "~2")}
    assert len(ids) == (1 if firing else 2)
    assert event_id("~1", own_id, headers, "/topics/others") not in ids - {"~1"}
    assert all(re.fullmatch(r"firing_[0-9a-f]{32}|~[12]", each) for each in ids)
