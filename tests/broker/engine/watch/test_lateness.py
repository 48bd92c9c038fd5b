"""Lateness of real hand-outs and releases: what counts, for which topic, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.topics.settings import Backoff
from delaylog.broker.engine.watch.histogram import BOUNDS_MS, Histogram, Lateness


def late(histogram: Histogram) -> dict[float, int]:
    """Counts by upper bound, without empty buckets."""
    bounds = (*BOUNDS_MS, float("inf"))
    return {bound: n for bound, n in zip(bounds, histogram.counts, strict=True) if n}


def of(host: Any) -> Lateness:
    return host.engine.state.series.lateness_of(host.topic)


def test_ready_is_prompt_and_handing_out_waits_for_consumers(host: Any) -> None:
    """The wheel is exact in this world, so only the consumer is late."""
    host.send(3, delay=1_000)
    host.advance(1_000)
    assert late(of(host).ready) == {1: 3}
    assert late(of(host).handed_out) == {}
    host.advance(40)
    host.receive()
    assert late(of(host).handed_out) == {50: 3}
    assert of(host).handed_out.sum == 3 * 40


def test_only_the_first_hand_out_of_a_due_time_counts(host: Any) -> None:
    """Purpose: a slow consumer is not a late broker. Method: give back at once, and after a
    backoff, which is a due time of its own."""
    host.configure(backoff=Backoff(first_ms=2_000, max_ms=2_000, factor=1.0, jitter=0.0))
    host.send(1, delay=0)
    got = host.receive()
    host.advance(9_000)
    host.nack(got, delay=0)
    got = host.receive()
    assert late(of(host).handed_out) == {1: 1}
    host.nack(got)
    host.advance(2_007)
    assert [each.attempts for each in host.receive()] == [3]
    assert late(of(host).handed_out) == {1: 1, 10: 1}
    assert late(of(host).ready) == {1: 2}


def test_a_restart_does_not_count_what_was_ready_before(host: Any) -> None:
    """Purpose: a backlog that waits for consumers is no lateness of a start. What became due while
    the broker was down is. Method: one of each."""
    host.send(5, delay=0)
    host.send(2, delay=60_000)
    host.advance(30_000)
    host.engine.write_changed_tick(host.now_ms)
    host.restart(pause_ms=90_000)
    assert late(of(host).ready) == {300_000: 2}


def test_the_latest_message_of_a_batch_is_the_example(host: Any) -> None:
    """By its own id, or by the one that the broker gave; without a record there is none."""
    sent = host.send(2, delay=0)
    host.advance(30)
    host.receive(1)
    example = of(host).handed_out.examples[BOUNDS_MS.index(50)]
    assert (example.label, example.value) == ("message_id", 30)
    assert len(example.text) == 20 or example.text, sent
    host.receive()
    host.advance(2_000)
    host.send([b"a", b"b"], at=[host.now_ms + 20, host.now_ms + 10], ids=["later", "first"])
    host.advance(20)
    host.receive()
    assert of(host).handed_out.examples[BOUNDS_MS.index(10)].text == "first"


def test_the_example_was_handed_out_for_the_first_time(host: Any) -> None:
    """Purpose: the example is one of the messages of its bucket. Method: a batch whose oldest
    message failed before, which is not counted again."""
    host.send(1, ids=["failed"])
    got = host.receive()
    host.advance(20_000)
    host.nack(got, delay=0)
    host.send(2, at=[host.now_ms + 10, host.now_ms + 5], ids=["second", "first"])
    host.advance(40)
    assert [each.id for each in host.receive()] == ["failed", "first", "second"]
    assert late(of(host).handed_out) == {1: 1, 50: 2}
    kept = [each for each in of(host).handed_out.examples.values() if each.value]
    assert [(each.text, each.value) for each in kept] == [("first", 35)]


def test_what_was_cancelled_does_not_become_ready(host: Any) -> None:
    """In a topic with a group of its own, too: a message counts if it is ready in any of them."""
    host.put_group("audit")
    host.send(3, delay=1_000, ids=["a", "b", "c"])
    host.cancel(["a"])
    host.advance(1_000)
    assert host.bodies(group="audit") == [b"0", b"1", b"2"]
    assert late(of(host).ready) == {1: 3}
    host.send(3, delay=1_000, ids=["d", "e", "f"])
    host.drop_group("audit")
    host.cancel(["d", "e"])
    host.advance(1_000)
    assert late(of(host).ready) == {1: 4}


def test_topics_beyond_the_limit_share_one(open_host: Any, tmp_path: Any) -> None:
    """A dropped topic's counts stay in the total, so that nothing that is derived from it falls."""
    host = open_host(limits=replace(Limits(), metrics_topics_max=1))
    host.send(1, delay=0)
    for name in ("u", "v"):
        host.send(2, delay=0, topic=name)
    series = host.engine.state.series
    assert late(of(host).ready) == {1: 1}
    assert late(series.other_lateness.ready) == {1: 4}
    host.purge()
    host.drop_topic()
    assert list(series.lateness) == []
    assert late(series.total_lateness().ready) == {1: 5}
