"""Calls of an embedded broker as a program makes them: what `Client` promises, with no socket."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from delaylog.broker.embedded import ClosedError, EmbeddedBroker, ManualClock
from delaylog.client import errors
from delaylog.client.models import NewMessage, Settled

Manual = EmbeddedBroker[ManualClock]


def test_times_in_four_ways(broker: Manual) -> None:
    now = broker.clock.now_ms()
    moment = datetime.fromtimestamp(now / 1000, UTC) + timedelta(seconds=3)
    due = [
        broker.send("t", "x", deliver_at_ms=now + 1_000).deliver_at_ms,
        broker.send("t", "x", delay=timedelta(seconds=2)).deliver_at_ms,
        broker.send("t", "x", at=moment).deliver_at_ms,
        broker.send("t", "x", delay=timedelta(seconds=4)).deliver_at_ms,
        broker.send("t", "x").deliver_at_ms,
    ]
    assert [each - now for each in due] == [1_000, 2_000, 3_000, 4_000, 0]


def test_many_messages_of_any_kind_in_one_call(broker: Manual) -> None:
    """Runs of one `merge` share a frame; the answers stand in the order of the messages."""
    sent = broker.send_many(
        "t",
        [
            b"plain",
            "text",
            NewMessage("own", id="a", delay=timedelta(milliseconds=5), merge="reject"),
            NewMessage("again", id="a", merge="reject"),
            NewMessage("instead", id="a", merge="replace"),
        ],
        delay=timedelta(seconds=1),
    )
    assert [each.result for each in sent] == ["created"] * 3 + ["rejected", "replaced"]
    start = broker.clock.now_ms()
    assert [each.deliver_at_ms - start for each in sent[:3]] == [1_000, 1_000, 5]
    broker.clock.advance(ms=1_000)
    assert [message.body for message in broker.receive("t", max=9)] == [
        b"plain",
        b"text",
        b"instead",
    ]


def test_columns_go_in_and_come_out(broker: Manual) -> None:
    answer = broker.send_columns("t", [b"a", b"bb", b""], delay_ms=np.array([0, 0, 10]))
    assert (answer.n, answer.result.tolist()) == (3, [0, 0, 0])
    messages = broker.receive("t", max=9)
    assert [message.body for message in messages] == [b"a", b"bb"]
    assert [message.ref for message in messages] == answer.refs[:2].tolist()
    assert broker.ack(messages) == [Settled.DONE] * 2


def test_what_a_receive_gave_cannot_change_the_lease(broker: Manual) -> None:
    """As the columns that came over a network, they are the program's own."""
    broker.send_columns("t", ["a", "b", "c"])
    batch = broker.receive_columns("t", max=9, lease=timedelta(seconds=1))
    for row in range(3):
        batch.columns.refs[row] = 0
    broker.clock.advance(ms=60_000)
    # A lease that ends is followed by a backoff, which each message has of its own.
    assert sorted(message.text for message in broker.receive("t", max=9)) == ["a", "b", "c"]


def test_a_repeat_of_a_producer_adds_nothing(broker: Manual) -> None:
    first = broker.send_columns("t", [b"a"], producer="p", sequence=1)
    again = broker.send_columns("t", [b"a"], producer="p", sequence=1)
    assert first.refs.tolist() == again.refs.tolist()
    assert len(broker.receive("t", max=9)) == 1


@pytest.mark.parametrize(
    ("wish", "kind"),
    [
        ({"tags": "ab"}, TypeError),
        ({"ids": "a"}, TypeError),
        ({"exact_tags": True}, ValueError),
        ({"tags_mode": "some"}, ValueError),
    ],
)
def test_a_receive_that_a_client_refuses_is_refused_here(
    broker: Manual, wish: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        broker.receive("t", **wish)


def test_namespaces_are_apart(open_embedded: Any, tmp_path: Any) -> None:
    with open_embedded(tmp_path / "f", clock=ManualClock(), namespace="one") as one:
        one.send("t", "x")
    two = open_embedded(tmp_path / "f", clock=ManualClock(), namespace="two")
    assert (two.topics(), two.receive("t")) == ([], [])


def test_jobs_and_transactions_by_the_plain_client(broker: Manual) -> None:
    plain = broker.broker()
    broker.send_many("t", ["a", "b"], delay=timedelta(minutes=1))
    job = plain.begin_job("t", "cancel", {"state": "waiting"})
    assert plain.job(job["job"])["done"] == 2
    transaction = plain.begin("x")["transaction"]
    plain.stage(transaction, "t", [b"staged"], delay_ms=0)
    assert broker.receive("t") == []
    plain.commit(transaction, [{"part": 0, "attempt": 0, "rows": 1}])
    broker.clock.advance(ms=1)
    assert [message.text for message in broker.receive("t")] == ["staged"]


@pytest.mark.parametrize(
    ("call", "kind", "why"),
    [
        (lambda b: b.send("t", 3), TypeError, "a body is bytes or str"),
        (
            lambda b: b.send("t", "x", delay=timedelta(milliseconds=1), deliver_at_ms=1),
            ValueError,
            "2 times are given",
        ),
        (lambda b: b.send("t", "x", id="~a"), ValueError, "begin with '~'"),
        (lambda b: b.send("t", "x", id="a" * 256), ValueError, "255 bytes"),
        (
            lambda b: b.send("t", "x", delay=timedelta(days=10**6)),
            errors.BadRequest,
            "horizon",
        ),
        (
            lambda b: b.send("t", "x", delay=timedelta.max),
            errors.BadRequest,
            "horizon",
        ),
        (lambda b: b.send("no topic", "x"), ValueError, "a topic is named"),
        (lambda b: b.send_many("t", ["fine", 3]), TypeError, "a body is bytes or str"),
        (lambda b: b.receive("t", max=0), errors.BadRequest, "max must lie"),
        (
            lambda b: b.receive("t", wait=timedelta(hours=1)),
            errors.BadRequest,
            "wait_ms must lie",
        ),
        (lambda b: b.receive("t", wait=-timedelta(1)), ValueError, "wait is not negative"),
        (lambda b: b.receive("t", lease="x"), TypeError, "lease is a timedelta, not str"),
        (lambda b: b.ack(["a"]), TypeError, "messages are settled"),
        (lambda b: b.get_topic("nowhere"), errors.NotFound, "no topic 'nowhere'"),
        (lambda b: b.put_topic("t", {"max_retry": -1}), errors.BadRequest, "max_retry"),
        (lambda b: b.put_topic("t", {"colour": 1}), errors.BadRequest, "unknown member"),
        (lambda b: list(b.browse("u", state=["lost"])), errors.BadRequest, "state"),
        (lambda b: b.send_columns("t", [b"x"], colour=1), TypeError, "colour"),
        (lambda b: b.reschedule("t", "a"), ValueError, "give a time, or a priority"),
        (lambda b: b.replay("t", "abc"), TypeError, "ids are a list of texts, not one"),
        (lambda b: b.settle_ids("t", "ack", "abc"), TypeError, "ids are a list of texts"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_done(
    broker: Manual, call: Any, kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why):
        call(broker)
    assert broker.topics() == []


def test_closed_it_says_so(broker: Manual) -> None:
    broker.close()
    broker.close()
    for call in (lambda: broker.send("t", "x"), lambda: broker.receive("t"), broker.topics):
        with pytest.raises(ClosedError, match="closed"):
            call()
    assert "closed" in repr(broker)


def test_its_plain_client_is_used_as_a_block(broker: EmbeddedBroker[ManualClock]) -> None:
    with broker.broker() as plain:
        plain.send("t", "x")
    assert [each.body for each in broker.receive("t")] == [b"x"]
