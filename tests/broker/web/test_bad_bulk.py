"""Bad bulk bodies, each column broken in turn: refused whole with 400, naming the column."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from delaylog.contract.own_backoff import encode_own_backoff

SEND: dict[str, Any] = {
    "v": 1,
    "n": 3,
    "delay_ms": struct.pack("<3q", 3_600_000, 3_600_001, 3_600_002),
    "body_size": struct.pack("<3I", 1, 2, 3),
    "bodies": b"abbccc",
    "id_size": struct.pack("<3H", 2, 0, 2),
    "id": b"i1i3",
    "key_size": 2,
    "key": b"k1k2k3",
    "tags_size": struct.pack("<3H", 0, 3, 1),
    "tags": b"a\nbc",
    "headers_size": struct.pack("<3H", 0, 5, 0),
    "headers": msgpack.packb({"h": "v"}),
    "priority": struct.pack("<3i", 1, -2, 3),
    "ttl_ms": -1,
    "max_retry": struct.pack("<3H", 1, 2, 3),
    "merge": "keep",
    "producer": "p",
    "sequence": 1,
}
assert len(SEND["headers"]) == 5

LARGE_HEADERS = msgpack.packb({"h": "x" * 20_000})
assert len(LARGE_HEADERS) == 20_006

# name: (columns to change, None to drop; column named)
SENDS: dict[str, tuple[dict[str, Any], str | None]] = {
    "no version": ({"v": None}, "v"),
    "version 2": ({"v": 2}, "v"),
    "version true": ({"v": True}, "v"),
    "version text": ({"v": "1"}, "v"),
    "no n": ({"n": None}, "n"),
    "n 0": ({"n": 0}, "n"),
    "n negative": ({"n": -1}, "n"),
    "n over the limit": ({"n": 100_001}, "n"),
    "n of 64 bits": ({"n": 2**64 - 1}, "n"),
    "n a text": ({"n": "3"}, "n"),
    "n too small": ({"n": 2}, None),
    "n too large": ({"n": 4}, None),
    "unknown column": ({"colour": 1}, "colour"),
    "unknown size column": ({"colour_size": 1}, "colour_size"),
    "neither time": ({"delay_ms": None}, "deliver_at_ms"),
    "both times": ({"deliver_at_ms": 5}, "deliver_at_ms"),
    "merge unknown": ({"merge": "append"}, "merge"),
    "merge bytes": ({"merge": b"keep"}, "merge"),
    "merge a list": ({"merge": ["keep"]}, "merge"),
    "producer empty": ({"producer": ""}, "producer"),
    "producer long": ({"producer": "p" * 256}, "producer"),
    "producer a number": ({"producer": 5}, "producer"),
    "producer alone": ({"sequence": None}, "sequence"),
    "sequence alone": ({"producer": None}, "sequence"),
    "sequence negative": ({"sequence": -1}, "sequence"),
    "sequence over 63 bits": ({"sequence": 2**63}, "sequence"),
    "delay over the horizon": ({"delay_ms": 2**62}, "delay_ms"),
    "due negative": ({"delay_ms": None, "deliver_at_ms": -1}, "deliver_at_ms"),
    "due in seconds": ({"delay_ms": None, "deliver_at_ms": 1_795_600_000}, "deliver_at_ms"),
    "one due in seconds": (
        {"delay_ms": None, "deliver_at_ms": struct.pack("<3q", 0, 2**40, 10**12 - 1)},
        "deliver_at_ms",
    ),
    "due over the horizon": ({"delay_ms": None, "deliver_at_ms": 2**62}, "deliver_at_ms"),
    "priority over 32 bits": ({"priority": 2**31}, "priority"),
    "max_retry negative": ({"max_retry": -1}, "max_retry"),
    "ttl below -1": ({"ttl_ms": -2}, "ttl_ms"),
    "one ttl below -1": ({"ttl_ms": struct.pack("<3q", -1, -2, 5)}, "ttl_ms"),
    "ttl overflows": ({"ttl_ms": 2**63 - 1}, "ttl_ms"),
    "one ttl overflows": ({"ttl_ms": struct.pack("<3q", 1, 2, 2**63 - 1)}, "ttl_ms"),
    "id not UTF-8": ({"id": b"\xff1i3"}, "id"),
    "id cut inside a letter": (
        {"id_size": struct.pack("<3H", 1, 1, 2), "id": "é".encode() + b"i3"},
        "id",
    ),
    "id like the server's": ({"id": b"~1i3"}, "id"),
    "id with a control": ({"id": b"\x011i3"}, "id"),
    "id too long": ({"id_size": struct.pack("<3H", 256, 0, 0), "id": b"x" * 256}, "id"),
    "key not UTF-8": ({"key": b"\xff1k2k3"}, "key"),
    "key cut inside a letter": ({"key_size": 1, "key": "éa".encode()}, "key"),
    "key too long": ({"key_size": 256, "key": b"k" * 768}, "key"),
    "tags not UTF-8": ({"tags": b"a\n\xffc"}, "tags"),
    "tags cut inside a letter": (
        {"tags_size": struct.pack("<3H", 0, 1, 1), "tags": "é".encode()},
        "tags",
    ),
    "tag cut by a newline": (
        {"tags_size": struct.pack("<3H", 0, 3, 1), "tags": b"\xc3\n\xa9a"},
        "tags",
    ),
    "tag empty": ({"tags": b"a\n\nc"}, "tags"),
    "tag too long": ({"tags_size": 65, "tags": b"t" * 195}, "tags"),
    "too many tags": (
        {"tags_size": struct.pack("<3H", 0, 0, 33), "tags": b"a\n" * 16 + b"a"},
        "tags",
    ),
    "headers no msgpack": ({"headers": b"\xc1\xc1\xc1\xc1\xc1"}, "headers"),
    "headers a text": ({"headers": msgpack.packb("text")}, "headers"),
    "a backoff out of bounds": (
        {"headers_size": 37, "headers": encode_own_backoff({"first_ms": -2}) * 3},
        "headers",
    ),
    "a backoff that is no number": (
        {"headers_size": 37, "headers": encode_own_backoff({"factor": float("nan")}) * 3},
        "headers",
    ),
    "a backoff of another form": ({"headers_size": 5, "headers": b"\x94\1\2\3\4" * 3}, "headers"),
    "headers cut short": ({"headers_size": 1, "headers": b"\x94" * 3}, "headers"),
    "headers of numbers": ({"headers_size": 4, "headers": msgpack.packb({"h": 5}) * 3}, "headers"),
    "headers with bytes keys": (
        {"headers": b"\x81\xc4\x01h\x01", "headers_size": struct.pack("<3H", 0, 5, 0)},
        "headers",
    ),
    "headers with more behind": ({"headers": b"\x80\x80\x80\x80\x80"}, "headers"),
    "headers not UTF-8": ({"headers": b"\x81\xa1h\xa1\xff"}, "headers"),
    "headers too large": (
        {"headers_size": struct.pack("<3H", 0, 20_006, 0), "headers": LARGE_HEADERS},
        "headers",
    ),
}
for _name in ("delay_ms", "priority", "max_retry", "body_size", "id_size", "tags_size"):
    _whole = SEND[_name]
    SENDS[f"{_name} short"] = ({_name: _whole[:-1]}, _name)
    SENDS[f"{_name} long"] = ({_name: _whole + b"\0"}, _name)
    SENDS[f"{_name} empty"] = ({_name: b""}, _name)
    SENDS[f"{_name} text"] = ({_name: "abc"}, _name)
    SENDS[f"{_name} float"] = ({_name: 1.0}, _name)
    SENDS[f"{_name} true"] = ({_name: True}, _name)
    SENDS[f"{_name} list"] = ({_name: [1, 2, 3]}, _name)
    SENDS[f"{_name} over 64 bits"] = ({_name: 2**64 - 1}, _name)
for _text, _block in (
    ("body", "bodies"),
    ("id", "id"),
    ("key", "key"),
    ("tags", "tags"),
    ("headers", "headers"),
):
    SENDS[f"{_block} longer than its sizes"] = ({_block: SEND[_block] + b"x"}, f"{_text}_size")
    SENDS[f"{_block} shorter than its sizes"] = ({_block: SEND[_block][:-1]}, f"{_text}_size")
    SENDS[f"{_block} without sizes"] = ({f"{_text}_size": None}, f"{_text}_size")
    SENDS[f"{_block} absent"] = ({_block: None}, f"{_text}_size")
    SENDS[f"{_block} as text"] = ({_block: "x" * len(SEND[_block])}, _block)
    SENDS[f"{_block} as a list"] = ({_block: [1]}, _block)


def changed(fields: dict[str, Any], change: dict[str, Any]) -> bytes:
    """The body with some columns changed, or dropped."""
    wire: bytes = msgpack.packb({k: v for k, v in (fields | change).items() if v is not None})
    return wire


@pytest.mark.parametrize("name", SENDS)
def test_send_refuses(broker: Any, topic: str, assert_problem: Any, name: str) -> None:
    """One broken column refuses the whole body and makes no topic."""
    change, column = SENDS[name]
    answer = broker.bulk(f"/v1/topics/{topic}/messages", changed(SEND, change))
    assert_problem(answer, 400, "bad_request", column)
    assert broker.counts(topic) is None


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda wire: b"",
    "half": lambda wire: wire[: len(wire) // 2],
    "one byte short": lambda wire: wire[:-1],
    "one byte more": lambda wire: wire + b"\0",
    "twice": lambda wire: wire * 2,
    "a list": lambda wire: b"\x91" + wire,
    "a number": lambda wire: b"\x05",
    "nil": lambda wire: b"\xc0",
    "JSON": lambda wire: b'{"v":1,"n":1}',
    "integer keys": lambda wire: msgpack.packb({1: 1}),
    "bytes keys": lambda wire: msgpack.packb({b"v": 1, b"n": 1}),
    "too many columns": lambda wire: msgpack.packb({f"c{n}": n for n in range(65)}),
    "deep": lambda wire: b"\x81\xa1v" * 50_000,
    "lengths of 4 GiB": lambda wire: b"\x82\xa1v\x01\xa1n\xc6\xff\xff\xff\xff",
    "an extension": lambda wire: msgpack.packb({"v": msgpack.ExtType(5, b"x")}),
    "a broken time": lambda wire: b"\x81\xa1v\xc7\x03\xff\x00\x00\x00",
}


@pytest.mark.parametrize("name", BROKEN)
def test_no_bulk_body(broker: Any, topic: str, assert_problem: Any, name: str) -> None:
    """What is not one msgpack map of columns is refused by every bulk call."""
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", {"body": "x", "delay_ms": 3_600_000})
    wires = {
        "messages": changed(SEND, {}),
        "ack": msgpack.packb({"v": 1, "n": 0, "lease": 5, "all": True}),
        "nack": msgpack.packb({"v": 1, "n": 0, "lease": 5, "all": True}),
        "extend": msgpack.packb({"v": 1, "n": 0, "lease": 5, "all": True}),
        "messages:cancel": msgpack.packb({"v": 1, "n": 1, "refs": b"12345678"}),
        "messages:reschedule": msgpack.packb(
            {"v": 1, "n": 1, "refs": b"12345678", "deliver_at_ms": 0}
        ),
    }
    for call, wire in wires.items():
        answer = broker.bulk(f"{path}/{call}", BROKEN[name](wire))
        assert_problem(answer, 400, "bad_request")
    assert broker.counts(topic)["waiting"] == 1


def test_truncation_at_every_byte(broker: Any, topic: str, assert_problem: Any) -> None:
    """A send cut anywhere is refused; the whole one is taken."""
    path = f"/v1/topics/{topic}/messages"
    wire = changed(SEND, {"producer": None, "sequence": None})
    for cut in range(len(wire)):
        assert_problem(broker.bulk(path, wire[:cut]), 400, "bad_request")
    assert broker.counts(topic) is None
    assert broker.bulk(path, wire).packed["n"] == 3


# (columns, column named); `refs` and `lease` are filled in by the test when absent
SETTLES: dict[str, tuple[dict[str, Any], str]] = {
    "no version": ({"v": None}, "v"),
    "version 2": ({"v": 2}, "v"),
    "n does not match": ({"n": 2}, "n"),
    "n a text": ({"n": "1"}, "n"),
    "no lease": ({"lease": None}, "lease"),
    "lease a text": ({"lease": "5"}, "lease"),
    "lease bytes": ({"lease": b"12345678"}, "lease"),
    "lease negative": ({"lease": -1}, "lease"),
    "refs cut": ({"refs": b"1234567"}, "refs"),
    "refs a list": ({"refs": [1]}, "refs"),
    "refs a number": ({"refs": 5}, "refs"),
    "refs and all": ({"all": True}, "refs"),
    "neither": ({"refs": None}, "refs"),
    "all a number": ({"refs": None, "all": 1}, "refs"),
    "except without all": ({"except": b"12345678"}, "except"),
    "except cut": ({"refs": None, "n": 0, "all": True, "except": b"1"}, "except"),
    "unknown column": ({"colour": 1}, "colour"),
    "delay over the horizon": ({"delay_ms": 2**53}, "delay_ms"),
    "delay a column": ({"delay_ms": b"12345678"}, "delay_ms"),
    "lease_ms too large": ({"lease_ms": 43_200_001}, "lease_ms"),
    "too many refs": ({"n": None, "refs": b"12345678" * 100_001}, "refs"),
}


@pytest.mark.parametrize("name", SETTLES)
def test_settle_refuses(broker: Any, topic: str, assert_problem: Any, name: str) -> None:
    """A broken ack, nack or extend settles nothing, though its lease is good."""
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", {"body": "x", "delay_ms": 0})
    got = broker.call(
        "POST", f"{path}/receive", {"wait_ms": 5_000}, {"Accept": "application/vnd.delaylog.batch"}
    ).packed
    assert got["n"] == 1
    change, column = SETTLES[name]
    fields = {"v": 1, "n": 1, "lease": got["lease"], "refs": got["refs"]}
    for call in ("ack", "nack", "reject", "extend", "begin"):
        answer = broker.bulk(f"{path}/{call}", changed(fields, change))
        assert_problem(answer, 400, "bad_request", column)
    assert broker.counts(topic)["leased"] == 1


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "no version": ({"v": None}, "v"),
    "version 2": ({"v": 2}, "v"),
    "n does not match refs": ({"n": 2}, "n"),
    "refs cut": ({"refs": b"1234567"}, "refs"),
    "refs empty": ({"refs": b"", "n": 0}, "refs"),
    "refs negative": ({"refs": b"\xff" * 8}, "refs"),
    "refs a text": ({"refs": "12345678"}, "refs"),
    "refs and ids": ({"id_size": 1, "id": b"a"}, "refs"),
    "no ids": ({"refs": None}, "id"),
    "ids without sizes": ({"refs": None, "id": b"a"}, "id"),
    "ids as text": ({"refs": None, "id": "a", "id_size": 1}, "id"),
    "ids not UTF-8": ({"refs": None, "id": b"\xff", "id_size": 1}, "id"),
    "sizes do not add up": ({"refs": None, "id": b"ab", "id_size": 1}, "id_size"),
    "n 0": ({"refs": None, "id": b"", "id_size": 0, "n": 0}, "n"),
    "unknown column": ({"colour": 1}, "colour"),
    "due cut": ({"deliver_at_ms": b"1"}, "deliver_at_ms"),
    "due negative": ({"deliver_at_ms": -1}, "deliver_at_ms"),
    "due in seconds": ({"deliver_at_ms": 1_795_600_000}, "deliver_at_ms"),
    "due over the horizon": ({"deliver_at_ms": 2**62}, "deliver_at_ms"),
    "delay over the horizon": ({"deliver_at_ms": None, "delay_ms": 2**60}, "delay_ms"),
    "delay cut": ({"deliver_at_ms": None, "delay_ms": b"123"}, "delay_ms"),
    "due and delay": ({"deliver_at_ms": 1, "delay_ms": 1}, "delay_ms"),
    "a filter": ({"filter": {}}, "filter"),
    "ids cut inside a letter": (
        {"refs": None, "n": 2, "id_size": 1, "id": "é".encode()},
        "id",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_refuses(broker: Any, topic: str, assert_problem: Any, name: str) -> None:
    """A broken cancel, reschedule or replay leaves the message as it is."""
    path = f"/v1/topics/{topic}"
    fields = {"v": 1, "n": 1, "delay_ms": 3_600_000, "body_size": 1, "bodies": b"x"}
    refs = broker.bulk(f"{path}/messages", fields).packed["refs"]
    change, column = CHANGES[name]
    calls = ["messages:reschedule", "messages:replay"]
    if "deliver_at_ms" not in change:
        calls.append("messages:cancel")
    for call in calls:
        fields = {"v": 1, "n": 1, "refs": refs}
        if call != "messages:cancel":
            fields["deliver_at_ms"] = 0
        answer = broker.bulk(f"{path}/{call}", changed(fields, change))
        assert_problem(answer, 400, "bad_request", column)
    assert broker.counts(topic)["waiting"] == 1
