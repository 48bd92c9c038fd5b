"""Messages as views on the columns of a batch: each field is that of its row."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.client import Message, NotReached, Settled
from delaylog.client.message import MessageBatch
from delaylog.client.shards.settlements import SettleFailed, joined, shares
from delaylog.client.wire.bulk import decode_received, ref_to_id

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
TAG = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1, max_size=5
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": TEXT,
            "key": TEXT,
            "tags": st.lists(TAG, max_size=3),
            "headers": st.dictionaries(TEXT, TEXT, max_size=2),
            "body": st.binary(max_size=8),
            "priority": st.integers(-(2**31), 2**31 - 1),
            "ref": st.integers(0, 2**63 - 1),
            "due": st.integers(0, 2**60),
            "attempts": st.integers(1, 2**16 - 1),
        }
    ),
    max_size=6,
)


def wire_of(rows: list[dict[str, Any]], **more: Any) -> bytes:
    """The bulk answer of a receive with these rows."""
    raw = {
        "id": [row["id"].encode() for row in rows],
        "key": [row["key"].encode() for row in rows],
        "tags": ["\n".join(row["tags"]).encode() for row in rows],
        "headers": [msgpack.packb(row["headers"]) if row["headers"] else b"" for row in rows],
        "bodies": [row["body"] for row in rows],
    }
    fields: dict[str, Any] = {"v": 1, "n": len(rows), "now_ms": 5, "lease": 7, "lease_until_ms": 9}
    for name, values in raw.items():
        size_name, kind = ("body_size", "<u4") if name == "bodies" else (f"{name}_size", "<u2")
        fields[size_name] = np.array([len(value) for value in values], kind).tobytes()
        fields[name] = b"".join(values)
    for name, member, kind in (
        ("refs", "ref", "<i8"),
        ("deliver_at_ms", "due", "<i8"),
        ("attempts", "attempts", "<u2"),
        ("priority", "priority", "<i4"),
    ):
        fields[name] = np.array([row[member] for row in rows], kind).tobytes()
    return bytes(msgpack.packb(fields | more))


def messages_of(wire: bytes, shard: str = "a") -> list[Message]:
    batch = MessageBatch(decode_received(wire), "topic", "group", shard)
    return [Message(batch, row) for row in range(batch.columns.n)]


@given(ROWS)
def test_each_field_is_that_of_its_row(rows: list[dict[str, Any]]) -> None:
    messages = messages_of(wire_of(rows))
    assert len(messages) == len(rows)
    for message, row in zip(messages, rows, strict=True):
        assert message.id == (row["id"] or ref_to_id(row["ref"]))
        assert message.key == (row["key"] or None)
        assert message.tags == tuple(row["tags"])
        assert message.headers == row["headers"]
        assert message.body == row["body"]
        assert (message.priority, message.ref) == (row["priority"], row["ref"])
        assert (message.deliver_at_ms, message.attempts) == (row["due"], row["attempts"])
        assert message.receipt == f"{7:016x}{row['ref']:016x}"
        assert (message.lease, message.lease_until_ms) == (7, 9)
        assert (message.topic, message.group, message.shard) == ("topic", "group", "a")
    assert [message.id for message in messages] == decode_received(wire_of(rows)).ids


def row(**members: Any) -> dict[str, Any]:
    plain = {"id": "", "key": "", "tags": [], "headers": {}, "body": b"", "priority": 0}
    return plain | {"ref": 1, "due": 1, "attempts": 1} | members


def test_bodies_as_text_and_json() -> None:
    text, json, noise = messages_of(
        wire_of([row(body="hé".encode()), row(body=b'{"a": 1}'), row(body=b"\xff")])
    )
    assert text.text == "hé"
    assert json.json() == {"a": 1}
    with pytest.raises(UnicodeDecodeError):
        _ = noise.text
    with pytest.raises(ValueError, match="decode"):
        noise.json()
    with pytest.raises(ValueError, match="Expecting value"):
        text.value()


@pytest.mark.parametrize(
    "packed",
    [
        b"\xc1",
        b"\x81\xa1a",
        b"\x80\x80",
        b"\x81\xa1a\xa1\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x91" * 60_000 + b"\xc0",
        *map(msgpack.packb, (7, ["a"], {1: "a"}, {"a": 1}, {"a": {"b": "c"}}, {"a": b"x"})),
    ],
    ids=lambda packed: packed[:6].hex(),
)
def test_headers_that_no_broker_accepts(packed: bytes) -> None:
    """One clear error, and the rest of the message stays readable."""
    sizes = np.array([len(packed)], "<u2").tobytes()
    more = {"headers": packed, "headers_size": sizes}
    (message,) = messages_of(wire_of([row(body=b"x", id="a")], **more))
    with pytest.raises(ValueError, match="the headers of message a are not texts by name"):
        _ = message.headers
    assert message.body == b"x"


def test_the_same_delivery_is_equal_and_another_is_not() -> None:
    wire = wire_of([row(ref=1), row(ref=2)])
    one, two = messages_of(wire)
    assert one == messages_of(wire)[0]
    assert len({one, two, messages_of(wire)[0], messages_of(wire, "b")[0]}) == 3
    assert one != messages_of(wire_of([row(ref=1)], lease=8))[0]
    assert one != "message"


def test_a_lost_lease_is_that_of_one_message() -> None:
    one, two = messages_of(wire_of([row(ref=1), row(ref=2)]))
    one.lease_lost = True
    assert (one.lease_lost, two.lease_lost) == (True, False)
    one.lease_lost = False
    assert not one.lease_lost


def test_a_repr_shows_no_body() -> None:
    (message,) = messages_of(wire_of([row(id="own", body=b"secret")]))
    assert "own" in repr(message)
    assert "secret" not in repr(message)


def test_columns_that_were_not_asked_for_are_empty() -> None:
    fields = {"n": 1, "lease": 1, "refs": bytes(8), "deliver_at_ms": 1, "attempts": 1}
    (message,) = messages_of(bytes(msgpack.packb(fields | {"body_size": 1, "bodies": b"x"})))
    assert (message.key, message.tags, message.headers, message.priority) == (None, (), {}, 0)


def test_shares_are_leases_and_results_go_back_in_order() -> None:
    first = messages_of(wire_of([row(ref=1), row(ref=2), row(ref=3)]))
    second = messages_of(wire_of([row(ref=1)]))
    mixed = [first[2], second[0], first[0]]
    parts = shares(mixed)
    assert [(share.places, share.refs.tolist()) for share in parts] == [
        ([0, 2], [3, 1]),
        ([1], [1]),
    ]
    done, gone = Settled.DONE, Settled.GONE
    assert joined(3, [(parts[0], [gone, done]), (parts[1], [done])]) == [gone, done, done]
    error = NotReached("away")
    with pytest.raises(NotReached):
        joined(1, [(shares(second)[0], error)])
    with pytest.raises(SettleFailed, match="1 of 3") as caught:
        joined(3, [(parts[0], [gone, done]), (parts[1], error)])
    assert caught.value.results == [gone, error, done]
