"""A receive that does not wait sees every message that was due when it was called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import sleep, time
from typing import Any


def test_what_was_sent_is_there_for_the_next_call(open_embedded: Callable[..., Any]) -> None:
    broker = open_embedded()
    for number in range(100):
        broker.send("t", f"{number}")
        assert [message.text for message in broker.receive("t", max=10)] == [f"{number}"]


def test_a_message_is_there_in_the_millisecond_in_which_it_comes_due(
    open_embedded: Callable[..., Any],
) -> None:
    broker = open_embedded()
    for number in range(50):
        due_ms = broker.send("t", f"{number}", delay_ms=7).deliver_at_ms
        while time() * 1000 < due_ms:
            sleep(0)
        assert [message.text for message in broker.receive("t", max=10)] == [f"{number}"]


def test_what_a_closed_broker_left_is_there_for_the_first_call(
    open_embedded: Callable[..., Any], tmp_path: Path
) -> None:
    """Older messages of another topic are loaded in front of it."""
    for number in range(5):
        with open_embedded(tmp_path / "folder") as broker:
            if number:
                found = broker.receive("t", max=10)
                assert [message.text for message in found] == [f"{number - 1}"]
                broker.ack(found)
            broker.send_many("crowd", ["x"] * 5_000)
            broker.send("t", f"{number}")
