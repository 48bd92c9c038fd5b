"""A leader: shipping, counting, the acks dial, windows, and letting a learner in again.

Its gate is open for so long after the sending of the newest round that a majority took. By its
order of dispatch nothing is published before it was handed out, and nothing is skipped.
"""

from __future__ import annotations

import pytest

from delaylog.replication.campaign import Voter
from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import EpochTick
from delaylog.replication.errors import PeerError
from delaylog.replication.leader import (
    ROUNDS_REMEMBERED,
    Acks,
    DispatchOrder,
    Gate,
    Handover,
    Leader,
)
from delaylog.replication.messages import (
    Ack,
    Append,
    Fetch,
    Fetched,
    NeedsCopy,
    Readmit,
    Readmitted,
    Reject,
)
from delaylog.storage.errors import DiskFullError
from tests.replication.memory_disk import MemoryLog, MemoryTicks
from tests.replication.parts import BEGIN, FRAME, Cluster, Outbox, extend, log_of, replica

E1, E2 = 1 << 16, 2 << 16


class Made:
    """Node 0 leads three in epoch 2 over a log with a message of epoch 1."""

    def __init__(
        self,
        log: MemoryLog | None = None,
        configuration: Configuration | None = None,
        **timing: int,
    ) -> None:
        self.log = log or log_of((E1, 1), (E2, 0))
        self.out = Outbox()
        self.leader = Leader(
            replica(0, self.log, MemoryTicks(), self.out, **timing),
            configuration or Configuration((0, 1, 2)),
            EpochTick(E2),
            0,
        )
        self.leader.note_durable()

    def ack(
        self, node: int, end: int, seq: int = 0, *, voter: bool = True, now_ms: int = 0
    ) -> None:
        self.leader.take_ack(node, Ack(E2, end, seq, voter), now_ms)

    def serve(self) -> None:
        self.ack(1, self.log.end)
        assert self.leader.serving

    def rows(self, count: int) -> int:
        extend(self.log, [(E2, count)])
        return self.log.end


@pytest.fixture
def made() -> Made:
    return Made()


def test_no_tick_before_it_serves(made: Made) -> None:
    made.leader.send_round(0)
    assert {message.tick.epoch for _, message in made.out.take()} == {0}
    made.serve()
    made.leader.send_round(1)
    assert {message.tick.epoch for _, message in made.out.take()} == {E2}


def test_own_disk_counts_when_it_is_durable(made: Made) -> None:
    made.serve()
    before = made.log.end
    end = made.rows(1)
    made.log.durable_end = before
    made.ack(1, end)
    assert made.leader.commit == before
    made.log.sync()
    made.leader.note_durable()
    assert made.leader.commit == end


def test_the_acks_dial(made: Made) -> None:
    made.serve()
    before, end = made.log.end, made.rows(1)
    safe = made.leader.safe_end
    assert [safe(acks) for acks in (Acks.LEADER, Acks.QUORUM, Acks.ALL)] == [end, before, 0]
    made.ack(2, before)
    assert safe(Acks.ALL) == before
    made.ack(1, end)
    assert (safe(Acks.QUORUM), safe(Acks.ALL)) == (end, before)
    # A leader does not wait for learners.
    made.ack(2, 0, voter=False)
    assert safe(Acks.ALL) == end


def test_before_it_serves_nothing_is_safe() -> None:
    assert Made().leader.safe_end(Acks.LEADER) == 0


def test_a_silent_follower_gets_one_message_a_round() -> None:
    made = Made(append_bytes_max=1)
    made.rows(5)
    made.leader.send_round(0)
    assert len([m for target, m in made.out.take() if target == 1]) == 1
    made.ack(1, 0)
    assert len(made.out.take()) == 5


def test_urgent_frames_go_before_a_round_that_opens_the_gate() -> None:
    """A lease that a full window holds up is not known to who takes the tick."""
    made = Made(append_bytes_max=1, window_bytes_max=3 * FRAME)
    made.serve()
    base, end = made.log.end, made.rows(5)
    made.leader.ship_all(at_once=True)
    made.leader.send_round(100)
    made.ack(1, base, made.leader.gate.seq)
    assert not made.leader.gate.is_open(101)
    made.ack(1, base + 3 * FRAME, made.leader.gate.seq)
    assert not made.leader.gate.is_open(102)
    made.leader.send_round(110)
    made.ack(1, end, made.leader.gate.seq)
    assert made.leader.gate.is_open(111)
    made.leader.reconnect(1)
    made.rows(1)
    made.leader.ship_all()
    made.leader.send_round(170)
    made.ack(1, end, made.leader.gate.seq)
    assert made.leader.gate.is_open(171), "frames that are not urgent may come later"


def test_the_window_bounds_frames_in_flight() -> None:
    made = Made(append_bytes_max=1, window_bytes_max=3 * FRAME)
    made.ack(1, made.log.end)
    made.out.take()
    made.rows(10)
    made.leader.ship_all()
    assert len(made.out.take()) == 3
    made.ack(1, made.log.ends[-10])
    assert len(made.out.take()) == 1


def test_a_reject_goes_back_to_the_common_end() -> None:
    log = log_of((E1, 3), (E2, 1))
    made = Made(log)
    made.leader.take_reject(1, Reject(E2, BEGIN + FRAME, True, ((E1, 0),)))
    sent = made.out.last()
    assert isinstance(sent, Append)
    assert (sent.prev_offset, sent.prev_epoch) == (BEGIN + FRAME, E1)
    assert sent.data == log.data[BEGIN + FRAME :]


def test_an_old_reject_does_not_go_behind_an_acknowledgement(made: Made) -> None:
    made.serve()
    made.leader.take_reject(1, Reject(E2, 0, True, ()))
    assert made.leader.progress[1].next == made.log.end


def test_an_acknowledgement_of_unsent_frames_is_refused(made: Made) -> None:
    with pytest.raises(PeerError):
        made.ack(1, made.log.end + 1)
    with pytest.raises(PeerError):
        made.ack(1, 0, seq=5)


def test_a_new_connection_begins_at_the_acknowledged_end(made: Made) -> None:
    made.serve()
    end = made.log.end
    made.rows(2)
    made.leader.ship_all()
    made.leader.reconnect(1)
    assert made.leader.progress[1].next == end
    made.leader.reconnect(2)
    assert made.leader.progress[2].next == made.leader.begin_start


def test_a_peer_behind_the_logs_start_needs_a_copy(cluster: Cluster) -> None:
    cluster.down.add(2)
    cluster.lead(0)
    cluster.send(0, 5)
    cluster.disks[0].log.first_position = BEGIN + 2 * FRAME
    cluster.down.clear()
    cluster.nodes[0].reconnect(2)
    cluster.pass_ms(300)
    # It is said once.
    assert cluster.nodes[0].take_events().count(NeedsCopy(2)) == 1
    assert cluster.disks[2].log.end == 0


# --------------------------------------------------------------------------- learners


def test_a_learner_replicates_and_does_not_count(cluster: Cluster) -> None:
    cluster.lead(0)
    cluster.wipe(2)
    cluster.send(0, 3)
    cluster.pass_ms(60)
    assert cluster.disks[2].log.data == cluster.disks[0].log.data
    # With the other voter gone nothing is committed any more, whatever the learner has.
    cluster.down.add(1)
    commit = cluster.nodes[0].commit
    cluster.send(0, 1)
    cluster.pass_ms(60)
    assert cluster.nodes[0].commit == commit
    assert not cluster.nodes[0].leadership.may_dispatch(cluster.now)


def test_a_learner_is_let_in_when_it_holds_all_and_counts_from_the_next_epoch(
    cluster: Cluster,
) -> None:
    cluster.lead(0)
    cluster.send(0, 2)
    cluster.wipe(2)
    cluster.pass_ms(60)
    leader = cluster.nodes[0]
    cluster.pass_ms(60)
    assert leader.readmit(2)
    cluster.settle()
    assert Readmitted(leader.promised) in cluster.nodes[2].take_events()
    assert cluster.nodes[2].votes
    cluster.down.add(1)
    commit, epoch = leader.commit, leader.promised
    cluster.send(0, 1)
    assert (leader.commit, leader.promised) == (commit, epoch)
    # The leader begins the next epoch by itself.
    cluster.pass_ms(60)
    assert leader.leadership.serving
    assert leader.promised > epoch
    assert leader.commit > commit


def test_a_learner_waits_until_every_other_voter_was_heard() -> None:
    """Node 4 asked for a promise before the learner lost its disk, and may still hold it.

    Were the learner let in now, it would take frames of the present epoch, which is lower than
    what it had promised to node 4; and node 4 could begin with that promise and without them.
    """
    cluster = Cluster(5)
    cluster.down |= {3, 4}
    cluster.lead(0)
    cluster.send(0, 2)
    cluster.wipe(2)
    cluster.pass_ms(200)
    leader = cluster.nodes[0]
    assert leader.leader is not None
    for back in (None, 3):
        cluster.down.discard(back)
        cluster.pass_ms(200)
        assert leader.leader.progress[2].match == leader.commit
        assert not leader.readmit(2)
    cluster.down.clear()
    cluster.pass_ms(200)
    assert leader.readmit(2)


def test_a_learner_checks_its_own_log(cluster: Cluster) -> None:
    cluster.lead(0)
    cluster.wipe(2)
    cluster.pass_ms(100)
    node = cluster.nodes[2]
    end = cluster.disks[2].log.end
    node.receive(0, Readmit(node.promised, end + 1), cluster.now)
    assert not node.votes
    node.receive(0, Readmit(node.promised - 65_536, end), cluster.now)
    assert not node.votes
    node.receive(0, Readmit(node.promised, end), cluster.now)
    assert node.votes


def test_a_voter_is_not_let_in_twice(cluster: Cluster) -> None:
    cluster.lead(0)
    assert not cluster.nodes[0].readmit(1)
    assert not cluster.nodes[1].readmit(0)


def test_a_leader_is_cut_off_while_no_majority_acknowledges_anything(made: Made) -> None:
    """A new connection proves nothing, and neither does an acknowledgement that was known."""
    made.serve()
    made.rows(1)
    for now_ms in range(0, 1_000, 50):
        made.leader.send_round(now_ms)
        assert not made.leader.is_cut(now_ms)
    for peer in (1, 2):
        made.leader.reconnect(peer)
        made.ack(peer, made.leader.commit if peer == 1 else 0, now_ms=900)
    assert made.leader.is_cut(1_000)
    made.ack(2, made.log.end, now_ms=1_000)
    assert [made.leader.is_cut(now_ms) for now_ms in (1_000, 1_999, 2_000)] == [False, False, True]


def test_a_follower_whose_disk_is_slow_does_not_cut_the_leader_off(made: Made) -> None:
    """It takes rounds, which come behind the log that it has not synced."""
    made.serve()
    before = made.log.end
    made.rows(1)
    for now_ms in range(0, 5_000, 500):
        made.leader.send_round(now_ms)
        made.ack(1, before, made.leader.gate.seq, now_ms=now_ms)
        assert not made.leader.is_cut(now_ms + 499)


def test_nodes_outside_the_majority_do_not_keep_a_leader_connected() -> None:
    """During a change each side needs its majority, and a learner counts on neither."""
    joint = Configuration((0, 3, 4), outgoing=(0, 1, 2), learners=(5,), version=1)
    made = Made(configuration=joint)
    for seq, peers in enumerate(((1, 2, 5), (3, 4), (1, 3)), 1):
        now_ms = 1_000 * seq
        made.leader.send_round(now_ms)
        for peer in peers:
            made.ack(peer, 0, made.leader.gate.seq, now_ms=now_ms)
        assert made.leader.is_cut(now_ms + 500) is (peers != (1, 3))


class Removing(MemoryLog):
    """Another thread removes the first half of the log during each read."""

    def read(self, start: int, bytes_max: int) -> bytes:
        self.first_position = self.ends[len(self.ends) // 2]
        return b"" if start < self.first_position else super().read(start, bytes_max)


def test_a_leader_whose_log_is_removed_as_it_is_shipped(made: Made) -> None:
    """As with a peer that is behind the start of the log: its next answer shows that."""
    log = Removing()
    extend(log, [(E1, 1), (E2, 0)])
    made = Made(log)
    made.rows(10)
    made.out.take()
    assert not made.leader.ship(1)
    assert made.leader.progress[1].next == log.end
    made.leader.send_round(50)
    assert [(to, message.data) for to, message in made.out.take()] == [(1, b""), (2, b"")]


def test_a_voter_whose_log_is_removed_as_it_is_fetched(cluster: Cluster) -> None:
    """The candidate needs a copy."""
    log = Removing()
    extend(log, [(E1, 10)])
    out = Outbox()
    disk = cluster.disks[1]
    voter = Voter(replica(1, log, MemoryTicks(), out), disk.meta)
    voter.promise(E2)
    voter.fetch(0, Fetch(E2, 0, ()))
    assert out.take() == [(0, Fetched(E2, log.first_position, log.end, b""))]


def test_a_learner_that_lost_its_disk_has_not_the_log_of_before() -> None:
    """It needs a copy, and is not let in again by what it has acknowledged on the lost disk."""
    made = Made(configuration=Configuration((0, 1, 2), learners=(3,), version=1))
    made.serve()
    made.leader.send_round(10)
    made.ack(1, made.log.end, seq=made.leader.gate.seq)
    made.ack(3, made.log.end)
    made.log.first_position = BEGIN + FRAME
    made.leader.reconnect(3)
    made.leader.send_round(20)
    made.ack(1, made.log.end, seq=made.leader.gate.seq)
    made.leader.take_reject(3, Reject(E2, 0, False, ()))
    assert (made.leader.progress[3].behind, made.leader.progress[3].match) == (True, 0)
    made.leader.send_round(30)
    made.ack(1, made.log.end, seq=made.leader.gate.seq)
    made.out.take()
    assert not made.leader.readmit(3)
    assert made.out.take() == []


class Full(MemoryTicks):
    """There is no space."""

    def write(self, tick: EpochTick) -> None:
        raise DiskFullError("no space left on device")


def test_a_peer_with_the_tick_before_has_not_the_one_that_found_no_space() -> None:
    """Messages were handed out by it, so a hand-over has to wait until the others have it."""
    log = log_of((E1, 1), (E2, 0))
    leader = Leader(replica(0, log, Full(), Outbox()), Configuration((0, 1, 2)), EpochTick(E2), 0)
    leader.note_durable()
    leader.take_ack(1, Ack(E2, log.end, 0, True), 0)
    leader.send_round(10)
    leader.take_ack(1, Ack(E2, log.end, leader.gate.seq, True), 10)
    assert leader.has_tick(1)
    leader.order.begin(5, 0)
    with pytest.raises(DiskFullError):
        leader.order.finish(5_000)
    assert leader.order.tick.second == 5
    assert not leader.has_tick(1)


@pytest.mark.parametrize("others", [1, 2])
def test_a_leader_without_room_for_its_tick_does_not_count_for_the_gate(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """If it is killed and the follower that took the tick is away, a successor starts from the
    tick before: hand-outs of much more than 50 ms would be repeated.
    """
    made = Made(gate_ms=50)
    made.serve()
    made.leader.order.take(made.leader.commit)
    made.leader.order.cover(made.leader.commit)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryTicks, "write", Full.write)
        made.leader.order.begin(5, 0)
        with pytest.raises(DiskFullError):
            made.leader.order.finish(5_000)
        for now_ms in (0, 100, 200):
            made.leader.send_round(now_ms)
            for peer in range(1, 1 + others):
                made.ack(peer, made.log.end, made.leader.gate.seq, now_ms=now_ms)
        assert made.leader.gate.is_open(200) == (others == 2)
        handover = Handover(1, deadline_ms=1_000)
        assert handover.ready(made.leader, made.log) == (others == 2)
    made.leader.send_round(210)
    made.ack(1, made.log.end, made.leader.gate.seq, now_ms=210)
    assert made.leader.gate.is_open(210)
    assert handover.ready(made.leader, made.log)


# --------------------------------------------------------------------------- the gate


def test_it_opens_with_a_majority_and_closes_by_time() -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    assert not gate.is_open(0)
    first = gate.begin_round(100)
    assert not gate.is_open(100)
    gate.take(1, first)
    assert gate.is_open(149)
    assert not gate.is_open(150)


def test_it_counts_from_the_sending_not_from_the_answer() -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    first, _ = gate.begin_round(100), gate.begin_round(140)
    # The answer to the first round comes late; the second has none yet.
    gate.take(1, first)
    assert gate.is_open(149)
    assert not gate.is_open(151)


def test_five_nodes_need_two_others() -> None:
    gate = Gate(0, Configuration((0, 1, 2, 3, 4)), 50)
    old, new = gate.begin_round(100), gate.begin_round(140)
    gate.take(1, new)
    assert not gate.is_open(141)
    gate.take(2, old)
    assert gate.is_open(149)
    assert not gate.is_open(150)
    gate.take(2, new)
    assert gate.is_open(189)


def test_answers_out_of_order_take_nothing_back() -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    old, new = gate.begin_round(100), gate.begin_round(140)
    gate.take(1, new)
    gate.take(1, old)
    assert gate.is_open(189)


def test_who_does_not_count_any_more_is_forgotten() -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    gate.take(1, gate.begin_round(100))
    gate.forget(1)
    assert not gate.is_open(101)


@pytest.mark.parametrize("seq", [0, 999])
def test_unknown_rounds_open_nothing(seq: int) -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    gate.begin_round(100)
    gate.take(1, seq)
    assert not gate.is_open(101)


def test_it_remembers_so_many_rounds() -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    for ms in range(ROUNDS_REMEMBERED + 1):
        gate.begin_round(ms)
    gate.take(1, 1)
    assert not gate.is_open(ROUNDS_REMEMBERED)
    gate.take(1, 2)
    assert gate.is_open(50)


def test_alone_it_is_always_open() -> None:
    assert Gate(0, Configuration((0,)), 50).is_open(10**9)


def test_its_age() -> None:
    """Since the sending of the newest round that a majority took, while it is closed too."""
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    assert gate.age_ms(7) is None
    first = gate.begin_round(100)
    assert gate.age_ms(100) is None
    gate.take(1, first)
    assert gate.age_ms(130) == 30
    assert gate.age_ms(400) == 300
    assert Gate(0, Configuration((0,)), 50).age_ms(5) == 0


# --------------------------------------------------------------------------- the order of dispatch


START = EpochTick(9, 100, 2, 500, 7)


def dispatch_order() -> tuple[DispatchOrder, list[EpochTick]]:
    out: list[EpochTick] = []
    return DispatchOrder(START, out.append), out


def test_it_begins_with_what_the_tick_does_not_cover() -> None:
    order, out = dispatch_order()
    assert order.take(800) == (500, 800)
    assert order.take(800) == (800, 800)
    assert order.take(900) == (800, 900)
    assert out == []


def test_a_second_is_published_when_it_was_handed_out() -> None:
    order, out = dispatch_order()
    order.begin(101, 5)
    assert out == []
    order.finish(44)
    assert out == [EpochTick(9, 101, 5, 500, 44)]
    assert order.tick == out[0]


def test_what_was_not_handed_out_is_not_published() -> None:
    order, out = dispatch_order()
    with pytest.raises(AssertionError):
        order.finish(44)
    assert out == []


def test_it_covers_what_was_taken_and_no_more() -> None:
    order, out = dispatch_order()
    order.take(800)
    with pytest.raises(AssertionError):
        order.cover(801)
    order.cover(700)
    order.cover(600)
    assert [tick.position for tick in out] == [700]


@pytest.mark.parametrize("place", [(99, 9), (100, 1)])
def test_it_never_goes_back(place: tuple[int, int]) -> None:
    order, _ = dispatch_order()
    with pytest.raises(AssertionError):
        order.begin(*place)
