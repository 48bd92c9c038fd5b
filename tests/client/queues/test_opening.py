"""Opening a topic: made as it is needed, compared where it is there, never changed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from delaylog.client.queues import TopicMismatch
from delaylog.client.queues.queue_topics import open_topic

NEEDED = {"merge": "replace", "backoff": {"first_ms": 0}, "slots": 4}


def test_a_topic_is_made_once(client: Any) -> None:
    made = open_topic(client, "q", NEEDED, {"lease_ms": 5_000})
    assert (made.merge, made.slots, made.lease) == ("replace", 4, timedelta(seconds=5))
    again = open_topic(client, "q", NEEDED, {"lease_ms": 9_000})
    assert again == made, "what is only for a new topic is left as it is"


def test_what_differs_is_named(client: Any) -> None:
    client.put_topic("q", {"slots": 2, "backoff": {"first_ms": 5}})
    before = client.get_topic("q").settings
    with pytest.raises(TopicMismatch) as refused:
        open_topic(client, "q", NEEDED)
    assert set(refused.value.differences) == {"merge", "backoff", "slots"}
    assert refused.value.differences["slots"] == (2, 4)
    assert "slots is 2 and has to be 4" in str(refused.value)
    assert client.get_topic("q").settings == before
    for other in (copy.copy(refused.value), pickle.loads(pickle.dumps(refused.value))):
        assert str(other) == str(refused.value)


def test_of_two_who_open_it_at_once_one_is_told(
    client: Any, in_threads: Callable[..., None]
) -> None:
    """They want other slots: whoever comes second finds a topic that does not serve."""
    told: list[TopicMismatch] = []

    def open_it(slots: int) -> None:
        try:
            open_topic(client, "q", {"slots": slots})
        except TopicMismatch as mismatch:
            told.append(mismatch)

    in_threads(*(lambda at=at: open_it(1 << at % 2) for at in range(6)))
    assert len(told) == 3
