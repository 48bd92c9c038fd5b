"""A checkpoint holds all topics as of one log position, whatever changes while they are packed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from delaylog.broker.engine.topics import commands as topics
from delaylog.broker.engine.topics import packed_topics
from delaylog.broker.engine.topics.packed_topics import PackedTopics, TopicPacking
from tests.effort import tries

HOUR = 3_600_000


def packed_at_once(state: Any) -> list[Any]:
    """By somebody who has packed none of them before."""
    return named(PackedTopics(state.by_number, state.series))


def packed_again(state: Any) -> list[Any]:
    """By the state's own, which remembers what did not change."""
    return named(state.packed_topics)


def named(packed: PackedTopics) -> list[Any]:
    """All topics, with their settings in place."""
    packing = packed.begin()
    for _ in packed.work():
        pass
    return with_settings(packing)


def with_settings(packing: TopicPacking) -> list[Any]:
    found = list(packing.topics)
    assert len(found) == packing.topics.count
    return [topic | {"settings": packing.settings[topic["settings"]]} for topic in found]


def changes(host: Any) -> list[Callable[[], object]]:
    """Everything that changes what a checkpoint keeps of the host's topic."""
    state = host.engine.state

    def settle(how: Callable[..., object], **options: Any) -> None:
        how(host.receive(2), **options)

    def drop() -> None:
        host.drop_topic()

    return [
        lambda: host.send(3),
        lambda: host.send(3, delay=[0, HOUR, 40 * HOUR], ids=["x", "y", "z"]),
        lambda: host.configure(max_retry=3),
        lambda: host.pause(paused=True),
        lambda: host.pause(paused=False),
        lambda: settle(host.ack),
        lambda: settle(host.nack),
        lambda: settle(host.nack, delay=HOUR),
        lambda: host.receive(1),
        lambda: host.cancel(["x"]),
        lambda: host.reschedule(["y"], host.now_ms + 50 * HOUR),
        lambda: host.put_group("named"),
        lambda: topics.purge(
            state, host.topic, list(host.topic.groups.values()), host.now_ms, force=True
        ),
        drop,
    ]


@pytest.mark.parametrize("seed", range(tries(8)))
def test_topics_are_those_of_one_position(
    open_host: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Method: random changes between slices of a topic each, compared with packing at once."""
    monkeypatch.setattr(packed_topics, "SLICE_TOPICS", 1)
    monkeypatch.setattr(packed_topics, "BLOCK_BYTES", 600)
    host, random = open_host(), Random(seed)
    state = host.engine.state
    names = [f"t{k}" for k in range(6)]
    for name in names:
        host.topic_name = name
        host.configure()
        host.send(3, delay=[0, HOUR, 40 * HOUR], ids=["x", "y", "z"])
    for _ in range(20):
        host.topic_name = random.choice(names)
        if host.engine.topic(host.topic_name) is not None:
            random.choice(changes(host)[:-1])()
            assert packed_again(state) == packed_at_once(state)
    expected = packed_at_once(state)
    packing = state.packed_topics.begin()
    for _ in state.packed_topics.work():
        for _ in range(3):
            host.topic_name = random.choice(names)
            if host.engine.topic(host.topic_name) is None:
                host.configure()
            random.choice(changes(host))()
    assert with_settings(packing) == expected
    assert packed_at_once(state) != expected, "something did change"
    assert packed_again(state) == packed_at_once(state)


def test_settings_that_come_and_go_leave_nothing(host: Any) -> None:
    """A topic whose settings change all the time does not make checkpoints grow."""
    for k in range(400):
        host.configure(max_retry=k)
        assert packed_again(host.engine.state) == packed_at_once(host.engine.state)
    assert len(host.engine.state.packed_topics.settings) < 100
