"""A message that is not under lease ends at the millisecond at which its ttl is over.

Each state in which a message can wait is a function that sends "old" with the id `u` and leaves it
there; its ttl is over at `END`. Then the clock moves to that millisecond, with the engine's turn or
without, and every question that asks whether the message lives must get the answer "no".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delaylog.broker.engine.changes import DONE, TOO_LATE
from delaylog.broker.engine.deliver import expiry
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.ready import expiries, ready_queues
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.send.merge import CREATED, KEPT, REJECTED, REPLACED
from delaylog.broker.engine.send.quotas import QuotaError
from delaylog.broker.engine.topics.settings import Backoff, Quota
from delaylog.broker.engine.views.list_page import ListQuery
from delaylog.storage.layout import MessageState as S
from delaylog.storage.layout import ref_to_id
from tests.broker.engine.host import HOUR, START_MS
from tests.broker.engine.views.test_listing import listed as list_all

END = 5_000
"""When the ttl is over, in ms after the start."""
DAY = 24 * HOUR
X = TagFilter(frozenset([b"x"]))
CODES = {"keep": KEPT, "reject": REJECTED, "replace": REPLACED}


def old(host: Any, *, delay: int = 0, ttl: int | None = None, **members: Any) -> None:
    ttl_ms = END - delay if ttl is None else ttl
    host.send([b"old"], ids=["u"], delay=delay, ttl_ms=ttl_ms, **members)


def ready(host: Any) -> None:
    old(host)


def due_later(host: Any) -> None:
    old(host, delay=4_000)


def ends_when_it_is_due(host: Any) -> None:
    old(host, delay=END)


def retried_at_once(host: Any) -> None:
    old(host)
    host.nack(host.receive(), 0)


def in_backoff(host: Any) -> None:
    old(host)
    host.nack(host.receive(), 1_000)


def in_backoff_beyond_its_ttl(host: Any) -> None:
    old(host)
    host.nack(host.receive(), HOUR)


def in_backoff_of_days(host: Any) -> None:
    """Its retry would be in the far tier."""
    old(host)
    host.nack(host.receive(), 48 * HOUR)


def lease_ended(host: Any) -> None:
    old(host)
    host.receive(lease=1_000)
    host.advance(2_500)


def lease_given_back(host: Any) -> None:
    old(host)
    host.extend(host.receive(begin=0), 0)


def key_locked(host: Any) -> None:
    host.send([b"holder"], keys="k")
    host.receive(lease=HOUR)
    old(host, keys="k")
    host.receive(lease=HOUR)


def keeps_its_key(host: Any) -> None:
    old(host, keys="k")
    host.nack(host.receive(), 1_000)


def a_successor(host: Any) -> None:
    host.configure(merge_leased="successor")
    host.send([b"predecessor"], ids=["u"])
    held = host.receive(lease=HOUR)
    old(host, merge="replace")
    host.receive()
    host.ack(held)


def tagged(host: Any) -> None:
    old(host, tags=["y"])
    host.receive(only=X)


def paused(host: Any) -> None:
    old(host)
    host.pause()


def ordered(host: Any) -> None:
    host.configure(order="priority", aging_ms=100)
    old(host, priority=3)


def rescheduled(host: Any) -> None:
    old(host, delay=HOUR, ttl=2_000)
    host.reschedule(["u"], START_MS + END - 2_000)


def replayed(host: Any) -> None:
    old(host, ttl=1_000)
    host.nack(host.receive(), 0)
    host.advance(1_000)
    assert host.replay(["u"], START_MS + END - 1_000) == [DONE]


def after_a_restart(host: Any) -> None:
    old(host)
    host.restart(1_000)


def after_a_checkpoint(host: Any) -> None:
    old(host, delay=3_000)
    host.checkpoint()
    host.restart(1_000)


def after_the_clock_was_set_back(host: Any) -> None:
    host.now_ms += HOUR
    old(host, ttl=END)
    host.set_back(HOUR)
    host.reschedule(["u"], START_MS)


def of_two_groups(host: Any) -> None:
    """One group has acked it; the other has no consumer."""
    host.put_group("audit")
    old(host)
    host.ack(host.receive())


WAYS: tuple[Callable[[Any], None], ...] = (
    ready,
    due_later,
    ends_when_it_is_due,
    retried_at_once,
    in_backoff,
    in_backoff_beyond_its_ttl,
    in_backoff_of_days,
    lease_ended,
    lease_given_back,
    key_locked,
    keeps_its_key,
    a_successor,
    tagged,
    paused,
    ordered,
    rescheduled,
    replayed,
    after_a_restart,
    after_a_checkpoint,
    after_the_clock_was_set_back,
    of_two_groups,
)
DUE_AT_THE_END = ends_when_it_is_due, in_backoff_beyond_its_ttl, in_backoff_of_days
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
"""Each state in which a message can wait."""


def begin(host: Any, way: Callable[[Any], None], **settings: Any) -> None:
    backoff = Backoff(first_ms=500, max_ms=500, jitter=0.0)
    host.configure(backoff=backoff, **settings)
    configure = host.configure
    host.configure = lambda **more: configure(backoff=backoff, **settings, **more)
    way(host)
    del host.configure


def pass_to(host: Any, ms: int, *, turn: bool = True) -> None:
    """Move the clock to `ms` after the start; without a turn the engine has not noticed."""
    host.advance(START_MS + ms - 1 - host.now_ms)
    host.now_ms += 1
    if turn:
        host.turn()


def states(host: Any, id: str = "u") -> set[S | None]:
    """The states of a message, in all groups."""
    state, topic = host.engine.state, host.topic
    found = (find_ids(state, topic, [id], host.now_ms, group)[0] for group in topic.groups.values())
    return {None if one is None else one.state for one in found}


def listed(host: Any, *wanted: S) -> list[str]:
    """The ids on the pages of a list."""
    return [one.head.id.decode() for one in list_all(host, ListQuery(frozenset(wanted)))]


@each_way
@pytest.mark.parametrize("turn", [True, False], ids=["turned", "at once"])
@pytest.mark.parametrize("merge", ["keep", "reject", "replace"])
def test_an_expired_message_frees_its_id(
    host: Any, way: Callable[[Any], None], merge: str, turn: bool
) -> None:
    begin(host, way)
    pass_to(host, END, turn=turn)
    assert host.send([b"new"], ids=["u"], merge=merge, ttl_ms=-1).results == CREATED
    assert S.READY in states(host)
    host.pause(paused=False)
    for name in host.topic.groups.values():
        assert host.bodies(group=name.name) in ([b"new"], [b"new", b"holder"])
    host.recount()


@each_way
@pytest.mark.parametrize("merge", ["keep", "reject", "replace"])
def test_a_message_keeps_its_id_until_it_expires(
    host: Any, way: Callable[[Any], None], merge: str
) -> None:
    begin(host, way)
    pass_to(host, END - 1)
    assert host.send([b"new"], ids=["u"], merge=merge).results.tolist() == [CODES[merge]]


@each_way
@pytest.mark.parametrize("turn", [True, False], ids=["turned", "at once"])
def test_an_expired_message_is_not_received(
    host: Any, way: Callable[[Any], None], turn: bool
) -> None:
    begin(host, way)
    host.pause(paused=False)
    pass_to(host, END, turn=turn)
    for name in host.topic.groups.values():
        assert b"old" not in host.bodies(group=name.name)
    host.recount()


@each_way
@pytest.mark.parametrize("turn", [True, False], ids=["turned", "at once"])
def test_a_look_up_shows_an_expired_message_as_ended(
    host: Any, way: Callable[[Any], None], turn: bool
) -> None:
    begin(host, way)
    pass_to(host, END - 1)
    assert states(host) & {S.READY, S.WAITING}
    pass_to(host, END, turn=turn)
    assert states(host) <= {S.EXPIRED, S.DEAD, S.ACKED}
    assert "u" not in listed(host, S.READY, S.WAITING)
    for act in (host.cancel, lambda ids: host.reschedule(ids, host.now_ms + 1)):
        assert act(["u"]) == [TOO_LATE]
    assert states(host) <= {S.EXPIRED, S.DEAD, S.ACKED}


@each_way
def test_counts_hold_no_expired_message(host: Any, way: Callable[[Any], None]) -> None:
    begin(host, way)
    pass_to(host, END)
    for group in host.topic.groups.values():
        held = group.counts.leased
        assert group.counts.living == held
        assert group.ready_count == 0
        assert len(host.peek(100, group)) == 0
    assert listed(host, S.READY, S.WAITING) == []
    assert len(listed(host, S.EXPIRED, S.DEAD)) == (way is not of_two_groups)
    host.recount()


@each_way
@pytest.mark.parametrize("turn", [True, False], ids=["turned", "at once"])
def test_an_expired_message_fills_no_quota(
    host: Any, way: Callable[[Any], None], turn: bool
) -> None:
    begin(host, way, quota=Quota(pending=3))
    pass_to(host, END - 1)
    host.send(3 - host.topic.pending)
    with pytest.raises(QuotaError):
        host.send(1)
    # What is due at this very millisecond becomes ready in the engine's turn.
    pass_to(host, END, turn=turn or way in DUE_AT_THE_END)
    host.send([b"new"])
    with pytest.raises(QuotaError):
        host.send(1)
    host.recount()


@each_way
def test_a_start_ends_messages_that_expired_meanwhile(
    host: Any, way: Callable[[Any], None]
) -> None:
    begin(host, way)
    pass_to(host, END - 1)
    host.restart(60_000)
    assert states(host) <= {S.EXPIRED, S.DEAD, S.ACKED}
    assert "u" not in listed(host, S.READY, S.WAITING)
    host.recount()


@pytest.mark.parametrize(
    ("attempts", "dead_expired", "state"),
    [
        (0, False, S.EXPIRED),
        (0, True, S.DEAD),
        (1, False, S.DEAD),
    ],
)
@pytest.mark.parametrize("turn", [True, False], ids=["turned", "at once"])
def test_an_expired_message_is_a_dead_letter_if_it_was_delivered(
    host: Any, attempts: int, dead_expired: bool, state: S, turn: bool
) -> None:
    host.configure(dead_expired=dead_expired)
    old(host)
    for _ in range(attempts):
        host.nack(host.receive(), 0)
    pass_to(host, END, turn=turn)
    assert states(host) == {state}
    # Once shown, it is also so for calls that change it.
    assert host.replay(["u"]) == [DONE if state is S.DEAD else TOO_LATE]
    host.check_counts()


# --------------------------------------------------------------------------- under lease


@pytest.mark.parametrize("back", ["nack", "nack at once", "lease ends", "given back"])
def test_one_that_returns_past_its_ttl_is_dead(host: Any, back: str) -> None:
    old(host)
    held = host.receive(lease=END + 10)
    pass_to(host, END)
    if back == "nack":
        host.nack(held)
    elif back == "nack at once":
        host.nack(held, 0)
    elif back == "given back":
        host.extend(held, 0)
    host.advance(100)
    assert states(host) == {S.DEAD}
    assert host.send([b"new"], ids=["u"], merge="reject").results == CREATED
    host.recount()


# --------------------------------------------------------------------------- in bulk


def test_expired_messages_end_in_slices(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "SLICE_ROWS", 100)
    host.send(1_000, ttl_ms=END, delay=[k % 7 for k in range(1_000)])
    pass_to(host, END + 10, turn=False)
    counts, turns = host.topic.default.counts, 0
    while host.engine.run_due(host.now_ms):
        turns += 1
        assert counts.expired == min(100 * turns, 1_000)
    assert counts.living == 0
    assert host.topic.default.ready_count == 0
    host.recount()


def test_a_send_ends_no_more_than_it_needs_room_for(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "SLICE_ROWS", 100)
    host.configure(quota=Quota(pending=1_000))
    host.send(1_000, topic="other", ttl_ms=END)
    host.send(1_000, ttl_ms=END)
    pass_to(host, END, turn=False)
    host.send(150, ttl_ms=-1, turn=False)
    assert host.topic.default.counts.expired == 200
    assert host.engine.topic("other").default.counts.expired == 0
    with pytest.raises(QuotaError):
        host.send(1_001, ttl_ms=-1, turn=False)
    host.turn()
    host.recount()


def test_a_message_ends_once_however_often_it_came_up(host: Any) -> None:
    old(host)
    for _ in range(5):
        host.nack(host.receive(), 0)
    pass_to(host, END)
    assert host.topic.default.counts.dead == 1
    host.check_counts()


def test_messages_of_many_topics_end_together(host: Any) -> None:
    for k in range(30):
        host.send(10, topic=f"t{k}", ttl_ms=END)
    pass_to(host, END)
    assert {host.engine.topic(f"t{k}").default.counts.expired for k in range(30)} == {10}


def test_entries_of_acked_messages_do_not_pile_up(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiries, "SWEEP_MIN", 64)
    monkeypatch.setattr(expiries, "SWEEP_STEP", 32)
    host.send(20, ttl_ms=HOUR)
    waiting = expiries_of(host)
    assert waiting == 20
    for _ in range(40):
        host.send(20, ttl_ms=HOUR, tags=["x"] * 20)
        host.ack(host.receive(only=X))
        assert expiries_of(host) <= 2 * (20 + 64 + 32)
    host.advance(HOUR)
    assert host.topic.default.counts.expired == 20
    assert expiries_of(host) == 0


def expiries_of(host: Any) -> int:
    return len(host.engine.state.expiries)


@pytest.mark.parametrize("members", [{}, {"priority": [5] * 20}], ids=["plain", "priorities"])
def test_refs_of_expired_messages_do_not_pile_up(
    host: Any, monkeypatch: pytest.MonkeyPatch, members: dict[str, Any]
) -> None:
    """There are no receives, which would drop them; nor the queue that was in use before the first
    priority, which is empty soon.
    """
    monkeypatch.setattr(ready_queues, "DROP_REFS", 50)
    host.send(60, ttl_ms=100)
    host.advance(100)
    for _ in range(50):
        host.send(20, ttl_ms=100, **members)
        host.advance(100)
    assert len(host.topic.default.ready) <= 200
    host.send([b"new"])
    assert host.topic.default.ready_count == 1
    assert host.bodies() == [b"new"]


def test_messages_without_a_ttl_are_not_watched(host: Any) -> None:
    host.send(100)
    host.send(100, delay=[1_000] * 100)
    host.advance(2_000)
    host.restart()
    assert expiries_of(host) == 0
    assert not host.engine.state.marks.timed


# --------------------------------------------------------------------------- others who ask


def test_an_unused_filter_hides_nothing(host: Any) -> None:
    tagged(host)
    pass_to(host, END)
    counts = host.topic.default.counts
    assert (counts.living, host.topic.default.ready_count) == (0, 0)
    host.send([b"new"], tags=["x"])
    assert host.bodies(only=X) == [b"new"]
    assert host.topic.default.ready_count == 0


def test_a_job_finds_an_expired_message_where_it_is(host: Any) -> None:
    retried_at_once(host)
    pass_to(host, END, turn=False)
    job = host.run_job("cancel")
    assert (job.matched, job.done) == (0, 0)
    job = host.run_job("replay", MessageFilter(states=frozenset([S.DEAD])))
    assert (job.matched, job.done) == (1, 1)
    assert host.bodies() == [b"old"]


def test_a_dead_letter_is_not_revived_beside_its_id(host: Any) -> None:
    """Unless the message that has the id now has expired too."""
    host.send([b"dead"], ids=["u"], max_retry=0)
    (held,) = host.receive()
    host.nack([held])
    old(host)
    pass_to(host, END - 1)
    assert host.replay([ref_to_id(held.origin)]) == [TOO_LATE]
    pass_to(host, END, turn=False)
    assert host.replay([ref_to_id(held.origin)]) == [DONE]


def test_an_expired_message_is_still_ended_when_the_clock_goes_back(host: Any) -> None:
    """What a call has told its caller stays true."""
    old(host)
    pass_to(host, END, turn=False)
    assert host.send([b"new"], ids=["u"], merge="keep", turn=False).results == CREATED
    host.set_back(1_000)
    assert host.topic.default.counts.expired == 1
    assert host.bodies() == []
    host.advance(1_000)
    assert host.bodies() == [b"new"]


def test_a_follower_that_leads_ends_expired_messages(host: Any, member: Any) -> None:
    ready(host)
    host.sync()
    log = host.engine.state.log
    member.copy(log, log.end_position)
    member.follow(log.end_position)
    state = member.engine.state
    assert len(state.expiries) == 0
    member.lead(host.now_ms)
    topic = member.engine.topic("t")
    for now_ms in (host.now_ms, START_MS + END - 1, START_MS + END):
        member.engine.commit(member.log.durable_position, now_ms)
        while member.engine.run_due(now_ms) or member.engine.dispatcher.loader.loading:
            member.engine.run_inline(member.engine.dispatcher.loader.load_work())
            member.log.write_pending()
            member.engine.commit(member.log.sync(), now_ms)
        assert topic.default.counts.expired == (now_ms == START_MS + END)


def test_a_topic_whose_messages_have_expired_may_go(host: Any) -> None:
    host.send([b"old"], topic="left", ttl_ms=END)
    host.advance(2 * DAY)
    host.engine.retire_unused(host.now_ms)
    assert host.engine.topic("left") is None
