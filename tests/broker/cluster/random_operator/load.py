"""Clients that go on through everything, and the history of what they were told.

Senders repeat a send under its idempotency key until it is answered; consumers acknowledge most of
what they take and forget some. Each call is a line of a history, in the form of docs/HISTORY.md.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from delaylog.broker.history import HistoryRecorder, body_hash
from tests.broker.cluster.random_operator.nodes import Nodes

TOPIC = "/v1/topics/operated"
LEASE_MS = 4_000
CALL_S = 2.0
RETRY_S = 0.03
FAR_MS = 6 * 3_600_000
RETRIES_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that a receive brought."""

    id: str
    epoch: int
    """Of the leader, by the receipt."""
    now_ms: int
    until_ms: int
    wall_ms: int
    """When the answer came."""


class Load:
    """Two senders and two consumers; `hold` stops the senders for a while."""

    def __init__(self, nodes: Nodes, history: Path, seed: int, ahead_ms: int) -> None:
        """Most messages are due within `ahead_ms`; a few in hours."""
        self._nodes = nodes
        self.recorder = HistoryRecorder(history)
        self._random = Random(f"{seed} load")
        self._ahead_ms = ahead_ms
        self._at = 1
        self.deliveries: list[Delivery] = []
        self.far: list[str] = []
        """Acknowledged, and due long after the end."""
        self.cancelled: set[str] = set()
        """By calls that were answered, and by such that were not and may have done nothing."""
        self._surely_cancelled: set[str] = set()
        self.acknowledged = 0
        self.faults: list[BaseException] = []
        self._sending = threading.Event()
        self._sending.set()
        self._idle = [threading.Event(), threading.Event()]
        self._no_more = threading.Event()
        self._drained = threading.Event()
        self.last_due_ms = 0
        work = [*((self._send, n) for n in range(2)), *((self._consume, n) for n in range(2))]
        self._threads = [threading.Thread(target=self._run, args=each) for each in work]

    def begin(self) -> None:
        """Make the topic and go on until `end`."""
        while self._call("PUT", TOPIC, {"max_retry": RETRIES_MAX})[0] != 200:
            time.sleep(RETRY_S)
        for thread in self._threads:
            thread.start()

    def hold(self) -> None:
        """Wait until no send is under way."""
        self._sending.clear()
        for idle in self._idle:
            assert idle.wait(120), "a send was never answered"

    def go_on(self) -> None:
        self._sending.set()

    def stop_sending(self) -> None:
        """For good; what is under way is answered."""
        self._no_more.set()
        self._sending.set()
        for thread in self._threads[:2]:
            thread.join(120)
            assert not thread.is_alive(), "a send was never answered"

    def drain(self, deadline_s: float) -> None:
        """Consume until nothing is left but what is due in hours."""
        end = time.monotonic() + deadline_s
        while True:
            status, answer = self._call("GET", f"{TOPIC}/stats?delay_buckets=false")
            counts = answer.get("counts", {}) if status == 200 else {}
            far = len(self.far) - len(self._surely_cancelled & {*self.far})
            if counts and not counts["ready"] and not counts["leased"]:
                if counts["waiting"] <= far and time.time() * 1000 > self.last_due_ms:
                    break
            assert time.monotonic() < end, f"never drained: {counts}, {far} are far"
            time.sleep(0.1)
        time.sleep(0.5)
        self.recorder.mark("end", int(time.time() * 1000))

    def end(self) -> None:
        """End at once; safe to call again."""
        self._no_more.set()
        self._drained.set()
        self._sending.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(60)
        self.recorder.close()

    def status_of(self, name: str) -> int:
        """What the leader answers to a read of a message."""
        return self._call("GET", f"{TOPIC}/messages/{name}")[0]

    # ------------------------------------------------------------------ clients

    def _run(self, work: Any, number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            self.faults.append(error)
            raise

    def _send(self, number: int) -> None:
        random = Random(f"{self._random.random()} send {number}")
        at = 0
        while not self._no_more.is_set():
            if not self._sending.is_set():
                self._idle[number].set()
                self._sending.wait(0.2)
                continue
            self._idle[number].clear()
            at += 1
            name = f"s{number}.{at}"
            far = random.random() < 0.05
            ahead = FAR_MS if far else random.randint(0, self._ahead_ms)
            due_ms = int(time.time() * 1000) + ahead
            if self._send_once(name, due_ms, far=far) and random.random() < 0.06:
                self._cancel(name)
            time.sleep(0.02)
        self._idle[number].set()

    def _send_once(self, name: str, due_ms: int, *, far: bool) -> bool:
        body = f"body of {name}"
        members = {"id": name, "body": body, "deliver_at_ms": due_ms}
        t0 = _now_ms()
        while not self._drained.is_set():
            status, answer = self._call("POST", f"{TOPIC}/messages", members, key=name)
            if status == 200:
                break
            assert status in (0, 307, 503, 507), (status, answer)
            time.sleep(RETRY_S)
        else:
            self.recorder.call("send", t0, _now_ms(), None, id=name, due=due_ms)
            return False
        self.recorder.call(
            "send",
            t0,
            _now_ms(),
            True,
            id=name,
            due=answer["deliver_at_ms"],
            body=body_hash(body.encode()),
            result=answer["result"],
        )
        self.acknowledged += 1
        if far:
            self.far.append(name)
        else:
            self.last_due_ms = max(self.last_due_ms, answer["deliver_at_ms"])
        return True

    def _cancel(self, name: str) -> None:
        t0 = _now_ms()
        status, _ = self._call("DELETE", f"{TOPIC}/messages/{name}")
        done = True if status == 200 else False if status in (307, 404, 409) else None
        self.recorder.call("cancel", t0, _now_ms(), done, id=name)
        if done is not False:
            self.cancelled.add(name)
        if done:
            self._surely_cancelled.add(name)

    def _consume(self, number: int) -> None:
        random = Random(f"{self._random.random()} consume {number}")
        wanted = {"max": 20, "wait_ms": 300, "lease_ms": LEASE_MS}
        while not self._drained.is_set():
            t0 = _now_ms()
            status, answer = self._call("POST", f"{TOPIC}/receive", wanted)
            if status != 200:
                if status in (0, 503):
                    self.recorder.call("deliver", t0, _now_ms(), None, lease_ms=LEASE_MS)
                time.sleep(RETRY_S)
                continue
            t1 = _now_ms()
            for each in answer["messages"]:
                self._take(each, answer["now_ms"], t0, t1)
            kept = [
                m for m in answer["messages"] if self._no_more.is_set() or random.random() < 0.96
            ]
            if kept:
                self._ack(kept)

    def _take(self, message: dict[str, Any], now_ms: int, t0: int, t1: int) -> None:
        until_ms = message["lease_until_ms"]
        # The broker's clock when it handed it out: the earlier, so the stricter, of two.
        now_ms = min(now_ms, until_ms - LEASE_MS)
        epoch = int(message["receipt"][:16], 16) >> 40
        self.deliveries.append(Delivery(message["id"], epoch, now_ms, until_ms, t1))
        self.recorder.call(
            "deliver",
            t0,
            t1,
            True,
            id=message["id"],
            due=message["deliver_at_ms"],
            attempt=message["attempts"],
            body=body_hash(message["body"].encode()),
            lease=message["receipt"],
            now=now_ms,
            lease_ms=LEASE_MS,
            lease_until=until_ms,
        )

    def _ack(self, messages: list[dict[str, Any]]) -> None:
        t0 = _now_ms()
        receipts = [each["receipt"] for each in messages]
        status, answer = self._call("POST", f"{TOPIC}/ack", {"receipts": receipts})
        results = answer.get("results") if status == 200 else None
        for at, each in enumerate(messages):
            done = results[at] == "done" if results else False if status == 307 else None
            self.recorder.call("ack", t0, _now_ms(), done, id=each["id"], lease=receipts[at])

    # ------------------------------------------------------------------ calls

    def _call(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        """One attempt at whoever is thought to lead; 0 = nobody answered."""
        node = self._at
        connection = http.client.HTTPConnection("127.0.0.1", self._nodes.http[node], timeout=CALL_S)
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            raw, location = response.read(), response.getheader("Location", "")
        except (OSError, http.client.HTTPException):
            self._leave(node)
            return 0, {}
        finally:
            connection.close()
        if response.status == 307:
            self._go_to(location, node)
        elif response.status >= 500:
            self._leave(node)
        elif raw:
            return response.status, json.loads(raw)
        return response.status, {}

    def _leave(self, node: int) -> None:
        if self._at == node:
            self._at = node % len(self._nodes.http) + 1

    def _go_to(self, location: str, asked: int) -> None:
        for node, port in self._nodes.http.items():
            if f":{port}/" in location and node != asked:
                self._at = node
                return
        self._leave(asked)


def _now_ms() -> int:
    return int(time.time() * 1000)
