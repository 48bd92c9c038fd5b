"""Random traffic around hot seconds: every message comes once, whole, in time, or was cancelled.

Method: two topics share three hot seconds; sends, cancels, flushes, checkpoints, restarts, nacks
and receives of all sizes come in random order. A plain dict says what may come and what must have
come in the end. The seeds are the parameters: a failure is repeated by its own number.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from delaylog.broker.engine.limits import Limits
from tests.effort import tries

FOREVER_MS = 10_000_000


@dataclass
class Sent:
    topic: str
    id: str
    due: int
    state: str = "living"


@dataclass
class Traffic:
    host: Any
    random: random.Random
    base: int
    sent: dict[bytes, Sent] = field(default_factory=dict)
    held: list[tuple[str, list[Any]]] = field(default_factory=list)

    def send(self, count: int) -> None:
        now, topic = self.host.now_ms, self.random.choice("tu")
        due = [max(self.base + self.random.randrange(3_000), now) for _ in range(count)]
        first = len(self.sent)
        bodies = [b"%d-" % (first + k) + b"x" * self.random.randrange(60) for k in range(count)]
        ids = self.host.ids_of(self.host.send(bodies, at=due, topic=topic))
        for body, name, when in zip(bodies, ids, due, strict=True):
            self.sent[body] = Sent(topic, name, when)

    def cancel(self) -> None:
        topic = self.host.topic_name = self.random.choice("tu")
        some = [s for s in self.sent.values() if s.topic == topic and s.state == "living"][:9]
        for one, code in zip(some, self.host.cancel([s.id for s in some]), strict=True):
            assert code == 0, "what nobody has can be cancelled"
            one.state = "cancelled"

    def receive(self, count: int) -> list[Any]:
        topic = self.host.topic_name = self.random.choice("tu")
        messages = self.host.receive(count, lease=FOREVER_MS)
        for message in messages:
            one = self.sent[message.body]
            assert (one.topic, one.state) == (topic, "living"), message
            assert one.due <= self.host.now_ms, "early"
            one.state = "leased"
        return messages

    def settle(self, messages: list[Any]) -> None:
        if messages and self.random.random() < 0.3:
            self.held.append((self.host.topic_name, messages))
        elif messages:
            assert self.host.ack(messages) == len(messages)

    def give_back(self) -> None:
        if not self.held:
            return
        self.host.topic_name, messages = self.held.pop(self.random.randrange(len(self.held)))
        for message in messages:
            self.sent[message.body].state = "living"
        assert self.host.nack(messages, delay=self.random.choice([0, 0, 50])) == len(messages)


@pytest.mark.parametrize("seed", range(tries(25)))
def test_everything_comes_once(open_host: Callable[..., Any], seed: int) -> None:
    rng = random.Random(seed)
    limits = Limits(receive_bytes_max=rng.choice([200, 2_000, 1 << 25]))
    host = open_host(limits=limits, hot_rows_min=rng.choice([2, 8, 20]))
    traffic = Traffic(host, rng, (host.now_ms // 1000 + rng.choice([5, 20, 60])) * 1000)
    for _ in range(rng.randrange(1, 6)):
        traffic.send(rng.randrange(1, 120))
    steps: list[tuple[int, Callable[[], Any]]] = [
        (25, lambda: host.advance(rng.choice([1, 7, 100, 400, 2_000, 9_000]))),
        (10, lambda: traffic.send(rng.randrange(1, 20))),
        (10, traffic.cancel),
        (5, host.flush),
        (3, host.checkpoint),
        (3, lambda: host.restart(rng.choice([0, 500]))),
        (4, traffic.give_back),
        (40, lambda: traffic.settle(traffic.receive(rng.choice([1, 5, 50, 1_000])))),
    ]
    for _ in range(250):
        rng.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()
    host.advance(70_000)
    quiet = 0
    while quiet < 20:
        quiet = 0 if traffic.receive(1_000) else quiet + 1
    assert [one for one in traffic.sent.values() if one.state == "living"] == []
