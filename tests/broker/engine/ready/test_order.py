"""Order by priority, pace by rate limits, successors of leased ids, quotas, and what goes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.deliver import receiving
from delaylog.broker.engine.deliver.selecting import ReceiveRequest
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.send.merging import CREATED, KEPT, REPLACED
from delaylog.broker.engine.send.quotas import QuotaError


def send(host: Any, *pairs: tuple[int, str], **how: Any) -> Any:
    """Messages as (priority, body)."""
    return host.send(
        [body.encode() for _, body in pairs],
        priority=np.array([priority for priority, _ in pairs]),
        **how,
    )


# --------------------------------------------------------------------------- order


def test_dyno_priority_breaks_ties_inside_a_millisecond(host: Any) -> None:
    send(host, (-3, "c"), (-1, "a"), (-2, "b"), delay=1_000)
    send(host, (9, "later"), delay=1_001)
    send(host, (-9, "sooner"), delay=999)
    host.advance(2_000)
    assert host.bodies() == [b"sooner", b"a", b"b", b"c", b"later"]


def test_rmq_highest_priority_first_among_all_that_are_due(host: Any) -> None:
    host.configure(order="priority")
    send(host, (17, "low"), (30, "high"), delay=10)
    send(host, (20, "mid"), (30, "high again"), delay=20)
    send(host, (99, "not due"), delay=5_000)
    host.advance(100)
    assert host.bodies() == [b"high", b"high again", b"mid", b"low"]


def test_rmq_failed_ones_come_last_in_priority_order(host: Any) -> None:
    host.configure(order="priority", backoff={"first_ms": 0})
    send(host, (20, "mid"), (30, "high"), (17, "low"))
    host.nack(host.receive(2))
    send(host, (16, "fresh"))
    assert host.bodies() == [b"low", b"fresh", b"high", b"mid"]


def test_failed_ones_come_first_in_time_order(host: Any) -> None:
    host.configure(backoff={"first_ms": 0})
    host.send([b"a", b"b", b"c"])
    host.nack(host.receive(2))
    assert host.bodies() == [b"a", b"b", b"c"]


def test_waiting_makes_up_for_priority(host: Any) -> None:
    host.configure(order="priority", aging_ms=100)
    send(host, (1, "old"))
    host.advance(1_000)
    send(host, (5, "five steps ahead"), (20, "twenty steps ahead"))
    assert host.bodies() == [b"twenty steps ahead", b"old", b"five steps ahead"]


def test_order_can_be_changed_while_messages_wait(host: Any) -> None:
    host.send([b"a", b"b"])
    host.configure(order="priority")
    send(host, (1, "low"), (5, "high"))
    assert host.bodies() == [b"a", b"b", b"high", b"low"]


@pytest.mark.parametrize("only", [None, "blue"])
def test_what_is_given_back_does_not_overtake_a_higher_priority(host: Any, only: Any) -> None:
    """A call looks at more than it hands out where it meets what has ended."""
    host.configure(order="priority")
    only = only and TagFilter.parse([only])
    assert host.receive(only=only) == []
    sent = blue(host, *[(1, str(k)) for k in range(6)])
    assert host.cancel(host.ids_of(sent)[:1]) == [0]
    assert host.bodies(1, only=only) == [b"1"]
    blue(host, (5, "high"), (1, "last"))
    assert host.bodies(2, only=only) == [b"high", b"2"]
    blue(host, (3, "mid"))
    assert host.bodies(only=only) == [b"mid", b"3", b"4", b"5", b"last"]


def test_an_answer_cut_short_does_not_overtake_a_higher_priority(
    open_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaylog.broker.engine.deliver.selecting.RECEIVE_BYTES_MAX", 100)
    host = open_host()
    host.configure(order="priority")
    send(host, *[(1, f"{k:040}") for k in range(4)])
    assert [int(body) for body in host.bodies()] == [0, 1]
    send(host, (5, f"{9:040}"))
    assert [int(body) for body in host.bodies()] == [9, 2]
    peeked = receiving.peek(
        host.engine.state,
        host.topic,
        host.topic.default,
        ReceiveRequest(count_max=9, now_ms=host.now_ms),
    )
    assert len(peeked[0]) == 1
    send(host, (5, "high"))
    assert [int(body) if body.isdigit() else body for body in host.bodies()] == [b"high", 3]


def blue(host: Any, *pairs: tuple[int, str]) -> Any:
    return send(host, *pairs, tags=["blue"] * len(pairs))


BLUE = TagFilter.parse(["blue"])


def test_filters_follow_a_change_of_the_order(host: Any) -> None:
    host.configure(order="priority")
    blue(host, (0, "a"), (0, "b"))
    assert host.bodies(1, only=BLUE) == [b"a"]
    host.configure(order="time")
    blue(host, (0, "c"))
    assert host.bodies(only=BLUE) == [b"b", b"c"]
    host.configure(order="priority")
    blue(host, (1, "low"), (1, "low too"))
    assert host.bodies(1, only=BLUE) == [b"low"]
    blue(host, (9, "high"))
    assert host.bodies(only=BLUE) == [b"high", b"low too"]


@pytest.mark.parametrize("order", ["time", "priority"])
def test_many_against_a_sort(host: Any, order: str) -> None:
    host.configure(order=order)
    rng = random.Random(order)
    sent = [(rng.choice([0, 1, 5, -7]), rng.randrange(300), n) for n in range(3_000)]
    for start in range(0, 3_000, 100):
        part = sent[start : start + 100]
        send(
            host, *[(p, str(n)) for p, _, n in part], at=[host.now_ms + 500 + d for _, d, _ in part]
        )
    host.restart()
    host.advance(1_000)
    keys = {"time": lambda m: (m[1], -m[0], m[2]), "priority": lambda m: (-m[0], m[1], m[2])}
    expected = [n for _, _, n in sorted(sent, key=keys[order])]
    got = []
    while messages := host.receive(rng.randrange(1, 400)):
        got += [int(m.body) for m in messages]
    assert got == expected


@pytest.mark.parametrize("order", ["time", "priority"])
def test_filters_keep_the_order(host: Any, order: str) -> None:
    host.configure(order=order)
    rng = random.Random(3)
    tags = [rng.choice(["red", "blue", "red,blue", ""]) for _ in range(500)]
    priorities = [rng.randrange(4) for _ in range(500)]
    send(
        host,
        *[(p, str(n)) for n, p in enumerate(priorities)],
        tags=tags,
        delay=5,
    )
    host.advance(5)
    red = [n for n in range(500) if "red" in tags[n]]
    first = sorted(red, key=lambda n: (-priorities[n], n))
    wanted = TagFilter.parse(["red"])
    got = [int(body) for body in host.bodies(100, only=wanted)]
    assert got == first[:100]
    assert host.bodies(only=TagFilter.parse(["green"])) == []
    both = [int(body) for body in host.bodies(only=TagFilter.parse(["red", "blue"], "all"))]
    left = [n for n in first[100:] if "blue" in tags[n]]
    assert both == left
    rest = {int(body) for body in host.bodies()}
    assert rest == set(range(500)) - set(got) - set(both)
    assert host.topic.default.ready_count == 0


# --------------------------------------------------------------------------- pace


def test_a_rate_limit_paces_what_is_handed_out(host: Any) -> None:
    host.configure(rate_limit={"per_second": 10, "burst": 3})
    host.send(20)
    assert len(host.receive()) == 3
    assert host.receive() == []
    host.advance(99)
    assert host.receive() == []
    host.advance(1)
    assert len(host.receive()) == 1
    assert host.engine.state.marks.newly_ready, (
        "whoever waits is told when there is something again"
    )
    host.advance(10_000)
    assert len(host.receive()) == 3


# --------------------------------------------------------------------------- successors


def test_a_replacement_of_a_leased_message_comes_after_it(host: Any) -> None:
    host.configure(merge="replace", backoff={"first_ms": 0})
    host.send([b"one"], ids=["x"])
    held = host.receive()
    assert host.send([b"two"], ids=["x"]).results == CREATED
    assert host.send([b"three"], ids=["x"]).results == [REPLACED]
    assert host.receive() == []
    host.restart()
    assert host.receive() == []
    host.nack(held, 0)
    again = host.receive()
    assert [m.body for m in again] == [b"one"]
    host.checkpoint()
    host.restart()
    assert host.receive() == []
    host.ack(again)
    assert host.bodies() == [b"three"]


@pytest.mark.parametrize("end", ["ack", "cancel"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_successor_waits_for_the_end_wherever_the_first_one_goes(
    host: Any, end: str, restarted: bool
) -> None:
    """Two messages have the id once the leased one came back, but only one may be handed out."""
    host.configure(merge="replace")
    (first,) = host.ids_of(host.send([b"one"], ids=["x"]))
    held = host.receive()
    host.send([b"two"], ids=["x"])
    host.nack(held, 60_000)
    assert host.reschedule([first], host.now_ms + 3_600_000) == [0]
    assert host.reschedule(["x"], host.now_ms) == [0], "the id is the newest one's"
    if restarted:
        host.checkpoint()
        host.restart()
    host.advance(1_800_000)
    assert host.receive() == []
    assert host.send([b"three"], ids=["x"]).results == [REPLACED]
    assert host.receive() == []
    if end == "cancel":
        assert host.cancel([first]) == [0]
    else:
        host.advance(1_800_000)
        again = host.receive()
        assert [m.body for m in again] == [b"one"]
        host.ack(again)
    assert host.bodies() == [b"three"]
    host.recount()


def test_rmq_range_merge(host: Any) -> None:
    """The first wins while it waits; what comes during the work makes one more message."""
    host.configure(merge="keep", merge_leased="successor")
    assert host.send([b"one"], ids=["x"], delay=100).results == CREATED
    assert host.send([b"two"], ids=["x"]).results == [KEPT]
    host.advance(100)
    held = host.receive()
    assert host.send([b"three"], ids=["x"], delay=100).results == CREATED
    assert host.send([b"four"], ids=["x"], delay=100).results == [KEPT]
    host.advance(100)
    assert host.receive() == []
    host.ack(held)
    assert host.bodies() == [b"three"]


def test_replace_that_keeps_leased_ones(host: Any) -> None:
    host.configure(merge="replace", merge_leased="keep")
    host.send([b"one"], ids=["x"])
    host.receive()
    assert host.send([b"two"], ids=["x"]).results == [KEPT]


def test_replace_over_groups(host: Any) -> None:
    """Where the old one waits it is replaced; where somebody works on it the new one waits."""
    host.put_group("g")
    host.configure(merge="replace")
    host.send([b"one"], ids=["x"])
    held = host.receive(group="g")
    assert host.send([b"two"], ids=["x"]).results == [REPLACED]
    assert host.bodies() == [b"two"]
    assert host.receive(group="g") == []
    host.ack(held)
    assert host.bodies(group="g") == [b"two"]
    host.recount()


# --------------------------------------------------------------------------- quotas


def test_quotas(host: Any) -> None:
    host.configure(quota={"pending": 5, "horizon_ms": 10_000})
    host.send(5)
    with pytest.raises(QuotaError) as refused:
        host.send(1)
    assert refused.value.facts["quota"] == "pending"
    host.ack(host.receive(2))
    host.send(2)
    host.ack(host.receive())
    with pytest.raises(QuotaError) as refused:
        host.send(1, delay=12_500)
    assert refused.value.facts == {"quota": "horizon_ms", "retry_after_s": 3}
    host.configure(quota={"rate": 10})
    host.send(100)
    with pytest.raises(QuotaError) as refused:
        host.send(30)
    assert refused.value.facts == {"quota": "rate", "retry_after_s": 3}
    host.advance(3_000)
    host.send(30)
    host.configure(quota={"bytes": 3_000})
    host.ack(host.receive())
    host.send([b"x" * 1_000])
    host.configure(quota=None)
    assert host.topic.default.counts.living == 1


def full(host: Any, quota: str, *, far: int = 0) -> None:
    """A topic whose quota two messages with ids use up."""
    host.send([b"a", b"b"], ids=["a", "b"], delay=far)
    room = {"rate": 1, "pending": 2, "bytes": 4, "horizon_ms": 1_000}
    host.configure(quota={quota: room[quota]})
    if quota == "rate":
        host.send(10)


@pytest.mark.parametrize("quota", ["rate", "pending", "bytes", "horizon_ms"])
@pytest.mark.parametrize(("merge", "code"), [("keep", 1), ("reject", 3)])
def test_who_repeats_a_living_id_needs_no_quota(
    host: Any, quota: str, merge: str, code: int
) -> None:
    full(host, quota, far=5_000)
    for _ in range(3):
        result = host.send([b"A", b"B"], ids=["a", "b"], merge=merge, delay=5_000)
        assert result.results.tolist() == [code, code]
    with pytest.raises(QuotaError) as refused:
        host.send([b"A", b"C"], ids=["a", "c"], merge=merge, delay=5_000)
    assert refused.value.facts["quota"] == quota
    assert refused.value.fresh.tolist() == [1]


@pytest.mark.parametrize("quota", ["rate", "pending", "bytes"])
def test_who_takes_the_place_of_another_needs_no_quota(host: Any, quota: str) -> None:
    full(host, quota)
    for body in (b"1", b"2", b"3"):
        result = host.send([b"x", body], ids=["a", "a"], merge="replace")
        assert result.results.tolist() == [2, 2]
    with pytest.raises(QuotaError):
        host.send([b"A", b"C"], ids=["a", "c"], merge="replace")
    with pytest.raises(QuotaError):
        host.send(1)


def test_a_successor_is_a_new_message(host: Any) -> None:
    full(host, "pending")
    host.receive(2)
    with pytest.raises(QuotaError):
        host.send([b"A"], ids=["a"], merge="replace")


def test_a_message_counts_once_whatever_the_number_of_groups(host: Any) -> None:
    for name in ("g", "h"):
        host.put_group(name)
    host.configure(quota={"pending": 3, "bytes": 3})
    host.send([b"a", b"b", b"c"])
    for group in (None, "g"):
        with pytest.raises(QuotaError):
            host.send(1)
        host.ack(host.receive(**({} if group is None else {"group": group})))
    with pytest.raises(QuotaError) as refused:
        host.send([b"d"])
    assert "3 messages live" in str(refused.value)
    host.ack(host.receive(1, group="h"))
    host.send([b"d"])


# --------------------------------------------------------------------------- going


def test_unused_topics_and_groups_go(open_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaylog.broker.engine.topics.idle.TOPIC_IDLE_MS", 60_000)
    monkeypatch.setattr("delaylog.broker.engine.topics.idle.EPHEMERAL_IDLE_MS", 10_000)
    host = open_host()
    state = host.engine.state
    host.configure(max_retry=3)
    host.put_group("brief", ephemeral=True)
    host.put_group("lasting")
    host.send(1, topic="passing")
    host.send(1, topic="waits", delay=10**7)
    host.topic_name = "passing"
    host.ack(host.receive())
    host.topic_name = "t"
    host.receive(group="brief")
    host.advance(9_000)
    host.engine.retire_unused(host.now_ms)
    assert host.topic.group("brief") is not None
    host.advance(2_000)
    host.engine.retire_unused(host.now_ms)
    assert host.topic.group("brief") is None
    assert host.topic.group("lasting") is not None
    assert host.engine.topic("passing") is not None, "its ended message can still be read"
    host.advance(300_000)
    host.engine.retire_unused(host.now_ms)
    assert sorted(topic.name for topic in state.by_number.values()) == ["t", "waits"]
