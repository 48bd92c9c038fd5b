"""Bodies that are small and would become large: refused before objects are made of them."""

from __future__ import annotations

import gzip
import json
import struct
from typing import Any

import msgpack
import orjson
import pytest

MSGPACK = "application/msgpack"
BULK = "application/vnd.delaylog.batch"
SIZE = 5 << 20
"""Of an attack: without a bound it becomes some 100 to 350 MiB."""
GROWTH_MAX = 40 << 20
"""What one such request may add to the broker's peak: its bytes a few times over."""


def _array(count: int) -> bytes:
    return b"\xdd" + struct.pack(">I", count)


NESTED_BULK = b"\x81\xa1v" + b"\xdc\x00\x40" + (b"\xdc\x00\x40" + b"\x90" * 64) * 64
JSON_BODIES = {
    "json arrays": b"[" + b"[]," * (SIZE // 3) + b"[]]",
    "json objects": b"[" + b"{}," * (SIZE // 3) + b"{}]",
    "json texts": b"[" + b'"ab",' * (SIZE // 5) + b'""]',
    "json numbers": b"[" + b"1000," * (SIZE // 5) + b"1]",
    "json keys": b"[{" + b'"ab":1,' * (SIZE // 7) + b'"a":1}]',
}
MSGPACK_BODIES = {
    "msgpack arrays": _array(SIZE) + b"\x90" * SIZE,
    "msgpack maps": _array(SIZE) + b"\x80" * SIZE,
    "msgpack texts": _array(SIZE // 3) + b"\xa2ab" * (SIZE // 3),
    "msgpack numbers": _array(SIZE // 3) + b"\xcd\xff\xff" * (SIZE // 3),
    "msgpack arrays in arrays": (b"\xdc\x00\x40" + b"\x90" * 64) * (SIZE // 67),
}
ATTACKS = {
    **{name: ("application/json", body, (413,)) for name, body in JSON_BODIES.items()},
    **{name: (MSGPACK, body, (400, 413)) for name, body in MSGPACK_BODIES.items()},
    "bulk": (BULK, b"\x81\xa1v" + (b"\xdc\x00\x40" + b"\x90" * 64) * (SIZE // 67), (400,)),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_no_body_becomes_many_times_its_size(
    broker: Any, topic: str, assert_problem: Any, name: str
) -> None:
    """Refused by each call that takes large bodies, at a cost in memory like the body's size."""
    kind, body, statuses = ATTACKS[name]
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "delay_ms": 3_600_000})
    before = broker.memory_bytes("VmHWM")
    for call in ("messages", "receive"):
        answer = broker.call("POST", f"/v1/topics/{topic}/{call}", body, {"Content-Type": kind})
        assert answer.status in statuses, answer
        assert_problem(answer, answer.status, {400: "bad_request", 413: "too_large"}[answer.status])
    assert broker.memory_bytes("VmHWM") - before < GROWTH_MAX
    assert broker.counts(topic)["waiting"] == 1


PLAIN = [
    ("PUT", ""),
    ("POST", "/claims/c"),
    ("POST", "/purge"),
    ("PUT", "/groups/g"),
    ("PATCH", "/messages/a"),
]


@pytest.mark.parametrize(("method", "tail"), PLAIN)
def test_calls_without_messages_have_small_bodies(
    broker: Any, topic: str, assert_problem: Any, method: str, tail: str
) -> None:
    """413 above 1 MiB, whether the size is announced or comes in chunks."""
    path = f"/v1/topics/{topic}{tail}"
    body = b"[" + b"[]," * 350_000 + b"[]]"
    assert_problem(broker.call(method, path, body), 413, "too_large")
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n"
    wire = head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    assert b" 413 " in broker.raw(wire)[:20]


def test_large_bodies_within_the_bounds(broker: Any, topic: str) -> None:
    """Ten thousand messages whose bodies are JSON of many values, with tags and headers."""
    inner = json.dumps([[n, {"k": 'v"\\'}] for n in range(40)])
    message = {
        "body": inner,
        "delay_ms": 3_600_000,
        "tags": [f"t{n}" for n in range(16)],
        "headers": {f"h{n}": "v" for n in range(8)},
    }
    messages = [message] * 10_000
    path = f"/v1/topics/{topic}/messages"
    assert broker.call("POST", path, orjson.dumps(messages)).status == 200
    packed = msgpack.packb(messages[:2_000])
    assert broker.call("POST", path, packed, {"Content-Type": MSGPACK}).status == 200
    assert broker.counts(topic)["waiting"] == 12_000


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "x-unknown", "gzip, identity"])
def test_encoded_bodies_are_refused(
    broker: Any, topic: str, assert_problem: Any, encoding: str
) -> None:
    """61 KB of gzip were 3.6 GiB of objects: no body is unpacked, on any face."""
    body = gzip.compress(b'{"body":"x","delay_ms":3600000}')
    paths = [f"/v1/topics/{topic}/{call}" for call in ("messages", "receive", "ack")]
    for path in (*paths, "/camellia/delayQueue/pullMsg"):
        answer = broker.call("POST", path, body, {"Content-Encoding": encoding})
        assert_problem(answer, 415, "unsupported")
    assert broker.counts(topic) is None


def test_identity_is_no_encoding(broker: Any, topic: str) -> None:
    body = {"body": "x", "delay_ms": 3_600_000}
    broker.post(f"/v1/topics/{topic}/messages", body, Content_Encoding="identity")
