"""Rows: what one message comes to, and which mistakes are told at once, to whoever made them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack
import pytest

from delaylog.client.models import NewMessage
from delaylog.client.sending.batch import (
    check_several,
    is_relative,
    make_row,
    merge_of,
    row_of,
)
from delaylog.client.wire.checks import check_topic
from delaylog.contract.message_fields import MAX_RETRY, PRIORITY
from delaylog.contract.own_backoff import encode_own_backoff

DAY = timedelta(days=1)
MS = timedelta(milliseconds=1)


def test_a_plain_message_is_a_body_and_a_time() -> None:
    body, kind, time_ms, members = make_row("hé", delay=5 * MS)
    assert (body, time_ms, members) == ("hé".encode(), 5, None)
    assert is_relative(kind)
    assert merge_of(kind) is None


@pytest.mark.parametrize(
    ("times", "relative", "time_ms"),
    [
        ({}, True, 0),
        ({"delay": 7 * MS}, True, 7),
        ({"deliver_at_ms": 10**12}, False, 10**12),
        ({"deliver_at_ms": 0}, False, 0),
        ({"at": datetime(2001, 9, 9, 1, 46, 40, 1, tzinfo=UTC)}, False, 10**12 + 1),
    ],
)
def test_a_time_is_given_in_one_of_three_ways(
    times: dict[str, Any], relative: bool, time_ms: int
) -> None:
    _, kind, found_ms, _ = make_row(b"", **times)
    assert (is_relative(kind), found_ms) == (relative, time_ms)


def test_members_are_as_a_bulk_body_wants_them() -> None:
    _, kind, _, members = make_row(
        b"x",
        id="né",
        key="k",
        tags=["a", "b"],
        headers={"h": "v"},
        priority=-3,
        ttl=timedelta.max,
        max_retry=0,
        merge="replace",
    )
    packed = msgpack.packb({"h": "v"})
    assert members == {
        "id": "né".encode(),
        "key": b"k",
        "tags": b"a\nb",
        "headers": packed,
        "priority": -3,
        "ttl_ms": -1,
        "max_retry": 0,
    }
    assert merge_of(kind) == "replace"


def test_a_backoff_goes_in_front_of_the_headers() -> None:
    backoff = {"first_ms": 5, "jitter": 0.5}
    front, packed = encode_own_backoff(backoff), msgpack.packb({"h": "v"})
    assert make_row(b"x", backoff=backoff)[3] == {"headers": front}
    assert make_row(b"x", backoff=backoff, headers={"h": "v"})[3] == {"headers": front + packed}
    assert make_row(b"x", backoff={})[3] is None


def test_a_buffer_is_copied_since_its_owner_may_go_on_writing() -> None:
    buffer = bytearray(b"abc")
    body = make_row(memoryview(buffer))[0]  # type: ignore[arg-type]
    buffer[0] = 0
    assert body == b"abc"


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"delay": DAY, "deliver_at_ms": 1}, "2 times"),
        ({"id": ""}, "not empty"),
        ({"id": "~1"}, "that brokers make"),
        ({"id": "a\x00"}, "control"),
        ({"id": "a\x85"}, "control"),
        ({"id": "é" * 128}, "255 bytes"),
        ({"id": "\ud800"}, "Unicode"),
        ({"key": "k" * 256}, "255 bytes"),
        ({"tags": ["t"] * 17}, "0 to 16 texts"),
        ({"tags": ["t" * 65]}, "1 to 64 bytes"),
        ({"tags": ["a\nb"]}, "newlines"),
        ({"tags": [""]}, "1 to 64 bytes"),
        ({"headers": {"h": "v" * 16_384}}, "16384"),
        ({"headers": {"h": "\ud800"}}, "Unicode"),
        ({"priority": PRIORITY.high + 1}, "priority"),
        ({"ttl": -DAY}, "ttl is not negative"),
        ({"max_retry": MAX_RETRY.high + 1}, "max_retry"),
        ({"backoff": {"first_ms": -1}}, "first_ms must lie from 0"),
        ({"backoff": {"factor": float("nan")}}, "factor must lie from 1"),
        ({"backoff": {"last_ms": 1}}, "unknown member 'last_ms'"),
        ({"merge": "both"}, "keep, replace, reject"),
    ],
)
def test_a_wrong_value_is_told_at_once(members: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_row(b"", **members)


@pytest.mark.parametrize(
    "members",
    [
        {"body": 5},
        {"delay_ms": 1},
        {"ttl_ms": 1},
        {"id": b"a"},
        {"key": 5},
        {"tags": "a"},
        {"tags": [5]},
        {"headers": [("a", "b")]},
        {"headers": {"a": 5}},
        {"priority": "1"},
        {"max_retry": False},
        {"backoff": 5},
        {"backoff": {"first_ms": 1.5}},
        {"colour": "red"},
    ],
)
def test_a_wrong_type_is_told_at_once(members: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        make_row(**({"body": b""} | members))


def test_a_message_of_many_wins_over_what_holds_for_all() -> None:
    defaults: Any = {"delay": 5 * MS, "key": "k", "max_retry": 3, "ttl": 9 * MS}
    own = row_of(NewMessage(b"x", deliver_at_ms=10**12, key="mine", ttl=DAY), defaults)
    members: Any = {"key": "mine", "max_retry": 3, "ttl": DAY}
    assert own == make_row(b"x", deliver_at_ms=10**12, **members)
    assert row_of("y", defaults) == make_row("y", **defaults)


class Shouting:
    """A codec of texts."""

    def encode(self, value: Any, /) -> bytes:
        return value.upper() if isinstance(value, bytes) else str(value).upper().encode()

    def decode(self, body: bytes, /) -> Any:
        return body.decode().lower()


@pytest.mark.parametrize(
    ("json", "body"),
    [
        ({"name": "Zoë", "n": [1, 2]}, '{"name":"Zoë","n":[1,2]}'),
        (None, "null"),
        ("text", '"text"'),
        ([], "[]"),
    ],
)
def test_json_is_compact_utf_8(json: Any, body: str) -> None:
    assert make_row(None, json=json) == make_row(body)
    assert make_row(None, json=json, id="a", codec=Shouting()) == make_row(body, id="a")
    assert row_of(NewMessage(json=json, key="k"), {}) == make_row(body, key="k")
    assert make_row(None, value=json) == make_row(body)


def test_a_value_goes_through_the_codec() -> None:
    assert make_row(None, value="hé", codec=Shouting()) == make_row("HÉ")
    assert row_of(
        NewMessage(value=None, delay=timedelta(milliseconds=5)), {}, Shouting()
    ) == make_row("NONE", delay=5 * MS)


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"body": b"x", "json": 1}, ValueError, "give one of body, json and value"),
        ({"body": b"x", "value": None}, ValueError, "give one of body, json and value"),
        ({"body": None, "json": 1, "value": 1}, ValueError, "give one of body, json and value"),
        ({"body": None}, TypeError, "a message has a body, json= or value="),
        ({"body": {"a": 1}}, TypeError, "not dict: give other values as json= or value="),
        ({"body": None, "json": {1}}, TypeError, "set is not JSON serializable"),
        ({"body": None, "json": float("nan")}, ValueError, "not JSON compliant"),
        ({"body": None, "json": "\ud800"}, ValueError, "surrogates not allowed"),
    ],
)
def test_a_message_has_one_content(given: dict[str, Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        make_row(**given)
    if "body" in given and not isinstance(given["body"], dict):
        with pytest.raises(kind, match=says):
            row_of(NewMessage(**given), {})


def test_a_codec_encodes_to_bytes() -> None:
    class Wrong(Shouting):
        def encode(self, value: Any, /) -> Any:
            return str(value)

    with pytest.raises(TypeError, match="encodes to bytes, not str"):
        make_row(None, value=5, codec=Wrong())


@pytest.mark.parametrize("name", ["", "a/b", "a" * 201, "ä", "a\n"])
def test_a_topic_that_no_broker_takes_is_told_at_once(name: str) -> None:
    with pytest.raises(ValueError, match="a topic is named"):
        check_topic(name)
    with pytest.raises(TypeError):
        check_topic(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("one", ["abc", b"abc", bytearray(b"abc")])
def test_one_body_is_not_as_many_as_it_has_letters(one: object) -> None:
    with pytest.raises(TypeError, match="send_many takes a list, not one"):
        check_several(one, "send_many")
