"""A receive that does not wait still sees every message that was answered as due."""

from __future__ import annotations

from typing import Any


def test_what_was_sent_without_a_delay_is_there_for_the_next_call(broker: Any, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    for number in range(300):
        broker.post(f"{path}/messages", {"body": str(number)})
        found = broker.post(f"{path}/receive", {"max": 10})["messages"]
        assert [message["body"] for message in found] == [str(number)]


def test_a_peek_sees_it_too(broker: Any, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    for number in range(100):
        broker.post(f"{path}/messages", {"body": str(number)})
        assert len(broker.post(f"{path}/peek", {"max": 1000})["messages"]) == number + 1
