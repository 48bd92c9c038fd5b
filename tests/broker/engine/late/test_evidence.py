"""Life lines name who held a key, and blame consumers only by evidence of the log."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.engine.late import causes as causes_module
from delaylog.broker.engine.ready.tag_filter import TagFilter
from tests.broker.engine.host import Host
from tests.broker.engine.late.test_waits import asking, bound, causes
from tests.broker.engine.views.test_life import lives


def key_waits(host: Host, id: str) -> list[tuple[int, int]]:
    """(ms, origin of the holder) of each part in which a key was locked."""
    (life,) = lives(host, [id])
    return [(wait.size_ms, wait.origin) for wait in life.waits if wait.cause == "key"]


@pytest.mark.parametrize("how", ["ack", "still", "retry", "retried", "expired", "extended"])
def test_a_holder_that_was_leased_before_the_victim_was_sent(host: Any, how: str) -> None:
    """The usual stuck key: the log is read from the victim's SEND frame on."""
    with asking(host):
        host.send(1, ids=["a"], keys=["k"])
        holder = host.receive(lease=4_000 if how == "expired" else 60_000)
        host.advance(1_000)
        if how == "retried":
            host.nack(holder, 3_000)
        host.send(1, ids=["b"], keys=["k"])
        host.advance(5_000)
        if how == "retried":
            holder = host.receive()
            host.advance(100)
        if how == "extended":
            host.extend(holder, 90_000)
        if how in ("retry", "expired"):
            if how == "retry":
                host.nack(holder, 3_000)
            host.advance(10_000)
            assert key_waits(host, "b") == [(15_000, holder[0].origin)]
            holder = host.receive()
        elif how == "still":
            host.receive()
            assert key_waits(host, "b") == [(5_000, holder[0].origin)]
        host.ack(holder)
        before = sum(size for size, _ in key_waits(host, "b"))
        host.advance(1_000)
        host.ack(host.receive())
    assert key_waits(host, "b") == [(before, holder[0].origin)]
    assert before >= 5_000


def test_a_holder_of_now_is_found_though_no_frame_names_it(host: Any) -> None:
    """Before and after a restart, under lease and while it waits for its retry."""
    host.send(1, ids=["a"], keys=["k"])
    holder = host.receive(lease=600_000)
    host.send(1, ids=["b"], keys=["k"])
    with asking(host):
        host.advance(2_000)
    assert key_waits(host, "b") == [(2_000, holder[0].origin)]
    host.checkpoint()
    host.restart()
    assert key_waits(host, "b") == [(2_000, holder[0].origin)]
    host.nack(holder, 60_000)
    host.send(1, ids=["c"], keys=["k"])
    host.advance(1_000)
    assert key_waits(host, "c") == [(1_000, holder[0].origin)]


def test_a_successor_waits_for_the_end_of_its_predecessor(host: Any) -> None:
    """Both have one id; also while the predecessor waits for its retry."""
    host.configure(merge_leased="successor")
    with asking(host):
        host.send([b"old"], ids=["a"])
        old = host.receive(lease=60_000)
        host.send([b"new"], ids=["a"], merge="replace")
        host.advance(2_000)
        host.nack(old, 3_000)
        host.advance(3_000)
        old = host.receive()
        assert [message.body for message in old] == [b"old"]
        host.advance(500)
        host.ack(old)
        host.advance(100)
        assert [message.body for message in host.receive()] == [b"new"]
    waits = key_waits(host, "a")
    assert waits == [(5_500, old[0].origin)]


def test_a_message_that_holds_its_key_twice(host: Any) -> None:
    """Dead and replayed, it locks the key again: read in one pass with a message sent later."""
    host.configure(max_retry=0)
    with asking(host):
        host.send(1, ids=["a"], keys="k")
        (first,) = host.receive()
        host.advance(1_000)
        host.nack([first])
        host.replay(["a"])
        (again,) = host.receive()
        host.send(1, ids=["b"], keys="k")
        host.advance(4_000)
        host.ack([again])
        host.ack(host.receive())
    _, life = lives(host, ["a", "b"])
    waits = [(wait.cause, wait.size_ms, wait.origin) for wait in life.waits]
    assert waits == [("key", 4_000, first.origin)]


@pytest.mark.parametrize("force", [False, True])
def test_a_purge_releases_keys(host: Any, force: bool) -> None:
    """A message of the key that is sent later did not wait for what was purged."""
    host.send(2, ids=["old", "a"], keys="kk")
    with asking(host):
        (holder,) = host.receive(1, lease=600_000)
    host.advance(500)
    if not force:
        host.nack([holder], 60_000)
    host.purge(force=force)
    host.send(1, ids=["b"], keys="k")
    host.advance(3_000)
    old, new = lives(host, ["a", "b"])
    assert [wait for wait in new.waits if wait.cause == "key"] == []
    assert [wait.size_ms for wait in old.waits if wait.cause == "key"] == [500]


def test_who_asked_is_told_after_a_crash(host: Any) -> None:
    """The log tells when consumers were busy and when none was; the rest is unknown."""
    host.send(2, ids=["a", "b"], delay=100)
    host.advance(3_100)
    with asking(host):
        (first,) = host.receive(1)
    host.advance(900)
    host.ack([first])
    with asking(host):
        host.ack(host.receive(1))
    assert causes(host, "b") == [("no_consumers", 3_000), ("slow_consumers", 900)]
    host.restart(pause_ms=1_000)
    assert causes(host, "a") == [("no_consumers", 3_000)]
    assert causes(host, "b") == [("no_consumers", 3_000), ("slow_consumers", 900)]


def test_consumers_are_not_blamed_without_evidence(host: Any) -> None:
    """They ask all the time, but not for the message: no other message was taken."""
    with asking(host):
        host.send(1, ids=["a"], tags=["x"])
        host.advance(5_000)
        assert causes(host, "a") == [("unknown", 5_000)]


def test_a_locked_key_bounds_only_what_waits_for_it(host: Any) -> None:
    """Consumers wait for other tags, while a message that nobody wants keeps a key locked."""
    other = TagFilter(frozenset([b"y"]))
    host.send(1, keys="k")
    host.receive(lease=600_000)
    host.send(1, ids=["a"], tags="x")
    with asking(host, other.masks):
        host.receive(only=other)
        assert bound(host) == "slow_consumers"
        host.send(1, ids=["b"], keys="k", tags="y")
        host.receive(only=other)
        assert bound(host) == "key"


def test_a_stuck_key_bounds_also_between_two_calls(host: Any) -> None:
    """Purpose: whoever looks while no call waits is told to look for the holder of the key, and not
    to add consumers, who would get nothing either."""
    host.send(3, keys="kkk")
    host.receive(1, lease=600_000)
    with asking(host):
        assert not host.receive(1)
    assert bound(host) == "key"
    host.send(1)
    assert bound(host) == "slow_consumers", "a message with a free key could be taken"


def test_notes_have_all_spans_whichever_message_is_taken_first(host: Any) -> None:
    """The frame with the note has only the younger message; the older one follows at once."""
    host.send(2, ids=["old", "young"], delay=[0, 4_000])
    start = host.now_ms
    host.advance(5_000)
    timeline = host.engine.state.timeline
    timeline.node("stall", start + 1_000, start + 3_000)
    with asking(host):
        host.receive(chosen=["young"])
        host.advance(100)
        host.receive()
    host.restart(pause_ms=1_000)
    assert dict(causes(host, "old"))["stall"] == 2_000


def test_more_holders_than_are_kept(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last holders are one without a name, and no time is lost."""
    monkeypatch.setattr(causes_module, "HOLDS_MAX", 3)
    host.send(7, ids=[f"m{number}" for number in range(7)], keys="k" * 7)
    origins = []
    for _ in range(6):
        taken = host.receive()
        origins.append(taken[0].origin)
        host.advance(1_000)
        host.ack(taken)
    assert key_waits(host, "m6") == [(1_000, origins[0]), (1_000, origins[1]), (4_000, 0)]
