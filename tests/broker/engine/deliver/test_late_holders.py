"""What is past its ttl holds nobody up, though nobody asks for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.storage.layout import MessageState

X, Y = TagFilter(frozenset([b"x"])), TagFilter(frozenset([b"y"]))


def test_a_retry_that_no_filter_wants_ends_by_its_ttl(host: Any) -> None:
    host.configure(backoff={"first_ms": 0})
    host.send(
        [b"0", b"1", b"2", b"3"],
        keys="kkll",
        tags="xyxy",
        ttl_ms=np.array([1_000, -1, 1_000, -1]),
    )
    host.nack(host.receive(only=X))
    assert host.bodies(only=Y) == []
    host.advance(999)
    assert host.bodies(only=Y) == []
    host.advance(1)
    assert sorted(host.bodies(only=Y)) == [b"1", b"3"]
    assert host.topic.default.counts.dead == 2
    host.check_counts()


def test_who_keeps_a_key_and_has_a_successor_ends_once(host: Any) -> None:
    """Ended twice, it counted twice, and its hour was taken for empty while others lived in it."""
    host.configure(backoff={"first_ms": 0})
    host.send([b"old"], ids=["a"], keys="k", ttl_ms=1_000)
    held = host.receive()
    host.send([b"new"], ids=["a"], keys="k", merge="replace")
    host.nack(held)
    host.advance(1_000)
    counts = host.topic.default.counts
    assert (counts.dead, counts.living) == (1, 1)
    host.check_counts()
    assert host.bodies() == [b"new"]


def test_a_predecessor_that_no_filter_wants_ends_by_its_ttl(host: Any) -> None:
    host.configure(backoff={"first_ms": 0}, merge_leased="successor")
    host.send([b"old"], ids=["a"], tags="x", ttl_ms=1_000)
    held = host.receive(only=X)
    host.send([b"new"], ids=["a"], tags="y", merge="replace")
    host.nack(held)
    host.advance(999)
    assert host.bodies(only=Y) == []
    host.advance(1)
    assert host.bodies(only=Y) == [b"new"]


def test_who_is_not_late_stays(host: Any) -> None:
    host.configure(backoff={"first_ms": 5_000})
    host.send([b"0", b"1"], keys="kk", ids=["a", "b"], ttl_ms=60_000)
    (first,) = host.receive()
    host.nack([first])
    assert host.state_of("a") is MessageState.WAITING
    host.advance(5_000)
    assert host.bodies() == [b"0"]
