"""A send that a full disk refuses leaves nothing behind."""

from __future__ import annotations

import socket
from typing import Any

import pytest

LATER = {"body": "x", "delay_ms": 3_600_000}
COLUMNS = {"v": 1, "n": 1, "delay_ms": 3_600_000, "body_size": 1, "bodies": b"x"}


@pytest.fixture(scope="module")
def full(sound_broker: Any) -> Any:
    """A broker whose disk is too small for the reserve that it wants."""
    return sound_broker("--resp", "127.0.0.1:0", limits=f"disk_reserve_bytes = {2**53}")


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
