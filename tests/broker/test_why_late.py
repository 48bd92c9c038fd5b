"""A real broker tells why messages were late: each cause is injected, and named over HTTP.

The parts of the waits cover the time from due to handed out, and none of them is `unknown`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.engine.late.causes import UNKNOWN_MIN_MS
from tests.broker.failing_disk import SYNC_SECONDS
from tests.starts.warm import as_text, run_warm

PROGRAM = Path(__file__).with_name("failing_disk.py")


def waits_of(broker: Any, topic: str, id: str) -> dict[str, int]:
    """Milliseconds of each cause."""
    message = broker.call("GET", f"/v1/topics/{topic}/messages/{id}?life=true").json
    out: dict[str, int] = {}
    for wait in message["waits"]:
        out[wait["cause"]] = out.get(wait["cause"], 0) + wait["until_ms"] - wait["from_ms"]
    # Stalls and commits of less are not noted.
    assert out.pop("unknown", 0) < UNKNOWN_MIN_MS, message
    return out


def held_ms(broker: Any, topic: str, id: str, *, by: str) -> int:
    """How long another message held the key of a message: a stall may lie between."""
    message = broker.call("GET", f"/v1/topics/{topic}/messages/{id}?life=true").json
    held = [wait for wait in message["waits"] if wait["cause"] == "key"]
    assert {wait["held_by"] for wait in held} == {by}, message
    return sum(int(wait["until_ms"] - wait["from_ms"]) for wait in held)


def receive(broker: Any, topic: str, wait_ms: int = 5_000) -> list[Any]:
    found: list[Any] = broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": wait_ms})["messages"]
    return found


def test_a_process_that_was_stopped(broker: Any, topic: str) -> None:
    """SIGSTOP over the due time, while a consumer waits: the loop stalled."""
    asked = broker.later("POST", f"/v1/topics/{topic}/receive", {"wait_ms": 20_000})
    broker.await_waiting(1)
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "id": "a", "delay_ms": 2_000})
    os.kill(broker.pid, signal.SIGSTOP)
    time.sleep(4)
    os.kill(broker.pid, signal.SIGCONT)
    assert asked.result(20).json["messages"]
    waits = waits_of(broker, topic, "a")
    assert max(waits, key=lambda cause: waits[cause]) == "stall", waits
    assert waits["stall"] >= 1_000


def test_nobody_asked(broker: Any, topic: str) -> None:
    """No consumer at all, then one: the message and the topic say so."""
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "id": "a"})
    time.sleep(1.0)
    stats = broker.call("GET", f"/v1/topics/{topic}/stats").json
    assert stats["bounded_by"] == "no_consumers"
    assert receive(broker, topic)
    waits = waits_of(broker, topic, "a")
    assert max(waits, key=lambda cause: waits[cause]) == "no_consumers", waits
    assert broker.call("GET", f"/v1/topics/{topic}/stats").json["bounded_by"] is None


def test_a_paused_topic_and_a_stuck_key(broker: Any, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    both = [{"body": "x", "id": "a", "key": "k"}, {"body": "x", "id": "b", "key": "k"}]
    broker.post(f"{path}/messages", both)
    broker.post(f"{path}/pause")
    asked = broker.later("POST", f"{path}/receive", {"wait_ms": 20_000})
    time.sleep(0.8)
    broker.post(f"{path}/resume")
    (first,) = asked.result(20).json["messages"]
    waits = waits_of(broker, topic, "a")
    assert max(waits, key=lambda cause: waits[cause]) == "paused", waits
    asked = broker.later("POST", f"{path}/receive", {"wait_ms": 20_000})
    time.sleep(0.8)
    assert broker.call("GET", f"{path}/stats").json["bounded_by"] == "key"
    broker.post(f"{path}/ack", {"receipts": [first["receipt"]]})
    assert asked.result(20).json["messages"]
    assert held_ms(broker, topic, "b", by="a") >= 500


def test_a_holder_that_was_leased_before(broker: Any, topic: str) -> None:
    """The message that waits was sent when its key was stuck already: told meanwhile and after."""
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", {"body": "x", "id": "a", "key": "k"})
    (first,) = receive(broker, topic)
    broker.post(f"{path}/messages", {"body": "x", "id": "b", "key": "k"})
    asked = broker.later("POST", f"{path}/receive", {"wait_ms": 20_000})
    time.sleep(0.8)
    for _ in range(2):
        assert held_ms(broker, topic, "b", by="a") >= 500
        if not asked.done():
            broker.post(f"{path}/ack", {"receipts": [first["receipt"]]})
            assert asked.result(20).json["messages"]


@pytest.mark.parametrize("wait_ms", [20_000, 0])
def test_consumers_that_ask_for_other_tags(broker: Any, topic: str, wait_ms: int) -> None:
    """By long polls and by short ones: the message that waits, the topic and the command say so,
    and an unfiltered receive in the end changes nothing of it."""
    path = f"/v1/topics/{topic}"
    body = {"tags": ["a"], "wait_ms": wait_ms}
    broker.post(f"{path}/messages", {"body": "x", "id": "b", "tags": ["b"]})
    asked = [broker.later("POST", f"{path}/receive", body)]
    for _ in range(4):
        time.sleep(0.3)
        if not wait_ms:
            asked.append(broker.later("POST", f"{path}/receive", body))
    waits = waits_of(broker, topic, "b")
    assert max(waits, key=lambda cause: waits[cause]) == "filtered_out", waits
    assert waits["filtered_out"] >= 900
    stats = broker.call("GET", f"{path}/stats").json
    assert stats["bounded_by"] == "filtered_out"
    shown = as_text(run_warm("show", topic, "b", "--life", "--url", broker.url)).stdout
    assert "cause=filtered_out" in shown, shown
    assert "cause=unknown" not in shown
    broker.post(f"{path}/messages", {"body": "x", "id": "a", "tags": ["a"]})
    assert [one["id"] for one in receive(broker, topic)] == ["b"]
    waits = waits_of(broker, topic, "b")
    assert max(waits, key=lambda cause: waits[cause]) == "filtered_out", waits
    if wait_ms:
        assert [one["id"] for one in asked[0].result(20).json["messages"]] == ["a"]
        assert "filtered_out" not in waits_of(broker, topic, "a")


def test_a_claim(broker: Any, topic: str) -> None:
    """It has half of the messages under lease: the others wait for it."""
    path = f"/v1/topics/{topic}"
    messages = [{"body": "x", "id": each} for each in "abcd"]
    broker.post(f"{path}/messages", messages)
    assert broker.call("POST", f"{path}/claims/c", {"max": 2}).status == 200
    time.sleep(1.0)
    waits = waits_of(broker, topic, "d")
    assert max(waits, key=lambda cause: waits[cause]) == "slow_consumers", waits
    assert waits["slow_consumers"] >= 800


def test_a_slow_disk(start_broker: Callable[..., Any], tmp_path: Path) -> None:
    """The send is not durable yet when its message is due."""
    armed = tmp_path / "armed"
    program = [sys.executable, str(PROGRAM), "slow", "*/log/*", str(armed)]
    broker = start_broker(program=program)
    broker.post("/v1/topics/t/messages", {"body": "x"})
    assert receive(broker, "t")
    asked = broker.later("POST", "/v1/topics/t/receive", {"wait_ms": 20_000})
    broker.await_waiting(1)
    armed.touch()
    broker.post("/v1/topics/t/messages", {"body": "x", "id": "a", "delay_ms": 50})
    armed.unlink()
    assert asked.result(20).json["messages"]
    waits = waits_of(broker, "t", "a")
    assert max(waits, key=lambda cause: waits[cause]) == "slow_disk", waits
    assert waits["slow_disk"] >= SYNC_SECONDS * 500


@pytest.mark.parametrize("crash", [False, True])
def test_a_broker_that_was_down(start_broker: Callable[..., Any], crash: bool) -> None:
    broker = start_broker()
    broker.post("/v1/topics/t/messages", {"body": "x", "id": "a", "delay_ms": 300})
    if crash:
        broker.crash()
    else:
        broker.stop()
    time.sleep(1.5)
    broker.start()
    assert receive(broker, "t")
    waits = waits_of(broker, "t", "a")
    # A slow start may take longer than that.
    assert waits["down"] >= 500, waits
