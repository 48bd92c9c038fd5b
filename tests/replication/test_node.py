"""One node among others: promises, tries to lead, refusals, and hand-overs that fail.

Method: real nodes whose messages are delivered by hand, one step after the other.
"""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.replication.epochs import NO_TICK, EpochTable, EpochTick
from delaylog.replication.errors import LostCommitError, PeerError
from delaylog.replication.messages import (
    Ack,
    Append,
    Fetch,
    Fetched,
    HandoverFailed,
    Hello,
    Message,
    Nack,
    NeedsCopy,
    Prepare,
    Promise,
    Resigned,
    Role,
    Serving,
    SteppedDown,
    Takeover,
)
from tests.replication.memory_disk import CLUSTER_ID
from tests.replication.parts import BEGIN, FRAME, Cluster, at, extend

E5 = 5 << 16 | 1
TABLE = ((1 << 16, 0),)


def said(cluster: Cluster, node: int, kind: type[Message]) -> list[Any]:
    """What a node says now, of one kind."""
    return [m for _, m in cluster.nodes[node].take_messages() if isinstance(m, kind)]


# --------------------------------------------------------------------------- promises


def test_epochs_of_its_log_are_promised_too(cluster: Cluster) -> None:
    """A folder that was served alone has epochs and a new meta file."""
    extend(cluster.disks[0].log, [(7 << 16, 1)])
    node = cluster.nodes[0]
    assert node.promised == 7 << 16
    node.receive(1, Prepare(E5), cluster.now)
    assert said(cluster, 0, Nack) == [Nack(E5, 7 << 16)]
    cluster.lead(0)
    assert node.promised == 8 << 16


def test_a_candidate_that_leads_by_now_needs_no_promise(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.nodes[0].take_messages()
    cluster.nodes[0].receive(1, Prepare(cluster.nodes[1].promised), cluster.now)
    assert cluster.nodes[0].take_messages() == []


def test_its_log_is_shown_only_to_whom_it_has_promised(cluster: Cluster) -> None:
    extend(cluster.disks[0].log, [(1 << 16, 1)])
    node = cluster.nodes[0]
    node.receive(1, Prepare(E5), cluster.now)
    node.take_messages()
    node.receive(1, Fetch(4 << 16 | 1, 0, ()), cluster.now)
    assert node.take_messages() == [(1, Nack(4 << 16 | 1, E5))]
    node.receive(1, Fetch(6 << 16 | 1, 0, ()), cluster.now)
    assert node.take_messages() == []
    node.receive(1, Fetch(E5, BEGIN, TABLE), cluster.now)
    data = bytes(cluster.disks[0].log.data[BEGIN:])
    assert node.take_messages() == [(1, Fetched(E5, BEGIN, BEGIN + FRAME, data))]
    node.receive(1, Fetch(E5, BEGIN + FRAME, TABLE), cluster.now)
    assert node.take_messages() == []
    for offset, table in ((BEGIN + FRAME + 1, TABLE), (BEGIN, ((1 << 16, 8),))):
        with pytest.raises(PeerError):
            node.receive(1, Fetch(E5, offset, table), cluster.now)


# --------------------------------------------------------------------------- coming to lead


def test_alone_it_leads_once_its_disk_has_epoch_begin() -> None:
    cluster = Cluster(1)
    node = cluster.nodes[0]
    node.suggest_leader(cluster.now)
    assert node.role == Role.BEGINNING
    cluster.settle()
    assert node.role == Role.SERVING
    assert node.take_events() == [Serving(1 << 16, EpochTick(1 << 16, wall_ms=1_000_000))]
    assert node.leadership.may_dispatch(at(10**9))


def test_a_refused_candidate_tries_a_higher_epoch(cluster: Cluster) -> None:
    for node in (1, 2):
        cluster.nodes[node].receive(0, Prepare(9 << 16), cluster.now)
        cluster.nodes[node].take_messages()
    cluster.nodes[0].suggest_leader(cluster.now)
    cluster.settle()
    assert cluster.nodes[0].role == Role.FOLLOWER
    cluster.pass_ms(60)
    assert cluster.nodes[0].role == Role.SERVING
    assert cluster.nodes[0].promised == 10 << 16


def test_a_word_that_was_taken_back_leads_to_no_further_try(cluster: Cluster) -> None:
    cluster.nodes[1].receive(2, Prepare(9 << 16 | 2), cluster.now)
    cluster.nodes[0].suggest_leader(cluster.now)
    cluster.turn()
    cluster.turn()
    cluster.nodes[0].unsuggest_leader()
    cluster.pass_ms(200)
    assert cluster.nodes[0].role == Role.FOLLOWER


def test_lost_messages_are_asked_for_again(cluster: Cluster) -> None:
    cluster.nodes[0].suggest_leader(cluster.now)
    cluster.nodes[0].take_messages()
    cluster.pass_ms(61)
    assert cluster.nodes[0].role == Role.SERVING


def test_a_best_log_that_does_not_answer_is_done_without(cluster: Cluster) -> None:
    extend(cluster.disks[0].log, [(1 << 16, 0)])
    extend(cluster.disks[1].log, [(1 << 16, 3)])
    cluster.nodes[0].suggest_leader(cluster.now)
    cluster.down.add(2)
    cluster.turn()
    cluster.turn()
    assert cluster.nodes[0].role == Role.ADOPTING
    cluster.nodes[0].take_messages()
    cluster.down = {1}
    cluster.pass_ms(400)
    assert cluster.nodes[0].role == Role.SERVING


def test_a_best_log_that_differs_from_its_promise_is_refused(cluster: Cluster) -> None:
    extend(cluster.disks[0].log, [(1 << 16, 0)])
    extend(cluster.disks[1].log, [(1 << 16, 3)])
    node = cluster.nodes[0]
    node.suggest_leader(cluster.now)
    cluster.down.add(2)
    cluster.turn()
    cluster.turn()
    end = BEGIN + FRAME
    data = bytes(cluster.disks[1].log.data[BEGIN:end])
    with pytest.raises(PeerError, match="differs from what it has promised"):
        node.receive(1, Fetched(node.promised, BEGIN, end, data), cluster.now)
    assert cluster.disks[0].log.end == BEGIN


def test_a_log_without_the_beginning_cannot_be_adopted(cluster: Cluster) -> None:
    extend(cluster.disks[0].log, [(1 << 16, 0)])
    extend(cluster.disks[1].log, [(1 << 16, 3)])
    cluster.disks[1].log.first_position = BEGIN + FRAME
    cluster.down.add(2)
    node = cluster.nodes[0]
    node.suggest_leader(cluster.now)
    cluster.settle()
    assert node.take_events() == [NeedsCopy(0), Resigned(1_000)]
    assert node.role == Role.FOLLOWER


def test_logs_that_share_no_epoch_cannot_be_adopted(cluster: Cluster) -> None:
    extend(cluster.disks[0].log, [(3 << 16, 3)])
    extend(cluster.disks[1].log, [(2 << 16, 1), (3 << 16 | 1, 3)])
    # Node 1 has forgotten where its log began.
    cluster.disks[1].log.epochs = EpochTable(cluster.disks[1].log.epochs.entries()[1:])
    cluster.down.add(2)
    node = cluster.nodes[0]
    node.suggest_leader(cluster.now)
    cluster.settle()
    assert NeedsCopy(0) in node.take_events()
    assert cluster.disks[0].log.cuts == []


def test_a_log_that_is_only_too_long_needs_no_fetch(cluster: Cluster) -> None:
    extend(cluster.disks[0].log, [(1 << 16, 0), (2 << 16, 4)])
    extend(cluster.disks[1].log, [(1 << 16, 0), (3 << 16 | 1, 0)])
    # It shares all of what is better, once its own last leadership is gone.
    cluster.disks[0].log.cut(BEGIN)
    extend(cluster.disks[0].log, [(3 << 16 | 1, 0)])
    cluster.nodes[0].suggest_leader(cluster.now)
    cluster.down.add(2)
    cluster.settle()
    assert cluster.nodes[0].role == Role.SERVING


def test_a_candidate_that_misses_its_deadline_stays_out(cluster: Cluster) -> None:
    cluster.down |= {1, 2}
    node = cluster.nodes[0]
    node.suggest_leader(cluster.now)
    cluster.pass_ms(1_000)
    assert node.take_events() == [Resigned(2_000)]
    node.suggest_leader(cluster.now)
    assert node.role == Role.FOLLOWER
    cluster.down.clear()
    cluster.pass_ms(1_000)
    node.suggest_leader(cluster.now)
    cluster.settle()
    assert node.role == Role.SERVING


def test_a_leader_without_a_majority_goes_on_in_its_epoch(cluster: Cluster) -> None:
    """Who serves is not put out by time: the gate is closed, and nothing is committed."""
    cluster.lead(0)
    cluster.down |= {1, 2}
    cluster.pass_ms(3_000)
    assert cluster.nodes[0].role == Role.SERVING
    assert not cluster.nodes[0].leadership.may_dispatch(cluster.now)
    cluster.down.clear()
    cluster.pass_ms(60)
    assert cluster.nodes[0].leadership.may_dispatch(cluster.now)


def test_the_oracles_word_against_it_ends_a_leadership(cluster: Cluster) -> None:
    cluster.lead(0)
    cluster.nodes[0].take_events()
    epoch = cluster.nodes[0].promised
    cluster.nodes[0].unsuggest_leader()
    assert cluster.nodes[0].take_events() == [SteppedDown(epoch, cluster.nodes[0].commit)]
    assert not cluster.nodes[0].leadership.may_append()


def test_a_nack_of_another_epoch_means_nothing(cluster: Cluster) -> None:
    cluster.lead(0)
    node = cluster.nodes[0]
    node.receive(1, Nack(node.promised - 1, 9 << 16), cluster.now)
    node.receive(1, Nack(node.promised, node.promised), cluster.now)
    assert node.role == Role.SERVING
    node.receive(1, Nack(node.promised, 9 << 16), cluster.now)
    assert node.role == Role.FOLLOWER


# --------------------------------------------------------------------------- handing over


def test_a_handover_without_an_answer_is_given_up_in_the_same_epoch(cluster: Cluster) -> None:
    cluster.lead(0)
    cluster.send(0)
    node = cluster.nodes[0]
    epoch = node.promised
    cluster.down.add(1)
    assert node.hand_over(1, cluster.now)
    assert not node.hand_over(2, cluster.now)
    assert not node.leadership.may_append()
    assert node.leadership.may_dispatch(cluster.now)
    node.take_events()
    cluster.pass_ms(1_000)
    assert node.take_events() == [HandoverFailed(1, True)]
    assert node.leadership.may_append()
    assert node.promised == epoch


def test_after_takeover_the_way_back_is_a_new_epoch(cluster: Cluster) -> None:
    cluster.lead(0)
    cluster.pass_ms(60)
    node = cluster.nodes[0]
    leader = node.leader
    assert leader is not None
    leader.order.take(leader.commit)
    leader.order.cover(cluster.disks[0].log.end)
    cluster.pass_ms(60)
    epoch = node.promised
    assert node.hand_over(1, cluster.now)
    takeovers = said(cluster, 0, Takeover)
    assert takeovers == [Takeover(epoch, BEGIN, leader.order.tick)]
    assert not node.leadership.may_dispatch(cluster.now)
    cluster.down.add(1)
    node.take_events()
    cluster.pass_ms(1_100)
    assert node.take_events()[:2] == [HandoverFailed(1, False), SteppedDown(epoch, BEGIN)]
    assert node.role == Role.SERVING
    assert node.promised > epoch


def test_only_members_and_only_from_a_serving_leader(cluster: Cluster) -> None:
    assert not cluster.nodes[0].hand_over(1, cluster.now)
    cluster.lead(0)
    assert not cluster.nodes[0].hand_over(0, cluster.now)
    assert not cluster.nodes[0].hand_over(9, cluster.now)


# --------------------------------------------------------------------------- bad company


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (0, Prepare(E5)),
        (9, Prepare(E5)),
        (2, Prepare(E5)),
        (2, Append(E5, 0, 0, 0, 1, NO_TICK, b"")),
        (1, Append(E5, 0, 0, 0, 1, NO_TICK, b"garbage")),
        (1, Hello(CLUSTER_ID, 1, True, 0, 0)),
    ],
)
def test_messages_that_no_sound_peer_sends_are_refused(
    cluster: Cluster, source: int, message: Message
) -> None:
    with pytest.raises(PeerError):
        cluster.nodes[0].receive(source, message, cluster.now)
    assert cluster.disks[0].log.end == 0
    assert cluster.nodes[0].take_messages() == []


def test_answers_to_another_node_are_dropped(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    for message in (Ack(E5, 0, 0, True), Promise(E5, 0, NO_TICK, ()), Fetched(E5, 0, 0, b"")):
        node.receive(1, message, cluster.now)
    assert node.take_messages() == []


def test_a_tick_may_come_by_another_way(cluster: Cluster) -> None:
    cluster.lead(1)
    epoch = cluster.nodes[1].promised
    ticks = cluster.disks[0].ticks
    cluster.nodes[0].accept_tick(EpochTick(epoch, 9, 0, BEGIN))
    assert ticks.tick == EpochTick(epoch, 9, 0, BEGIN)
    # Not of another epoch, not beyond its log, and not to who leads.
    cluster.nodes[0].accept_tick(EpochTick(epoch + 65_536, 10, 0, BEGIN))
    cluster.nodes[0].accept_tick(EpochTick(epoch, 10, 0, BEGIN + 1))
    assert ticks.tick.second == 9
    cluster.nodes[1].accept_tick(EpochTick(epoch, 10, 0, BEGIN))
    assert cluster.disks[1].ticks.tick.second == 0


def test_a_node_stops_before_it_cuts_committed_frames(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.send(1, 2)
    cluster.pass_ms(60)
    assert cluster.nodes[0].commit == cluster.disks[0].log.end
    other = Cluster()
    extend(other.disks[2].log, [(7 << 16 | 2, 3)])
    data = bytes(other.disks[2].log.data)
    with pytest.raises(LostCommitError, match="committed"):
        cluster.nodes[0].receive(2, Append(7 << 16 | 2, 0, 0, 0, 1, NO_TICK, data), cluster.now)


def test_timers_are_known_in_advance(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    assert node.next_timer_ms() is None
    node.suggest_leader(cluster.now)
    first = node.next_timer_ms()
    assert first is not None
    assert 20 <= first <= 60
    cluster.settle()
    assert node.next_timer_ms() == 50
    node.leadership.busy = True
    assert node.next_timer_ms() == 10
