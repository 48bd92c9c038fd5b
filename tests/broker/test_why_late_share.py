"""A drill of mixed causes over a real broker: few late messages have a cause that is not known.

Consumers of several topics are slow, away, limited, paused or ask for other tags, keys are stuck,
the process is stopped for a moment and killed once. Each message that was late by `LATE_MS` is then
asked for.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

from delaylog.broker.engine.late.causes import LATE_MS

SECONDS: Final = 8
TOPICS: Final[dict[str, dict[str, Any]]] = {
    "slow": {},
    "keys": {},
    "away": {},
    "limited": {"rate_limit": {"per_second": 8, "burst": 1}},
    "paused": {},
    "tags": {},
}


class Drill:
    """Sends to, receives from and disturbs one broker until it is told to stop."""

    def __init__(self, broker: Any, seed: int) -> None:
        self.broker, self.random = broker, Random(seed)
        self.stop = threading.Event()
        self.sent: dict[str, list[str]] = {name: [] for name in TOPICS}

    def send(self) -> None:
        """Messages due now or soon, one a topic every 50 ms."""
        number = 0
        while not self.stop.wait(0.05):
            for name, sent in self.sent.items():
                number += 1
                message = {
                    "body": "x",
                    "id": f"m{number}",
                    "delay_ms": self.random.choice([0, 300]),
                }
                if name == "keys":
                    message["key"] = f"k{self.random.randrange(4)}"
                if name == "tags":
                    message["tags"] = [self.random.choice("abc")]
                with suppress(Exception):
                    self.broker.post(f"/v1/topics/{name}/messages", message)
                    sent.append(message["id"])

    def receive(self, name: str, seed: int) -> None:
        """Take a few messages, work on them, and settle them."""
        random = Random(seed)
        path = f"/v1/topics/{name}"
        while not self.stop.is_set():
            try:
                asked = {"wait_ms": 500, "max": random.choice([1, 4]), "lease_ms": 3_000}
                if name == "tags":
                    # Nobody asks for the third tag.
                    # While a lease of before the crash lasts, its consumer counts as one for them.
                    asked |= {"tags": ["ab"[seed % 2]], "lease_ms": 1_000}
                found = self.broker.post(f"{path}/receive", asked)["messages"]
                if name == "keys" and random.random() < 0.1:
                    continue
                self.stop.wait(random.choice([0.0, 0.1, 0.4]) if name != "limited" else 0.0)
                receipts = [message["receipt"] for message in found]
                if receipts:
                    call = "nack" if name == "keys" and random.random() < 0.2 else "ack"
                    self.broker.post(f"{path}/{call}", {"receipts": receipts})
                if name == "away" and random.random() < 0.3:
                    self.stop.wait(random.choice([0.5, 2.0]))
            except Exception:
                self.stop.wait(0.05)

    def disturb(self) -> None:
        """Pause a topic, stop the process, kill it."""
        for at in range(SECONDS * 2):
            time.sleep(0.5)
            with suppress(Exception):
                self.broker.post(f"/v1/topics/paused/{'resume' if at % 3 == 0 else 'pause'}")
            if at == SECONDS // 2:
                os.kill(self.broker.pid, signal.SIGSTOP)
                time.sleep(0.7)
                os.kill(self.broker.pid, signal.SIGCONT)
            if at == SECONDS:
                self.broker.crash()
                time.sleep(0.5)
                self.broker.start()

    def run(self) -> None:
        """All of it at once."""
        threads = [threading.Thread(target=self.send)]
        for seed, name in enumerate([*TOPICS, "tags", "slow"]):
            threads.append(threading.Thread(target=self.receive, args=(name, seed)))
        for thread in threads:
            thread.start()
        try:
            self.disturb()
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()


def test_the_share_of_unknown_causes(start_broker: Callable[..., Any]) -> None:
    """By the cause of most of its wait at most 1 % of the late messages are `unknown`."""
    broker = start_broker()
    for name, settings in TOPICS.items():
        broker.call("PUT", f"/v1/topics/{name}", {"ended_keep_ms": 600_000, **settings})
    drill = Drill(broker, 1)
    drill.run()
    causes: dict[str, Counter[str]] = {name: Counter() for name in TOPICS}
    for name, sent in drill.sent.items():
        for text in sent:
            message = broker.call("GET", f"/v1/topics/{name}/messages/{text}?life=true").json
            sizes: Counter[str] = Counter()
            for wait in message.get("waits", ()):
                sizes[wait["cause"]] += wait["until_ms"] - wait["from_ms"]
            if sizes.total() >= LATE_MS:
                causes[name][sizes.most_common(1)[0][0]] += 1
    total = sum(causes.values(), Counter[str]())
    assert total.total() >= 100, causes
    assert total["unknown"] <= total.total() / 100, causes
    # A third of its messages have a tag that nobody asked for.
    assert causes["tags"]["filtered_out"] >= 10, causes
