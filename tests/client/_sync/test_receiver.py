"""Receiver: what its polls have leased when the client is closed goes back."""

from __future__ import annotations

import threading
from typing import Any, cast

from delaylog.client._sync.receiver import Receiver
from delaylog.client.errors import AnswerLost
from delaylog.client.message import LeasedMessage
from delaylog.client.shards.receives import Wanted
from delaylog.client.shards.sharding import ByKey, Topology
from tests.client.rows import received

WANTED = Wanted("t")


class Shard:
    """A link whose first receive is answered when the test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = threading.Event()
        self.answers = threading.Event()
        self.messages: list[LeasedMessage] = []
        self.given_back = 0

    def receive(self, wanted: Wanted, **_: Any) -> list[LeasedMessage]:
        self.asked.set()
        if not self.answers.wait(20):
            raise AnswerLost("nobody let it answer")
        return self.messages

    def give_back(self, messages: list[LeasedMessage]) -> None:
        self.given_back += len(messages)


def test_what_comes_while_it_is_closed_is_given_back() -> None:
    topology = Topology(("http://a:1", "http://b:1"), ByKey(), None)
    one, other = shards = [Shard(shard.name) for shard in topology.shards]
    receiver = Receiver(cast(Any, shards), topology)
    one.messages, other.messages = (
        received([0], shard=one.name),
        received(range(3), shard=other.name),
    )
    one.answers.set()
    assert len(receiver.receive(WANTED, max=1, wait_ms=5_000, lease_ms=None)) == 1
    assert other.asked.wait(20)
    soon = threading.Timer(0.02, other.answers.set)
    soon.start()
    receiver.close()
    soon.join()
    assert (one.given_back, other.given_back) == (0, 3)
