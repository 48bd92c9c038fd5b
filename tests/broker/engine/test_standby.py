"""A member of a cluster follows a log that another engine writes, and goes on as its leader."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import pytest

from delaylog.broker.engine import changes
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.lookup.found_messages import just
from delaylog.storage.checkpoint import load_newest
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import EPOCH_NODE_BITS, FrameKind
from delaylog.storage.layout import MessageState as S
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.tick_slots import TickRecord
from delaylog.storage.work import Work
from tests.broker.engine.host import HOUR
from tests.broker.engine.member import Member, contents
from tests.effort import tries


def busy(host: Any, random: Random, steps: int) -> None:
    """Whatever clients do."""
    for _ in range(steps):
        what = random.randrange(9)
        if what < 3:
            n = random.randrange(1, 20)
            delay = [random.choice((0, 500, 5_000, HOUR, 3 * HOUR)) for _ in range(n)]
            ids = [f"{random.randrange(60)}" for _ in range(n)]
            host.send(n, delay=delay, ids=ids, merge=random.choice(("keep", "replace")))
        elif what < 5:
            got = host.receive(random.randrange(1, 9))
            random.choice((host.ack, host.nack, lambda got: None))(got)
        elif what == 5:
            host.cancel([f"{random.randrange(60)}"])
        elif what == 6:
            host.reschedule([f"{random.randrange(60)}"], host.now_ms + random.randrange(2 * HOUR))
        elif what == 7:
            host.advance(random.choice((100, 10_000, 40_000, HOUR)))
        else:
            random.choice((host.flush, host.checkpoint))()


def abandon(work: Work, steps: int) -> None:
    """As `Background.halt` ends work: its job goes to the end, and nothing after it."""
    for step in islice(work, steps):
        if callable(step):
            step()
    work.close()


@pytest.mark.parametrize("seed", range(tries(6)))
def test_the_same_hours(host: Any, member: Member, seed: int) -> None:
    """Row by row and byte by byte, whenever either flushed, checkpointed or was restarted, and
    whatever work ended in the middle, as when a leader steps down and goes on as a follower."""
    random = Random(seed)
    for _ in range(12):
        busy(host, random, 12)
        member.catch_up(host)
        engine = member.engine
        works = (
            engine.housekeeping.flush_work,
            lambda: member.engine.upkeep.checkpoint(lambda: member.engine.state.leader_time_ms),
            engine.housekeeping.states_work,
        )
        what = random.randrange(5)
        if what < 2:
            engine.run_inline(works[what]())
        elif what == 2:
            member.close()
            member.open()
            member.catch_up(host)
        elif what == 3:
            abandon(random.choice(works)(), random.randrange(20))
    theirs, ours = contents(host.engine), contents(member.engine)
    # Ended hours go when a node's own checkpoints allow it.
    both = theirs.keys() & ours.keys()
    assert both, "there is something to compare"
    for hour in both:
        assert ours[hour] == theirs[hour]
    for hour in theirs.keys() ^ ours.keys():
        engine = host.engine if hour in theirs else member.engine
        assert engine.state.hours.counts[hour].ended


def test_the_next_hours_are_near_before_the_first_frame(host: Any, member: Member) -> None:
    """A member without frames does not know the cluster's time, and it does not take it for 1970:
    then all hours would be far ones, and merges would drop ended rows of them on this member only.
    """
    hours, housekeeping = member.engine.state.hours, member.engine.housekeeping
    border = hours.counts.far_from
    assert member.engine.state.leader_time_ms == 0
    assert not housekeeping.split_due(0)
    assert hours.counts.far_from == border > host.now_ms // HOUR + 1
    host.send(2, delay=[0, HOUR])
    member.catch_up(host)
    assert not housekeeping.split_due(member.engine.state.leader_time_ms)
    assert sorted(hours.counts.near) == [host.now_ms // HOUR, host.now_ms // HOUR + 1]
    host.advance(2 * HOUR)
    host.send(1)
    member.catch_up(host)
    assert housekeeping.split_due(member.engine.state.leader_time_ms), "the border follows the log"


def test_it_goes_on_as_the_leader(host: Any, member: Member, monkeypatch: Any) -> None:
    """Waiting, ready, leased and ended messages are that on the next leader too."""
    host.send(3, ids=["ready", "leased", "acked"])
    first, second, third = host.receive()
    host.nack([first], delay=0)
    host.ack([third])
    host.send(1, ids=["waiting"], delay=HOUR)
    member.lead_after(host)
    # From here on the host drives the other engine.
    old = host.engine
    monkeypatch.setattr(host, "engine", member.engine)
    host.turn()
    found = [host.state_of(name) for name in ("ready", "leased", "acked", "waiting")]
    assert found == [S.READY, S.LEASED, S.ACKED, S.WAITING]
    (again,) = host.receive()
    assert again.id == "ready"
    assert again.lease >> 40 == member.engine.state.epoch_counter, "leases carry the epoch"
    assert host.ack([second]) == 1, "a lease of the old leader still counts"
    host.advance(HOUR)
    assert {message.id for message in host.receive()} == {"waiting", "ready"}
    host.send(1, ids=["new"])
    assert host.bodies() == [b"0"]
    host.check_counts()
    monkeypatch.setattr(host, "engine", old)


def test_what_is_not_committed_is_not_applied(host: Any, member: Member) -> None:
    """The rest of the log may be cut off: then nothing is to be undone."""
    host.send(2, ids=["a", "b"])
    host.sync()
    log = host.engine.state.log
    commit = log.end_position
    host.send(1, ids=["c"], delay=HOUR)
    host.sync()
    member.copy(log, log.end_position)
    member.follow(commit)
    topic = next(iter(member.engine.state.by_number.values()))
    assert topic.sent == 2
    work = member.engine.upkeep.checkpoint(lambda: host.now_ms)
    member.engine.run_inline(work)
    member.log.cut(commit)
    member.close()
    member.open()
    member.follow(commit)
    topic = next(iter(member.engine.state.by_number.values()))
    assert (topic.sent, topic.default.counts.living) == (2, 2)
    with pytest.raises(NotLeadingError):
        member.engine.state.append(FrameKind.SEND, [b""], host.now_ms)


def test_a_leader_that_falls_is_made_anew(host: Any, member: Member) -> None:
    """Its engine is dropped with what it had applied beyond the commit; the log lives on."""
    host.send(2, ids=["a", "b"])
    member.lead_after(host)
    engine, commit = member.engine, member.log.end_position
    state = engine.state
    engine.make_topic("never committed", host.now_ms)
    assert member.log.end_position > commit
    engine.close()
    member.log.cut(commit)
    member.make_engine()
    member.follow(commit)
    assert [t.name for t in member.engine.state.by_number.values()] == ["t"]
    assert member.engine.state is not state


def test_the_slots_say_how_far_the_log_is_durable(host: Any, member: Member) -> None:
    """Also while no tick comes: damage below it must not pass for a torn tail, which is cut."""
    host.send(3, delay=HOUR)
    host.sync()
    log = host.engine.state.log
    member.copy(log, log.end_position)
    tick = TickRecord(7 << EPOCH_NODE_BITS, Tick(1, 2, 3), 0, 5)
    member.ticks.write(tick)
    member.engine.write_changed_tick(host.now_ms)
    assert member.ticks.newest == replace(tick, durable_end=log.end_position)
    # A log that was cut is not durable to where it was.
    member.log.cut(member.log.first_position)
    member.engine.write_changed_tick(host.now_ms)
    assert member.ticks.newest == replace(tick, durable_end=0)


def test_a_leader_that_stands_down_keeps_its_time(member: Member) -> None:
    """What it tells, and would begin the next leadership with, is the time that it has come to."""
    at_ms = member.now_ms + 5_000
    member.lead(at_ms)
    member.engine.make_topic("t", at_ms)
    member.log.write_pending()
    member.engine.commit(member.log.sync(), at_ms)
    member.engine.run_due(at_ms + 250)
    member.commit = member.log.end_position
    member.engine.step_down()
    assert member.engine.state.leader_time_ms == at_ms + 250
    member.engine.lead(at_ms + 100, at_ms)
    assert member.engine.started_ms == at_ms + 250


def test_what_was_ready_under_an_earlier_leadership_is_not_counted(
    host: Any, member: Member, monkeypatch: Any
) -> None:
    """It comes up again: until then a cancel takes nothing out of the ready queue."""
    host.send(2, ids=["cancelled", "left"], delay=1_000)
    member.lead_after(host)
    old = host.engine
    monkeypatch.setattr(host, "engine", member.engine)
    host.advance(1_000)
    group = host.topic.default
    assert group.ready_count == 2
    member.commit = member.log.sync()
    member.engine.state.retire(member.commit)
    member.engine.step_down()
    member.lead(host.now_ms)
    found = host.find(["cancelled"])
    changes.cancel(member.engine.state, host.topic, just(found[0], group), host.now_ms)
    assert group.ready_count == 0
    host.turn()
    assert group.ready_count == 1
    assert [message.id for message in host.receive()] == ["left"]
    monkeypatch.setattr(host, "engine", old)


def test_frames_of_a_successor_are_not_passed_over(host: Any, member: Member) -> None:
    """They are in the log before a leader that fell, having lost nothing, begins to follow."""
    host.send(1, ids=["old"])
    member.lead_after(host)
    state = member.engine.state
    member.engine.make_topic("last", host.now_ms)
    member.log.write_pending()
    seen = member.commit = member.log.sync()
    # A successor that had all of it, and went on.
    epoch = state.epoch_counter + 1 << EPOCH_NODE_BITS | 3
    for _ in range(2):
        member.log.append(
            FrameKind.EPOCH_BEGIN, [], epoch=epoch, leader_time_ms=host.now_ms, tick=Tick()
        )
        epoch += 1 << EPOCH_NODE_BITS
    member.log.write_pending()
    member.log.sync()
    assert state.position == seen, "what it has applied is committed, so it may stay as it is"
    state.retire(member.commit)
    member.engine.step_down()
    assert state.position == seen
    member.follow(member.log.end_position)
    assert [first for _, first in state.epochs][-2] == seen
    assert state.epoch_counter == (epoch >> EPOCH_NODE_BITS) - 1


def test_a_successor_that_cut_the_log_hides_nothing(host: Any, member: Member) -> None:
    """The log may be shorter by the time the old leader is told: it knows its own end."""
    host.send(1, ids=["old"])
    member.lead_after(host)
    commit = member.log.end_position
    member.engine.make_topic("never committed", host.now_ms)
    assert member.engine.state.position > commit
    member.log.write_pending()
    member.log.cut(commit)
    assert member.engine.state.position > commit, "it has applied what is gone"


def test_a_checkpoint_knows_no_epoch_that_begins_behind_it(host: Any, member: Member) -> None:
    """It is written while the log goes on, and another leader may begin meanwhile."""
    host.send(1, ids=["a"])
    member.catch_up(host)
    state = member.engine.state
    work = member.engine.upkeep.checkpoint(lambda: host.now_ms)
    step = next(work)
    state.begin_epoch(state.epoch + (1 << EPOCH_NODE_BITS), state.position)
    while True:
        if callable(step):
            step()
        try:
            step = next(work)
        except StopIteration:
            break
    saved = load_newest(OsFileSystem(), str(member.folder))
    assert saved is not None
    assert all(start < saved.position for _, start in saved.epochs)


def test_at_its_start_too_it_asks_before_log_goes(host: Any, member: Member) -> None:
    """Others may need it still: a start that removed what both checkpoints are past left a node
    that was behind with nothing but a copy of the folder.
    """
    for _ in range(2):
        host.send(3)
        member.catch_up(host)
        member.engine.run_inline(member.engine.upkeep.checkpoint(lambda: host.now_ms))
    [first, _] = [one.log_from for one in member.engine.upkeep.kept]
    assert member.dropped == [first]
    member.engine.close()
    member.make_engine()
    assert member.dropped == [first, first]
