"""Order by priority, pace by rate limits, successors of leased ids, quotas, and what goes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.send.merge import KEPT
from delaylog.broker.engine.send.quotas import BeyondQuotaError, QuotaError


def send(host: Any, *pairs: tuple[int, str], **how: Any) -> Any:
    """Messages as (priority, body)."""
    return host.send(
        [body.encode() for _, body in pairs],
        priority=np.array([priority for priority, _ in pairs]),
        **how,
    )


# --------------------------------------------------------------------------- order


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


# --------------------------------------------------------------------------- pace


def test_a_rate_limit_paces_deliveries(host: Any) -> None:
    host.configure(rate_limit={"per_second": 10, "burst": 3})
    host.send(20)
    assert len(host.receive()) == 3
    assert host.receive() == []
    host.advance(99)
    assert host.receive() == []
    host.advance(1)
    assert len(host.receive()) == 1
    assert host.engine.state.marks.newly_ready, (
        "waiting consumers are woken when there are tokens again"
    )
    host.advance(10_000)
    assert len(host.receive()) == 3


# --------------------------------------------------------------------------- successors


def test_replace_that_keeps_leased_ones(host: Any) -> None:
    host.configure(merge="replace", merge_leased="keep")
    host.send([b"one"], ids=["x"])
    host.receive()
    assert host.send([b"two"], ids=["x"]).results == [KEPT]


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


@pytest.mark.parametrize(("quota", "most", "fits"), [("rate", 1, 10), ("pending", 2, 2)])
def test_a_send_that_alone_exceeds_a_quota_is_not_to_be_repeated(
    host: Any, quota: str, most: int, fits: int
) -> None:
    """No wait helps, also where the quota is used up."""
    host.configure(quota={quota: most})
    for _ in range(2):
        with pytest.raises(BeyondQuotaError, match=f"at most {fits} messages") as refused:
            host.send(fits + 1)
        assert (refused.value.kind.status, refused.value.facts) == (413, {"quota": quota})
        if host.topic.default.counts.living == 0:
            host.send(fits)


def test_a_send_that_alone_exceeds_the_bytes_of_a_topic(host: Any) -> None:
    host.configure(quota={"bytes": 400})
    with pytest.raises(BeyondQuotaError, match="at most 400 bytes"):
        host.send([b"x" * 300] * 2)
    host.send([b"x" * 300])
    with pytest.raises(QuotaError) as refused:
        host.send([b"x" * 300])
    assert refused.value.facts == {"quota": "bytes", "retry_after_s": 5}


def full(host: Any, quota: str, *, far: int = 0) -> None:
    """A topic whose quota two messages with ids use up."""
    host.send([b"a", b"b"], ids=["a", "b"], delay=far)
    room = {"rate": 1, "pending": 2, "bytes": 4, "horizon_ms": 1_000}
    host.configure(quota={quota: room[quota]})
    if quota == "rate":
        host.send(10)


@pytest.mark.parametrize("quota", ["rate", "pending", "bytes", "horizon_ms"])
@pytest.mark.parametrize(("merge", "code"), [("keep", 1), ("reject", 3)])
def test_a_repeat_of_a_living_id_needs_no_quota(
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
def test_a_replacement_needs_no_quota(host: Any, quota: str) -> None:
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


def test_unused_topics_and_groups_go(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaylog.broker.engine.topics.idle.TOPIC_IDLE_MS", 60_000)
    monkeypatch.setattr("delaylog.broker.engine.topics.idle.EPHEMERAL_IDLE_MS", 10_000)
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
