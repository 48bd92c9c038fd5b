"""Idempotency keys, and producers with sequences: a repeat adds nothing, and is for one body."""

from __future__ import annotations

from typing import Any

import msgpack

LATER = {"body": "x", "delay_ms": 3_600_000}
COLUMNS = {"v": 1, "n": 2, "delay_ms": 3_600_000, "body_size": 1, "bodies": b"ab"}
OTHERS = [
    LATER | {"body": "y"},
    LATER | {"body": ""},
    LATER | {"id": "a"},
    LATER | {"key": "k"},
    LATER | {"tags": ["t"]},
    LATER | {"headers": {"h": "v"}},
    [LATER, LATER],
]


def test_a_key_is_for_one_body(broker: Any, topic: str, assert_problem: Any) -> None:
    """The repeat is answered as the first was, also after a kill and once the message has ended."""
    path, key = f"/v1/topics/{topic}/messages", {"Idempotency-Key": "k"}
    pair = [LATER, LATER | {"body": "z"}]
    first = broker.call("POST", path, LATER, key).json
    both = broker.call("POST", path, pair, {"Idempotency-Key": "pair"}).json
    assert broker.call("POST", path, LATER, {"Idempotency-Key": "k2"}).json["id"] != first["id"]
    broker.call("DELETE", f"{path}/{first['id']}")
    for again in (False, True):
        if again:
            broker.crash()
            broker.start()
        assert broker.call("POST", path, LATER, key).json == first
        assert broker.call("POST", path, LATER | {"delay_ms": 5}, key).json == first
        assert broker.call("POST", path, pair, {"Idempotency-Key": "pair"}).json == both
        for other in OTHERS:
            assert_problem(broker.call("POST", path, other, key), 409, "conflict")
        swapped = broker.call("POST", path, pair[::-1], {"Idempotency-Key": "pair"})
        assert_problem(swapped, 409, "conflict")
        assert broker.counts(topic)["waiting"] == 3


def test_keys_never_collide(broker: Any) -> None:
    """Long names and keys that differ only at their ends are different keys."""
    path = f"/v1/ns/{'n' * 200}/topics/{'t' * 200}/messages"
    key = "k" * 199
    ids = {broker.post(path, LATER, Idempotency_Key=key + end)["id"] for end in "abc"}
    assert len(ids) == 3
    other = broker.post(path.replace("ttt/", "ttu/"), LATER, Idempotency_Key=key + "a")
    assert other["id"] not in ids


def test_a_key_of_a_bulk_body(broker: Any, topic: str, assert_problem: Any) -> None:
    """The header counts for bulk bodies too; beside a producer it would be ambiguous."""
    path = f"/v1/topics/{topic}/messages"
    headers = {"Content-Type": "application/vnd.delaylog.batch", "Idempotency-Key": "k"}
    first = broker.call("POST", path, msgpack.packb(COLUMNS), headers)
    assert broker.call("POST", path, msgpack.packb(COLUMNS), headers).body == first.body
    assert broker.counts(topic)["waiting"] == 2
    both = msgpack.packb(COLUMNS | {"producer": "p", "sequence": 1})
    assert_problem(broker.call("POST", path, both, headers), 400, "bad_request", "producer")


def test_a_sequence_is_for_one_body(broker: Any, topic: str, assert_problem: Any) -> None:
    """A scalar and a column of the same sizes are one."""
    path = f"/v1/topics/{topic}/messages"
    fields = COLUMNS | {"producer": f"p {topic}", "sequence": 7}
    first = broker.bulk(path, fields)
    assert broker.bulk(path, fields).body == first.body
    column = fields | {"body_size": (1).to_bytes(4, "little") * 2}
    assert broker.bulk(path, column).body == first.body
    other = broker.bulk(path, fields | {"bodies": b"ay"})
    assert "new one" in assert_problem(other, 409, "conflict", "sequence")["detail"]
    assert_problem(broker.bulk(path, fields | {"n": 1, "bodies": b"a"}), 409, "conflict")
    assert broker.bulk(path, fields | {"bodies": b"ay", "sequence": 8}).status == 200
    assert broker.counts(topic)["waiting"] == 4
