"""Leases: they end in leader time, survive a restart, and every way out of them is taken once."""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.broker.engine.deliver import settlements
from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.topics.settings import Backoff

BUCKET = 50


def test_a_lease_ends_at_its_deadline_not_before(host) -> None:
    """Rounded up to the expiry bucket; the message comes back after its backoff."""
    host.configure(backoff=Backoff(first_ms=0))
    host.send(1)
    (got,) = host.receive(lease=1_000)
    host.advance(999)
    assert host.receive() == []
    host.advance(1 + BUCKET)
    (again,) = host.receive()
    assert again.attempts == 2
    assert host.ack([got]) == 0, "the old receipt settles nothing"
    assert host.ack([again]) == 1
    host.check_counts()


def test_a_lease_ends_at_its_deadline_though_another_one_runs_on(host) -> None:
    host.configure(backoff=Backoff(first_ms=0))
    host.send(2)
    host.receive(1, lease=1_000)
    host.receive(1, lease=60_000)
    host.advance(1_000 + BUCKET)
    assert host.bodies() == [b"0"]


@pytest.mark.parametrize("saved", [False, True])
def test_an_extended_lease_ends_with_the_bucket_of_its_last_deadline(host, saved: bool) -> None:
    """It is also in the bucket of its first deadline, unless a checkpoint has left that out.

    The broker comes back at the very deadline, between two buckets, long after the first one.
    """
    host.advance(1)
    host.send(2)
    got = host.receive(lease=100)
    host.extend(got, 1_000)
    if saved:
        host.checkpoint()
    host.crash(1_000)
    assert host.topic.default.counts.leased == 2
    assert host.ack(got[:1]) == 1
    host.advance(BUCKET - 1)
    assert host.topic.default.counts.leased == 0
    assert host.ack(got) == 0
    host.check_counts()


def test_a_whole_lease_is_acked_in_any_order_and_each_message_once(host) -> None:
    """All in the order of the lease take a short way; other orders, repeats, parts do not."""
    host.send(4)
    got = host.receive(4)
    assert host.ack([got[0], got[0], got[2], got[2]]) == 2
    assert host.ack(got) == 2, "two are left"
    host.send(4)
    got = host.receive(4)
    assert host.ack(got[::-1]) == 4
    assert host.ack(got) == 0
    host.send(4)
    assert host.ack(host.receive(4)) == 4
    host.check_counts()
    host.crash()
    assert host.topic.default.counts.living == 0
    assert host.receive(4) == []


@pytest.mark.parametrize("n", [1, 100])
def test_a_receipt_settles_nothing_in_another_topic(host, n: int) -> None:
    """Few messages and many are settled by different ways."""
    host.send(n)
    got = host.receive()
    named = np.array([message.origin for message in got])
    receipts = settlements.Receipts(got[0].lease, named)
    other = host.engine.make_topic("other", host.now_ms)
    for settle in (settlements.ack, settlements.nack, settlements.reject):
        settlement = settle(host.engine.state, other, receipts, host.now_ms)
        assert settlement.done == 0
        assert list(settlement.gone) == named.tolist()
    assert host.ack(got) == n
    host.check_counts()


def test_leased_max_bounds_leased_messages(open_host) -> None:
    """`leased_max` messages per group; settled ones make room."""
    host = open_host(limits=Limits(leased_max=5))
    host.send(8)
    got = host.receive()
    assert len(got) == 5
    assert host.receive() == []
    host.ack(got[:2])
    assert len(host.receive()) == 2


def test_receive_bytes_bound_after_the_first_message(host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies up to `RECEIVE_BYTES_MAX`, but always one message, in order."""
    monkeypatch.setattr("delaylog.broker.engine.deliver.receives.RECEIVE_BYTES_MAX", 100)
    host.send([b"a" * 60, b"b" * 60, b"c" * 300, b"d"])
    for first in (b"a", b"b", b"c", b"d"):
        assert [m.body[:1] for m in host.receive()] == [first]


def test_an_answer_has_a_message_once(host) -> None:
    """It was received by its id and given back, so the ready queue has it twice."""
    (id_,) = host.ids_of(host.send(1))
    host.extend(host.receive(chosen=[id_]), 0)
    host.advance(BUCKET)
    assert host.bodies() == [b"0"]
    assert host.bodies() == []
    host.check_counts()


@pytest.mark.parametrize("how", ["alive", "replayed", "saved"])
def test_an_attempt_counts_once_it_has_begun(host, how: str) -> None:
    """A lease ends: what was begun waits for its backoff, the rest is ready as before."""
    host.configure(backoff=Backoff(first_ms=5_000, jitter=0))
    host.send(4)
    got = host.receive(lease=1_000, begin=1)
    assert [message.attempts for message in got] == [1, 1, 1, 1]
    assert host.begin(got[1:2], 1_000) == 1
    host.ack(got[3:])
    if how == "saved":
        host.checkpoint()
    if how != "alive":
        host.restart()
    host.advance(1_000 + BUCKET)
    assert [(each.body, each.attempts) for each in host.receive()] == [(got[2].body, 1)]
    host.advance(5_000)
    assert sorted((each.body, each.attempts) for each in host.receive()) == [
        (got[0].body, 2),
        (got[1].body, 2),
    ]
    assert host.begin(got[:1], 1_000) == 0, "the old lease has ended"
    host.check_counts()


def test_only_a_first_attempt_begins_with_the_receive(host) -> None:
    """A message that was tried before may end its consumer, with all that had begun beside it."""
    host.configure(backoff=Backoff(first_ms=1, jitter=0))
    host.send(1)
    host.nack(host.receive())
    host.send(1)
    host.advance(1 + BUCKET)
    got = host.receive(lease=1_000, begin=2)
    assert sorted(each.attempts for each in got) == [1, 2]
    host.advance(1_000 + BUCKET)
    assert sorted(each.attempts for each in host.receive()) == [2, 2]
    host.check_counts()


def test_an_extension_begins_no_attempt(host) -> None:
    """Not even for a message without retries, however often its consumers end."""
    host.send(2, max_retry=0)
    for _ in range(3):
        got = host.receive(lease=1_000, begin=0)
        assert [message.attempts for message in got] == [1, 1]
        host.extend(got, 2_000)
        host.advance(2_000 + BUCKET)
    got = host.receive(lease=1_000, begin=0)
    host.begin(got[1:], 1_000)
    # The message that has begun keeps that through an extension of both.
    host.extend(got, 1_000)
    host.advance(1_000 + BUCKET)
    assert [each.body for each in host.receive()] == [got[0].body]
    assert host.topic.default.counts.dead == 1
    host.check_counts()


def test_a_lease_that_begins_has_a_length(host) -> None:
    host.send(1)
    got = host.receive(begin=0)
    with pytest.raises(BadRequestError, match="lease_ms of begin is 1 to"):
        host.begin(got, 0)


@pytest.mark.parametrize("saved", [False, True])
def test_the_names_of_consumers_are_counted(host, saved: bool) -> None:
    """By message, through a restart, until the messages are settled or their leases end."""
    host.send(5)
    left = host.receive(2, lease=60_000, consumer="left")
    host.receive(1, lease=1_000, consumer="right")
    host.receive(1, consumer="")

    def named() -> dict[str, int]:
        topic = host.topic
        return dict(host.engine.state.leases.consumers(topic.number, topic.default.number))

    assert named() == {"left": 2, "right": 1}
    host.ack(left[:1])
    if saved:
        host.checkpoint()
    host.restart()
    assert named() == {"left": 1, "right": 1}
    host.advance(1_000 + BUCKET)
    assert named() == {"left": 1}
    host.ack(left[1:])
    assert named() == {}
