"""Each cause that is injected is named in the life line, and none is `unknown`.

A host without network runs on a clock of its own, so the parts are known to the millisecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from delaylog.broker.engine.late.causes import bounded_by
from delaylog.broker.engine.late.demand import AWAY_MS, EVERYTHING, IDS, USED_MS, Masks
from delaylog.broker.engine.late.timeline import GROUP_SPANS_MAX, GROUPS_MAX
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.push.commands import note_health, put_target
from delaylog.broker.engine.push.targets import WELL, Health, Target
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.topics.settings import RateLimit
from tests.broker.engine.host import HOUR, Host
from tests.broker.engine.views.test_life import lives


@contextmanager
def asking(host: Host, masks: Masks = EVERYTHING) -> Iterator[None]:
    """A consumer asks meanwhile, as a long poll does."""
    key, timeline = ("default", "t", "default"), host.engine.state.timeline
    leased = host.engine.state.leases.leased(*host.place)
    timeline.begin_asking(key, host.place, leased, host.now_ms, masks=masks)
    yield
    timeline.end_asking(key, host.now_ms, masks)


ONLY_A, ONLY_B = TagFilter(frozenset([b"a"])), TagFilter(frozenset([b"b"]))


def take(host: Host, only: TagFilter | None = None, *, ms: int = 0) -> list[Any]:
    """A long poll that lasts for `ms`, and what it gets at its begin."""
    with asking(host, EVERYTHING if only is None else only.masks):
        found = host.receive(only=only)
        host.advance(ms)
    return found


def causes(host: Host, id: str) -> list[tuple[str, int]]:
    """(cause, ms) of each part of the waits of a message."""
    (life,) = lives(host, [id])
    return [(wait.cause, wait.until_ms - wait.from_ms) for wait in life.waits]


def bound(host: Host) -> str | None:
    return bounded_by(host.engine.state, host.topic, host.topic.default, host.now_ms)


def noted(host: Host) -> list[str]:
    """The causes that the timeline knows."""
    timeline, key = host.engine.state.timeline, ("default", "t", "default")
    return [span.cause for span in timeline.spans(key, host.place, 0, host.now_ms)]


def test_a_push_target_that_fails(host: Any) -> None:
    """Its breaker is open until a push succeeds; a restart does not end that."""
    state, topic = host.engine.state, host.topic
    target = Target("http://a.example/", ("whsec_" + "a" * 32,))
    put_target(state, topic, topic.default, target, host.now_ms)
    host.send(1, ids=["a"], delay=1_000)
    host.advance(500)
    open_ = Health(open_until_ms=host.now_ms + 60_000, turns=1, failing_since_ms=host.now_ms)
    note_health(state, host.place, open_, host.now_ms)
    host.advance(2_500)
    assert bound(host) == "push_target"
    host.crash()
    assert bound(host) == "push_target"
    host.advance(1_000)
    note_health(host.engine.state, host.place, WELL, host.now_ms)
    assert bound(host) == "no_consumers"
    host.receive(1)
    # The last frame before the crash was of the open breaker.
    assert causes(host, "a") == [("down", 2_000), ("push_target", 1_000)]


def test_no_consumer(host: Any) -> None:
    """While it waits, and afterwards."""
    host.send(1, ids=["a"], delay=1_000)
    host.advance(6_000)
    assert causes(host, "a") == [("no_consumers", 5_000)]
    assert bound(host) == "no_consumers"
    with asking(host):
        host.ack(host.receive())
    assert causes(host, "a") == [("no_consumers", 5_000)]
    assert bound(host) is None


@pytest.mark.parametrize("busy", [False, True])
def test_consumers_that_ask_for_other_tags(host: Any, busy: bool) -> None:
    """While they wait, between their calls, and while they work."""
    host.send(2, ids=["a", "b"], tags=["a", "b"])
    taken = take(host, ONLY_A, ms=3_000)
    if not busy:
        host.ack(taken)
    host.advance(5_000)
    assert (causes(host, "b"), bound(host)) == ([("filtered_out", 8_000)], "filtered_out")
    take(host, ONLY_A, ms=3_000)
    assert (causes(host, "b"), bound(host)) == ([("filtered_out", 11_000)], "filtered_out")
    host.ack(take(host))
    assert causes(host, "b") == [("filtered_out", 11_000)]
    assert bound(host) is None


def test_consumers_that_ask_for_other_ids(host: Any) -> None:
    host.send(1, ids=["b"])
    with asking(host, IDS):
        assert host.receive(chosen=["a"]) == []
        host.advance(3_000)
        assert (causes(host, "b"), bound(host)) == ([("filtered_out", 3_000)], "filtered_out")


def test_a_filter_of_nobody_any_more(host: Any) -> None:
    """Consumers that asked for other tags are gone: then nobody asks."""
    host.send(1, ids=["b"], tags=["b"])
    take(host, ONLY_A)
    host.advance(USED_MS + 5_000)
    assert causes(host, "b") == [("filtered_out", USED_MS), ("no_consumers", 5_000)]
    assert bound(host) == "no_consumers"


@pytest.mark.parametrize("only", [None, ONLY_B])
def test_a_busy_consumer_that_would_have_taken_it(host: Any, only: TagFilter | None) -> None:
    """Another one asks for other tags meanwhile. Only after a quarter of an hour it alone is to
    blame."""
    host.send(1, ids=["x"], tags=["b"])
    taken = take(host, only)
    host.extend(taken, AWAY_MS)
    host.send(1, ids=["b"], tags=["b"])
    take(host, ONLY_A, ms=100_000)
    assert (causes(host, "b"), bound(host)) == ([("slow_consumers", 100_000)], "slow_consumers")
    host.extend(taken, 2 * AWAY_MS)
    take(host, ONLY_A, ms=AWAY_MS)
    assert causes(host, "b") == [("slow_consumers", AWAY_MS), ("filtered_out", 100_000)]


def test_an_idle_consumer_that_would_have_taken_it(host: Any) -> None:
    """It polls every five seconds, while another one asks for other tags all the time."""
    take(host)
    with asking(host, ONLY_A.masks):
        host.send(1, ids=["b"], tags=["b"])
        assert host.receive(only=ONLY_A) == []
        host.advance(5_000)
        assert (causes(host, "b"), bound(host)) == ([("no_consumers", 5_000)], "no_consumers")
        assert take(host)
    assert causes(host, "b") == [("no_consumers", 5_000)]


def test_what_bounds_a_topic_of_which_some_messages_are_asked_for(host: Any) -> None:
    """Also before the messages were compared with the filter, and while one waits for its key."""
    host.send(1, ids=["b"], tags=["b"])
    take(host, ONLY_A)
    assert bound(host) == "filtered_out"
    host.send(2, ids=["a", "a2"], keys=["k", "k"], tags=["a", "a"])
    assert bound(host) == "no_consumers"
    taken = take(host, ONLY_A)
    with asking(host, ONLY_A.masks):
        assert bound(host) == "key"
    assert bound(host) == "key", "also between two calls, since nobody asks for the other one"
    host.send(5, tags=["b"] * 5)
    take(host, ONLY_A)
    assert bound(host) == "filtered_out", "most wait for that"
    host.ack(taken)
    host.ack(take(host, ONLY_A))
    assert bound(host) == "filtered_out"
    host.send(2, tags=["b", "a"])
    assert bound(host) == "filtered_out", "also while a few were not compared yet"


def test_filters_of_before_a_restart(host: Any) -> None:
    """Nothing is known of them: nobody took the message."""
    host.send(1, ids=["b"], tags=["b"])
    take(host, ONLY_A, ms=3_000)
    host.send(1, ids=["c"], tags=["c"])
    host.restart()
    take(host, ONLY_A, ms=2_000)
    assert causes(host, "b") == [("no_consumers", 3_000), ("filtered_out", 2_000)]


@pytest.mark.parametrize("only", [None, ONLY_A])
def test_a_consumer_that_was_busy_over_a_restart(host: Any, only: TagFilter | None) -> None:
    """It holds its lease, and asks when it is done; whether others ask for other tags or not."""
    host.send(2, ids=["x", "b"], tags=["b", "b"])
    with asking(host):
        taken = host.receive(1, lease=60_000)
    host.restart()
    if only is not None:
        take(host, only, ms=5_000)
    host.advance(5_000)
    waited_ms = 5_000 if only is None else 10_000
    for _ in range(2):
        assert (causes(host, "b"), bound(host)) == (
            [("slow_consumers", waited_ms)],
            "slow_consumers",
        )
    host.ack(taken)
    host.ack(take(host))
    assert causes(host, "b") == [("slow_consumers", waited_ms)]


def test_leases_of_before_a_restart_that_have_ended(host: Any) -> None:
    """From then on the calls since the start tell all: other consumers ask for other tags."""
    host.send(3, ids=["x", "b", "a"], tags=["b", "b", "a"])
    with asking(host):
        host.receive(1, lease=3_000)
    host.restart()
    host.ack(take(host, ONLY_A, ms=2_000))
    take(host, ONLY_A, ms=2_000)
    take(host, ONLY_A, ms=5_000)
    assert causes(host, "b") == [("slow_consumers", 3_000), ("filtered_out", 6_000)]
    assert bound(host) == "filtered_out"


@pytest.mark.parametrize("busy", [True, False])
def test_many_short_calls_beside_another_filter(host: Any, busy: bool) -> None:
    """Purpose: a consumer that takes one message at a time leaves no time without a cause. Method:
    more calls than gaps are kept; it works between them, or acks at once and sleeps."""
    ids = [f"a{number}" for number in range(60)]
    with asking(host, ONLY_B.masks):
        host.send(60, ids=ids, tags=["a"] * 60)
        for _ in ids:
            with asking(host, ONLY_A.masks):
                found = host.receive(1, only=ONLY_A)
            host.advance(400 if busy else 5)
            host.ack(found)
            host.advance(5 if busy else 400)
    ((cause, _),) = causes(host, ids[-1])
    assert cause == ("slow_consumers" if busy else "no_consumers")


def test_a_message_that_is_about_to_be_handed_out(host: Any) -> None:
    """A call asks that would take it, so nobody is missing."""
    host.send(1, ids=["a"], tags=["a"])
    for others in ([], [ONLY_B.masks]):
        for masks in others:
            host.engine.state.timeline.begin_asking(
                ("default", "t", "default"), host.place, 0, host.now_ms, masks=masks
            )
        with asking(host):
            assert bound(host) is None


def test_slow_consumer(host: Any) -> None:
    """One consumer works for three seconds on the message before."""
    with asking(host):
        host.send(2, ids=["a", "b"])
        taken = host.receive(1)
    host.advance(3_000)
    assert bound(host) == "slow_consumers"
    host.ack(taken)
    with asking(host):
        host.receive(1)
    assert causes(host, "b") == [("slow_consumers", 3_000)]


def test_a_stuck_key(host: Any) -> None:
    """The holder is named, also while its key waits for its retry."""
    with asking(host):
        host.send(2, ids=["a", "b"], keys=["k", "k"])
        first = host.receive(5)
        assert [message.id for message in first] == ["a"]
        host.advance(2_000)
        host.nack(first, 3_000)
        assert bound(host) == "key"
        host.advance(3_000)
        again = host.receive(5)
        assert [message.id for message in again] == ["a"]
        host.advance(500)
        host.ack(again)
        host.ack(host.receive(5))
    (life,) = lives(host, ["b"])
    assert [(w.cause, w.until_ms - w.from_ms, w.origin) for w in life.waits] == [
        ("key", 5_500, first[0].origin)
    ]


def test_a_stuck_key_between_two_polls(host: Any) -> None:
    """Consumers that poll do not ask all the time; what they do not get waits for the key."""
    host.send(2, ids=["a", "b"], keys=["k", "k"])
    first = host.receive(5)
    assert bound(host) == "key"
    host.nack(first, 3_000)
    assert bound(host) == "key", "a holder that waits for its retry has no lease"
    host.send(1, ids=["c"])
    assert bound(host) == "no_consumers"
    host.ack(host.receive(5))
    assert bound(host) == "key"


def test_a_paused_topic(host: Any) -> None:
    """A pause counts before the lack of consumers, and ends when it is resumed."""
    host.send(1, ids=["a"])
    host.pause()
    assert bound(host) == "paused"
    host.advance(4_000)
    host.pause(paused=False)
    host.advance(1_000)
    with asking(host):
        host.receive()
    assert causes(host, "a") == [("paused", 4_000), ("no_consumers", 1_000)]


@pytest.mark.parametrize("cause", ["slow_disk", "loading"])
def test_a_pause_on_a_slow_disk(host: Any, cause: str) -> None:
    """Commits of the whole node are slow all the time: this message waits for the pause."""
    host.send(1, ids=["a"])
    host.pause()
    for _ in range(20):
        host.advance(150)
        host.engine.state.timeline.node(cause, host.now_ms - 120, host.now_ms)
    assert causes(host, "a") == [("paused", 3_000)]


def test_a_dropped_topic_leaves_nothing_behind(host: Any) -> None:
    """Neither its pause, nor what held for its groups, also for another topic of its name."""
    host.pause()
    host.put_group("audit")
    host.drop_topic()
    assert host.engine.state.timeline.saved()[1] == []
    host.engine.make_topic("t", host.now_ms)
    host.advance(1_000)
    assert "paused" not in noted(host)


def test_a_group_made_in_a_pause(host: Any) -> None:
    """It is paused as well, until the topic is resumed, also after a restart from a checkpoint."""
    host.pause()
    host.put_group("audit")
    host.send(1, ids=["a"])
    host.checkpoint(2)
    host.restart()
    host.advance(3_000)
    host.pause(paused=False)
    host.advance(1_000)
    (life,) = lives(host, ["a"], group=host.topic.group("audit"))
    assert [(w.cause, w.until_ms - w.from_ms) for w in life.waits] == [
        ("paused", 3_000),
        ("no_consumers", 1_000),
    ]


def test_a_long_pause_outlives_what_else_is_noted(host: Any) -> None:
    """Purpose: neither polls nor other groups push it out. Method: more of both than are kept."""
    host.send(1, ids=["a"])
    host.pause()
    timeline = host.engine.state.timeline
    for _ in range(2 * GROUP_SPANS_MAX):
        with asking(host):
            host.advance(300)
        host.advance(300)
    for number in range(2 * GROUPS_MAX):
        timeline.group(("other", f"{number}", "g"), "rate_limit", 0, 1_000)
    host.pause(paused=False)
    with asking(host):
        host.ack(host.receive())
    assert causes(host, "a") == [("paused", 2 * GROUP_SPANS_MAX * 600)]


@pytest.mark.parametrize("how", ["ack", "nack", "expire", "cancel", "purge"])
def test_too_many_leases(open_host: Any, how: str) -> None:
    """Refused at `leased_max`, until a message leaves its lease in whichever way."""
    host = open_host(limits=Limits(leased_max=1))
    with asking(host):
        host.send(2, ids=["a", "b"])
        first = host.receive(lease=2_000)
        assert host.receive() == []
        assert bound(host) == "leased_max"
        host.advance(1_999 if how == "expire" else 2_000)
        if how == "ack":
            host.ack(first)
        elif how == "nack":
            host.nack(first, 60_000)
        elif how == "expire":
            host.advance(1)
        elif how == "cancel":
            host.cancel(["a"], force=True)
        else:
            host.purge(force=True)
    key, place = ("default", "t", "default"), host.place
    assert host.engine.state.leases.leased(*place) == 0
    spans = host.engine.state.timeline.spans(key, place, 0, host.now_ms)
    assert [(s.until_ms - s.from_ms) for s in spans if s.cause == "leased_max"] == [2_000]
    if how != "purge":
        assert causes(host, "b")[0] == ("leased_max", 2_000)


def test_too_many_leases_before_a_restart(open_host: Any) -> None:
    """The refusal ended with the process that refused; the leases did not."""
    host = open_host(limits=Limits(leased_max=1))
    host.send(2, ids=["a", "b"])
    with asking(host):
        host.receive(lease=60_000)
        host.receive()
        host.advance(1_000)
    host.checkpoint(2)
    host.restart(pause_ms=5_000)
    host.advance(1_000)
    assert causes(host, "b") == [
        ("leased_max", 1_000),
        ("down", 5_000),
        ("slow_consumers", 1_000),
    ]


def test_loading(host: Any) -> None:
    """A restart, of which a slow disk reads the past: the last read counts as well."""
    host.send(1, ids=["a"], delay=HOUR)
    host.checkpoint(2)
    host.engine.close()
    host.now_ms += HOUR
    turn, host.turn = host.turn, lambda: None
    host.open()
    loader, began_ms = host.engine.dispatcher.loader, host.now_ms
    with asking(host):
        host.engine.run_due(host.now_ms)
        while loader.loading:
            host.now_ms += 350
            host.engine.run_inline(loader.load_work())
            host.engine.run_due(host.now_ms)
        host.turn = turn
        host.turn()
        assert [message.id for message in host.receive()] == ["a"]
    assert host.now_ms > began_ms
    assert causes(host, "a") == [("loading", host.now_ms - began_ms)]


def test_a_load_that_brought_nothing_is_not_blamed(host: Any, monkeypatch: Any) -> None:
    """It ended at once, but the next turn of the wheel came five seconds later."""
    with monkeypatch.context() as patch:
        patch.setattr(type(host.engine.state.wheel), "unloaded_ms", lambda _: host.now_ms - 1)
        host.engine.run_due(host.now_ms)
    host.now_ms += 5_000
    host.send(1, ids=["a"], delay=0)
    host.turn()
    assert "loading" not in noted(host)


def test_another_node_leads(host: Any, member: Any, monkeypatch: Any) -> None:
    """Purpose: a follower knows no consumers, and must not say that there are none. What was due
    between the last frame of a leader and the first turn of the next one waits for the take-over,
    though the election wrote a frame meanwhile. Method: a member leads, falls, and leads again."""
    host.send(1, ids=["a"], delay=1_000)
    host.advance(4_000)
    host.send(1, ids=["b"], delay=HOUR)
    member.catch_up(host)
    old = host.engine
    monkeypatch.setattr(host, "engine", member.engine)
    host.now_ms += 3_000
    assert "no_consumers" not in noted(host)
    assert bound(host) is None
    member.lead(host.now_ms, host.now_ms - 3_500)
    assert causes(host, "a")[-1] == ("take_over", 3_000)
    host.advance(1_000)
    member.commit = member.log.end_position
    member.engine.step_down()
    assert "no_consumers" not in noted(host)
    member.lead(host.now_ms)
    host.advance(2_000)
    assert causes(host, "a")[-1] == ("no_consumers", 2_000)
    assert bound(host) == "no_consumers"
    monkeypatch.setattr(host, "engine", old)


def test_a_rate_limit(host: Any) -> None:
    """One message a second: the third waits for two seconds for it."""
    host.configure(rate_limit=RateLimit(1.0, 1))
    with asking(host):
        host.send(3, ids=["a", "b", "c"])
        got: list[str] = []
        while len(got) < 3:
            got += [message.id for message in host.receive(1)]
            if len(got) == 1:
                host.receive(1)
                assert bound(host) == "rate_limit"
            host.advance(100)
    waits = dict(causes(host, "c"))
    assert waits.pop("rate_limit") >= 1_800
    assert sum(waits.values()) <= 200


def test_a_rate_limit_that_was_lifted(host: Any) -> None:
    """The refusal named a time in a quarter of an hour: it counts until the limit is gone."""
    host.configure(rate_limit=RateLimit(0.001, 1))
    host.send(3, ids=["a", "b", "c"])
    host.ack(take(host))
    take(host)
    host.advance(1_000)
    host.configure(rate_limit=None)
    host.advance(60_000)
    assert causes(host, "c") == [("rate_limit", 1_000), ("no_consumers", 60_000)]


def test_a_rate_limit_that_a_restart_ended(host: Any) -> None:
    """It begins with all its tokens."""
    host.configure(rate_limit=RateLimit(0.001, 1))
    host.send(2, ids=["a", "b"])
    host.ack(take(host))
    take(host)
    host.advance(1_000)
    host.checkpoint(2)
    host.restart(pause_ms=1_000)
    host.advance(5_000)
    assert causes(host, "b") == [
        ("rate_limit", 1_000),
        ("down", 1_000),
        ("no_consumers", 5_000),
    ]


def test_the_rate_of_a_target_that_was_replaced(host: Any) -> None:
    """A pump notes a time to come: it counts until another target is set."""
    state, topic = host.engine.state, host.topic
    slow = Target("http://a.example/", ("whsec_" + "a" * 32,), per_second=0.001)
    put_target(state, topic, topic.default, slow, host.now_ms)
    host.send(1, ids=["a"])
    key = ("default", "t", "default")
    state.timeline.group(key, "rate_limit", host.now_ms, host.now_ms + 900_000)
    state.marks.rate_limited[host.place] = host.now_ms + 900_000
    host.advance(1_000)
    assert bound(host) == "rate_limit"
    put_target(state, topic, topic.default, replace(slow, per_second=None), host.now_ms)
    host.advance(5_000)
    assert (causes(host, "a")[0], bound(host)) == (("rate_limit", 1_000), "no_consumers")


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_node_that_was_down(host: Any, checkpoint: bool) -> None:
    """Due while the process did not run; told the same after another restart."""
    host.send(1, ids=["a"], delay=1_000)
    if checkpoint:
        host.checkpoint(2)
    host.restart(pause_ms=60_000)
    host.advance(500)
    with asking(host):
        host.receive()
    parts = causes(host, "a")
    assert parts[0] == ("down", 59_000)
    assert [cause for cause, _ in parts[1:]] in ([], ["no_consumers"])
    host.checkpoint()
    host.restart(pause_ms=10_000)
    assert causes(host, "a") == parts


def test_a_note_in_the_log(host: Any) -> None:
    """A crash loses the timeline; the LEASE frame of the late message still tells."""
    host.send(1, ids=["a"])
    host.pause()
    host.advance(5_000)
    host.pause(paused=False)
    host.advance(5_000)
    with asking(host):
        host.ack(host.receive())
    before = causes(host, "a")
    assert before == [("paused", 5_000), ("no_consumers", 5_000)]
    host.restart(pause_ms=1_000)
    assert causes(host, "a") == before


def test_messages_in_time_have_no_waits(host: Any) -> None:
    with asking(host):
        host.send(1, ids=["a"], delay=1_000)
        host.advance(1_000)
        host.ack(host.receive())
    assert causes(host, "a") == []
