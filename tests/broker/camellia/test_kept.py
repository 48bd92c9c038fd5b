"""Ended messages are known for a while, then gone; states outlive a kill -9."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from delaylog.broker.camellia.face import IDLE_SECONDS, Health
from tests.waiting import await_that


def test_ended_messages_are_hidden_after_their_time(camellia: Any, broker: Any, topic: str) -> None:
    settings = {"ended_keep_ms": 3_000, "backoff": {"first_ms": 0}}
    assert broker.call("PUT", f"/v1/topics/{topic}", settings).status == 201
    for name in ("acked", "dead"):
        camellia.send(topic, msgId=name, maxRetry=0)
        camellia.pull_one(topic)
        camellia.ack(topic, name, done=name == "acked")
    camellia.send(topic, msgId="deleted", delay=60_000)
    camellia.delete(topic, "deleted")
    states = [camellia.status(topic, name) for name in ("acked", "dead", "deleted")]
    assert states == [4, 6, 7]
    time.sleep(3.05)
    for name in ("acked", "dead", "deleted"):
        assert camellia.get(topic, name) is None
        camellia.ack(topic, name)
        assert camellia.get(topic, name) is None, "an ack brings nothing back"
    dead = broker.call("GET", f"/v1/topics/{topic}/messages/dead").json
    assert dead["state"] == "dead", "the dead letter itself is kept"


def test_a_repeated_id_whose_message_is_forgotten_meanwhile(
    camellia: Any, broker: Any, topic: str
) -> None:
    """A send that met a living message finds it, or its topic, gone once the disk has answered:
    it is then the first of its id. Senders race with acks and with the topic's removal."""
    path, until = f"/v1/topics/{topic}", time.monotonic() + 2

    def send() -> set[int]:
        codes = set()
        while time.monotonic() < until:
            sent = camellia.call("sendMsg", topic=topic, msg="m", delayMillis=0, msgId="one")
            codes.add(sent["code"])
            assert sent["delayMsg"]["msgId"] == "one"
        return codes

    def settle() -> set[int]:
        while time.monotonic() < until:
            camellia.ack(topic, "one")
            if broker.call("DELETE", path).status == 200:
                broker.call("PUT", path, {"ended_keep_ms": 0})
        return {200}

    broker.call("PUT", path, {"ended_keep_ms": 0})
    with ThreadPoolExecutor(5) as pool:
        calls = [pool.submit(act) for act in (send, send, send, settle, settle)]
        assert [call.result() for call in calls] == [{200}] * 5


def test_states_are_the_same_after_a_kill(
    camellia: Any, start_broker: Callable[..., Any], topic: str
) -> None:
    broker = start_broker()
    there = type(camellia)(broker)
    for name in ("waiting", "ready", "consuming", "acked", "deleted", "released", "forced"):
        there.send(topic, msgId=name, delay=60_000 if name in ("waiting", "forced") else 0)
        if name in ("consuming", "acked"):
            found = {m["msgId"] for m in there.pull(topic, batch=10)}
            assert name in found
            for other in found - {name}:
                there.ack(topic, other, done=False)
    there.ack(topic, "acked")
    there.delete(topic, "deleted")
    there.delete(topic, "released", release="true")
    there.delete(topic, "forced")
    there.ack(topic, "forced")
    names = ("waiting", "ready", "consuming", "acked", "deleted", "released", "forced")
    before = {name: there.get(topic, name) for name in names}
    info = there.info(topic)
    broker.kill()
    broker.start()
    assert {name: there.get(topic, name) for name in names} == before
    assert before["released"] is None
    assert before["forced"]["status"] == 4
    assert (info["waitingQueueSize"], info["readyQueueSize"], info["ackQueueSize"]) == (1, 1, 1)
    await_that(lambda: there.info(topic) == info, lambda: "what was ready is not ready again")
    assert broker.stop() == 0


def test_a_node_out_of_service_is_idle_once_no_call_came_for_a_while() -> None:
    now = [100.0]
    health = Health(lambda: now[0])
    now[0] += IDLE_SECONDS - 1
    assert not health.idle
    health.called()
    now[0] += IDLE_SECONDS - 1
    assert not health.idle
    now[0] += 1
    assert health.idle


def test_the_health_switch(broker: Any) -> None:
    def ask(name: str, method: str = "GET") -> tuple[int, Any]:
        answer = broker.call(method, f"/camellia/health/{name}")
        return answer.status, answer.json

    good, bad = (200, {"code": 200}), (500, {"code": 500})
    assert ask("status") == ask("check") == ask("online", "POST") == good
    broker.call("POST", "/camellia/delayQueue/pullMsg?topic=t")
    assert ask("offline") == bad, "a queue call came lately"
    assert ask("status") == bad
    assert ask("check") == good
    assert broker.call("POST", "/camellia/delayQueue/pullMsg?topic=t").status == 200
    assert ask("online") == good
    assert ask("status") == good
