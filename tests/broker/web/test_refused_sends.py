"""A send that is refused leaves nothing behind, and one key or sequence is for one body."""

from __future__ import annotations

import socket
from typing import Any

import msgpack
import pytest

LATER = {"body": "x", "delay_ms": 3_600_000}
COLUMNS = {"v": 1, "n": 1, "delay_ms": 3_600_000, "body_size": 1, "bodies": b"x"}


@pytest.fixture(scope="module")
def full(start_broker: Any) -> Any:
    """A broker whose disk is too small for the reserve that it wants."""
    broker = start_broker("--resp", "127.0.0.1:0", limits=f"disk_reserve_bytes = {2**53}")
    yield broker
    assert broker.stop() == 0
    broker.assert_clean_logs()


def _redis(broker: Any, *words: str) -> bytes:
    port = int(broker.ready_line.split("resp=")[1].split()[0].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(" ".join(words).encode() + b"\r\n")
        return sock.recv(65_536)


def test_a_full_disk_makes_no_topics(full: Any, topic: str, assert_problem: Any) -> None:
    """507 on each face, and new names do not eat what is reserved for deliveries."""
    path = f"/v1/topics/{topic}"
    for body in (LATER, [LATER, LATER]):
        assert_problem(full.call("POST", f"{path}a/messages", body), 507, "disk_full")
        key = {"Idempotency-Key": "k"}
        assert_problem(full.call("POST", f"{path}b/messages", body, key), 507, "disk_full")
    assert_problem(full.bulk(f"{path}c/messages", COLUMNS), 507, "disk_full")
    assert _redis(full, "DL.SEND", f"{topic}d", "1000", "x").startswith(b"-DISKFULL")
    form = f"topic={topic}e&msg=x&delayMillis=1000"
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    sent = full.call("POST", "/camellia/delayQueue/sendMsg", form.encode(), kind)
    assert sent.json["code"] == 500
    assert full.call("GET", "/v1/topics").json["topics"] == []


def _changes(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The same number of messages, another one each time."""
    return [
        message | {"body": "y"},
        message | {"body": ""},
        message | {"id": "a"},
        message | {"key": "k"},
        message | {"tags": ["t"]},
        message | {"headers": {"h": "v"}},
    ]


def test_a_key_is_for_one_body(broker: Any, topic: str, assert_problem: Any) -> None:
    """The repeat is answered as the first was, also after a kill; other messages are 409."""
    path, key = f"/v1/topics/{topic}/messages", {"Idempotency-Key": "k"}
    pair = [LATER, LATER | {"body": "z"}]
    first = broker.call("POST", path, LATER, key).json
    both = broker.call("POST", path, pair, {"Idempotency-Key": "pair"}).json
    for again in (False, True):
        if again:
            broker.crash()
            broker.start()
        assert broker.call("POST", path, LATER, key).json == first
        assert broker.call("POST", path, LATER | {"delay_ms": 5}, key).json == first
        assert broker.call("POST", path, pair, {"Idempotency-Key": "pair"}).json == both
        for other in _changes(LATER):
            assert_problem(broker.call("POST", path, other, key), 409, "conflict")
        swapped = broker.call("POST", path, pair[::-1], {"Idempotency-Key": "pair"})
        assert_problem(swapped, 409, "conflict")
        assert broker.counts(topic)["waiting"] == 3


def test_a_sequence_is_for_one_body(broker: Any, topic: str, assert_problem: Any) -> None:
    """So it is for producers of bulk bodies; a scalar and a column of the same sizes are one."""
    path = f"/v1/topics/{topic}/messages"
    fields = COLUMNS | {"producer": "p", "sequence": 7}
    first = broker.bulk(path, fields).packed
    assert broker.bulk(path, fields).packed == first
    column = fields | {"body_size": (1).to_bytes(4, "little")}
    assert broker.bulk(path, column).packed == first
    other = broker.bulk(path, fields | {"bodies": b"y"})
    problem = assert_problem(other, 409, "conflict", "sequence")
    assert "new one" in problem["detail"]
    assert broker.bulk(path, fields | {"bodies": b"y", "sequence": 8}).status == 200
    assert msgpack.packb(first)
    assert broker.counts(topic)["waiting"] == 2
