"""Calls of an embedded broker as a program makes them: what `Client` promises, with no socket."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from delaylog.broker.embedded import ClosedError, EmbeddedBroker, ManualClock
from delaylog.client import errors
from delaylog.client.models import NewMessage, Settled, TopicSettings

Manual = EmbeddedBroker[ManualClock]


def test_a_message_comes_with_all_that_was_sent_with_it(broker: Manual) -> None:
    sent = broker.send(
        "t", "hé", id="a", key="k", tags=["x", "y"], headers={"trace": "7"}, priority=3
    )
    assert (sent.id, sent.result) == ("a", "created")
    (message,) = broker.receive("t")
    assert (message.id, message.key, message.tags) == ("a", "k", ("x", "y"))
    assert (message.text, message.headers, message.priority) == ("hé", {"trace": "7"}, 3)
    assert message.lease_until_ms == broker.clock.now_ms() + 30_000


def test_times_in_four_ways(broker: Manual) -> None:
    now = broker.clock.now_ms()
    moment = datetime.fromtimestamp(now / 1000, UTC) + timedelta(seconds=3)
    due = [
        broker.send("t", "x", deliver_at_ms=now + 1_000).deliver_at_ms,
        broker.send("t", "x", delay_ms=2_000).deliver_at_ms,
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
            NewMessage("own", id="a", delay_ms=5, merge="reject"),
            NewMessage("again", id="a", merge="reject"),
            NewMessage("instead", id="a", merge="replace"),
        ],
        delay_ms=1_000,
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
    """As the columns that came over a network: a program that writes into them is told so."""
    broker.send_columns("t", ["a", "b", "c"])
    batch = broker.receive_columns("t", max=9, lease_ms=1_000)
    with pytest.raises(ValueError, match="read-only"):
        batch.columns.refs[:] = 0
    broker.clock.advance(ms=60_000)
    # A lease that ends is followed by a backoff, which each message has of its own.
    assert sorted(message.text for message in broker.receive("t", max=9)) == ["a", "b", "c"]


def test_a_repeat_of_a_producer_adds_nothing(broker: Manual) -> None:
    first = broker.send_columns("t", [b"a"], producer="p", sequence=1)
    again = broker.send_columns("t", [b"a"], producer="p", sequence=1)
    assert first.refs.tolist() == again.refs.tolist()
    assert len(broker.receive("t", max=9)) == 1


def test_settling_in_any_mixture(broker: Manual) -> None:
    """Messages of several leases, in any order, are answered in that order."""
    broker.send_many("t", [str(k) for k in range(6)])
    first, second = broker.receive("t", max=3), broker.receive("t", max=3)
    broker.ack(first[1])
    mixed = [second[2], first[1], first[0], second[0]]
    assert broker.ack(mixed) == ["done", "gone", "done", "done"]
    assert broker.nack([first[2], second[1]], delay_ms=0) == ["done", "done"]
    assert sorted(message.text for message in broker.receive("t", max=9)) == ["2", "4"]
    assert broker.ack([]) == []


def test_extend_holds_longer_and_zero_gives_back(broker: Manual) -> None:
    broker.send("t", "x")
    (message,) = broker.receive("t", lease_ms=1_000)
    broker.extend(message, lease_ms=60_000)
    assert message.lease_until_ms == broker.clock.now_ms() + 60_000
    broker.clock.advance(ms=59_000)
    assert broker.extend([message], lease_ms=0) == ["done"]
    assert len(broker.receive("t")) == 1


def test_keys_are_worked_on_one_at_a_time(broker: Manual) -> None:
    broker.send_many("t", [NewMessage(str(k), key="k") for k in range(3)] + ["free"])
    order = []
    while messages := broker.receive("t", max=9):
        assert sum(message.key == "k" for message in messages) <= 1
        order += [message.text for message in messages if message.key]
        broker.ack(messages)
    assert order == ["0", "1", "2"]


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


def test_what_is_to_come_is_told_as_by_a_client(broker: Manual) -> None:
    broker.send("t", "x", delay_ms=90_000)
    told = broker.forecast("t", minutes=3, hours=0)
    assert [slot.count for slot in told.minutes] == [0, 1, 0]


def test_groups_see_what_is_sent_after_them(broker: Manual) -> None:
    broker.send("t", "before")
    broker.put_group("t", "late")
    broker.send("t", "after")
    assert [m.text for m in broker.receive("t", max=9)] == ["before", "after"]
    (message,) = broker.receive("t", max=9, group="late")
    assert (message.text, message.group) == ("after", "late")
    broker.ack(message)
    assert broker.stats("t", group="late").counts.acked == 1
    assert {each.group for each in broker.groups("t")} == {"default", "late"}
    broker.drop_group("t", "late")
    with pytest.raises(errors.NotFound, match="no group 'late'"):
        broker.receive("t", group="late")


def test_tags_choose(broker: Manual) -> None:
    for name in ("red", "green", "both"):
        broker.send("t", name, tags=["red", "green"] if name == "both" else [name])
    found = broker.receive("t", max=9, tags=["red", "green"], tags_mode="all", exact_tags=True)
    assert [message.text for message in found] == ["both"]
    assert [message.text for message in broker.receive("t", max=9, tags=["red"])] == ["red"]


def test_cancel_and_reschedule_tell_the_truth(broker: Manual) -> None:
    broker.send("t", "x", id="a", delay_ms=60_000)
    moved = broker.reschedule("t", "a", delay_ms=5)
    assert (moved.result, moved.state) == ("done", "waiting")
    assert moved.deliver_at_ms == broker.clock.now_ms() + 5
    broker.clock.advance(ms=5)
    assert len(broker.receive("t", ids=["a"])) == 1
    for change in (broker.cancel, lambda t, i: broker.reschedule(t, i, delay_ms=1)):
        with pytest.raises(errors.TooLate) as late:
            change("t", "a")
        assert late.value.state == "leased"
    assert broker.cancel("t", "a", force=True).result == "done"
    with pytest.raises(errors.NotFound):
        broker.cancel("t", "nobody")


def test_looking_takes_nothing(broker: Manual) -> None:
    broker.send("t", b"\xff", id="a", headers={"x": "y"})
    (seen,) = broker.peek("t", max=5)
    assert (seen.id, seen.body) == ("a", b"\xff")
    found = broker.get("t", "a", life=True)
    assert (found.state, found.headers, found.life[0]["event"]) == ("ready", {"x": "y"}, "sent")
    broker.send_many("t", [str(k) for k in range(550)], delay_ms=1_000)
    listed = list(broker.messages("t", state=["waiting"], bodies=True))
    assert [each.body for each in listed] == [b"%d" % k for k in range(550)]


def test_topics_are_made_paused_purged_and_dropped(broker: Manual) -> None:
    made = broker.put_topic("t", TopicSettings(max_retry=3, slots=4))
    assert (made.settings.max_retry, made.settings.slots) == (3, 4)
    with pytest.raises(errors.Conflict, match="slots"):
        broker.put_topic("t", {"slots": 8})
    broker.send_many("t", ["a", "b"])
    broker.pause("t")
    assert broker.receive("t") == []
    assert broker.get_topic("t").paused
    broker.resume("t")
    assert len(broker.receive("t")) == 1
    with pytest.raises(errors.Conflict):
        broker.drop_topic("t")
    assert broker.purge("t", force=True) == 2
    broker.drop_topic("t")
    assert broker.topics() == []


def test_settling_by_bare_ids(broker: Manual) -> None:
    broker.send_many("t", [NewMessage("x", id=name) for name in "ab"])
    broker.receive("t", max=2)
    assert broker.settle_ids("t", "ack", ["a", "nobody"]) == ["done", "unknown"]
    assert broker.settle_ids("t", "extend", ["b"], lease_ms=0) == ["done"]
    assert [message.id for message in broker.receive("t", max=9)] == ["b"]


def test_namespaces_are_apart(open_embedded: Any, tmp_path: Any) -> None:
    with open_embedded(tmp_path / "f", clock=ManualClock(), namespace="one") as one:
        one.send("t", "x")
    two = open_embedded(tmp_path / "f", clock=ManualClock(), namespace="two")
    assert (two.topics(), two.receive("t")) == ([], [])


def test_jobs_and_transactions_by_the_plain_client(broker: Manual) -> None:
    plain = broker.broker()
    broker.send_many("t", ["a", "b"], delay_ms=60_000)
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
        (lambda b: b.send("t", "x", delay_ms=1, deliver_at_ms=1), ValueError, "2 times are given"),
        (lambda b: b.send("t", "x", id="~a"), ValueError, "begin with '~'"),
        (lambda b: b.send("t", "x", id="a" * 256), ValueError, "255 bytes"),
        (lambda b: b.send("t", "x", delay_ms=2**60), errors.BadRequest, "horizon"),
        (lambda b: b.send("t", "x", delay_ms=2**63 - 1), errors.BadRequest, "horizon"),
        (lambda b: b.send("no topic", "x"), ValueError, "a topic is named"),
        (lambda b: b.send_many("t", ["fine", 3]), TypeError, "a body is bytes or str"),
        (lambda b: b.receive("t", max=0), errors.BadRequest, "max must lie"),
        (lambda b: b.receive("t", wait_ms=-1), errors.BadRequest, "wait_ms must lie"),
        (lambda b: b.receive("t", lease_ms="x"), errors.BadRequest, "lease_ms must be"),
        (lambda b: b.ack(["a"]), TypeError, "messages are settled"),
        (lambda b: b.stats("nowhere"), errors.NotFound, "no topic 'nowhere'"),
        (lambda b: b.put_topic("t", {"max_retry": -1}), errors.BadRequest, "max_retry"),
        (lambda b: b.put_topic("t", {"colour": 1}), errors.BadRequest, "unknown member"),
        (lambda b: list(b.messages("u", state=["lost"])), errors.BadRequest, "state"),
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


def test_a_rejected_single_send_raises_and_a_quota_says_when(broker: Manual) -> None:
    broker.send("t", "x", id="a", merge="reject")
    with pytest.raises(errors.IdInUse, match="living message"):
        broker.send("t", "x", id="a", merge="reject")
    broker.put_topic("t", {"quota": {"pending": 1}})
    with pytest.raises(errors.QuotaExceeded) as full:
        broker.send("t", "y")
    assert full.value.code == "quota"


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
