"""One look-up and one frame for several consumers, a lease for each; acks of several leases."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.deliver import receives, settlements
from delaylog.broker.engine.deliver.receives import ReceiveRequest
from delaylog.broker.engine.model import Delivery
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.payloads import LeaseDecision, SettleDecision
from tests.effort import tries


def take(host: Any, *shares: int, lease: int = 30_000, **asked: Any) -> list[Delivery]:
    """What each of several consumers gets."""
    group = host.topic.group("default")
    wanted = ReceiveRequest(sum(shares), host.now_ms, shares=shares, **asked)
    state = host.engine.state
    delivery = receives.receive(state, host.topic, group, wanted, lease_ms=lease)
    host.turn()
    return [] if delivery is None else list(delivery.apart())


def bodies(delivery: Delivery) -> list[bytes]:
    """Of messages with nothing but a body."""
    out, at = [], 0
    for size in delivery.rows["size"].tolist():
        out.append(delivery.records[at : at + size])
        at += size
    assert at == len(delivery.records)
    return out


def bodies_of(delivery: Delivery) -> list[bytes]:
    """Of messages with keys of one byte."""
    out, at = [], 0
    for row in delivery.rows:
        size = int(row["size"])
        out.append(delivery.records[at + 1 : at + size])
        at += size
    return out


def settle(host: Any, *receipts: settlements.Receipts) -> list[tuple[int, list[int]]]:
    """(done, gone) of each."""
    settled = settlements.ack_each(host.engine.state, host.topic, receipts, host.now_ms)
    host.turn()
    return [(each.done, each.gone_column.tolist()) for each in settled]


def test_each_consumer_has_a_lease_of_its_own(host: Any) -> None:
    """In the order in which they asked; who asked last may get nothing."""
    host.send([b"a", b"bb", b"ccc", b"dddd"])
    first, second, third = take(host, 1, 2, 5, 1)
    assert [bodies(each) for each in (first, second, third)] == [[b"a"], [b"bb", b"ccc"], [b"dddd"]]
    assert [each.lease - first.lease for each in (first, second, third)] == [0, 1, 2]
    assert take(host, 1, 1) == []
    # The next lease has another number than any of these.
    host.send(1)
    assert host.receive()[0].lease == third.lease + 1


def test_the_cost_of_an_ack_does_not_grow_with_the_acks_beside_it(host: Any) -> None:
    """Twenty times as many leases settled together take about twenty times as long."""

    def cost_s(count: int) -> float:
        host.send([b"x"] * count)
        receipts = [settlements.Receipts(each.lease) for each in take(host, *[1] * count)]
        began_s = time.process_time()
        assert [done for done, _ in settle(host, *receipts)] == [1] * count
        return (time.process_time() - began_s) / count

    few, many = (min(cost_s(count) for _ in range(3)) for count in (200, 4_000))
    assert many < 4 * few


def test_whole_leases_are_apart(host: Any) -> None:
    """Who settles all of its lease settles nobody else's, and can do so once."""
    host.send(5)
    first, second = take(host, 2, 3)
    assert settle(host, settlements.Receipts(first.lease)) == [(2, [])]
    assert settle(host, settlements.Receipts(first.lease), settlements.Receipts(second.lease)) == [
        (0, []),
        (3, []),
    ]
    assert host.engine.state.leases.leased(host.topic.number, host.topic.default.number) == 0


def test_leases_end_apart(host: Any) -> None:
    host.send(2)
    first, second = take(host, 1, 1, lease=1_000)
    topic, state = host.topic, host.engine.state
    settlements.extend(
        state, topic, settlements.Receipts(second.lease), host.now_ms, lease_ms=9_000
    )
    host.advance(2_000)
    assert host.bodies() == bodies(first)
    assert settle(host, settlements.Receipts(first.lease, first.origins)) == [
        (0, first.origins.tolist())
    ]
    assert settle(host, settlements.Receipts(second.lease, second.origins)) == [(1, [])]


def test_what_two_name_is_settled_once(host: Any) -> None:
    """The first of them settles it; to the other one it is gone."""
    host.send(3)
    (delivery,) = take(host, 3)
    refs = delivery.origins
    assert settle(
        host,
        settlements.Receipts(delivery.lease, refs[:2]),
        settlements.Receipts(delivery.lease, refs[1:]),
        settlements.Receipts(delivery.lease + 7, refs[:1]),
    ) == [(2, []), (1, [int(refs[1])]), (0, [int(refs[0])])]


def test_it_is_one_frame_each(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    host.send(4)
    state, frames = host.engine.state, []
    append = state.append

    def note(kind: FrameKind, payload: Any, now_ms: int) -> Any:
        frames.append((kind, b"".join(payload)))
        return append(kind, payload, now_ms)

    monkeypatch.setattr(state, "append", note)
    found = take(host, 1, 1, 1, 1)
    settle(host, *(settlements.Receipts(each.lease, each.origins) for each in found))
    (leased, lease), (acked, settled) = frames
    assert (leased, acked) == (FrameKind.LEASE, FrameKind.SETTLE)
    decision = LeaseDecision.decode(lease)
    assert decision.counts == [1, 1, 1, 1]
    assert SettleDecision.decode(settled).leases.tolist() == decision.leases.tolist()


def test_each_consumer_says_how_many_attempts_begin(host: Any) -> None:
    """Nobody counts for another, and who says nothing begins at all."""
    host.send(6)
    first, second, third = take(host, 2, 2, 2, begin=[1, None, 0])
    host.advance(30_100)
    state, group = host.engine.state, host.topic.group("default")
    wanted = ReceiveRequest(9, host.now_ms)
    again = receives.receive(state, host.topic, group, wanted, lease_ms=1_000)
    assert again is not None
    untried = [*first.origins[1:].tolist(), *third.origins.tolist()]
    assert sorted(again.origins.tolist()) == sorted(untried)
    assert set(again.attempts.tolist()) == {1}
    assert not set(second.origins.tolist()) & set(again.origins.tolist())


def test_keys_hold_each_other_across_consumers(host: Any) -> None:
    """Of one key one message is out at a time, whoever has it."""
    host.send(4, keys="kkkl")
    first, second = take(host, 1, 3)
    assert [bodies_of(first), bodies_of(second)] == [[b"0"], [b"3"]]
    assert take(host, 1, 1) == []
    settle(host, settlements.Receipts(first.lease), settlements.Receipts(second.lease))
    assert [bodies_of(each) for each in take(host, 1, 1)] == [[b"1"]]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_they_are_the_same_after_a_restart(host: Any, checkpoint: bool) -> None:
    host.send(6, keys="abcdef")
    found = take(host, 2, 1, 3)
    settle(host, settlements.Receipts(found[2].lease, found[2].origins[1:2]))
    if checkpoint:
        host.checkpoint()
    host.restart()
    assert host.receive() == []
    again = [
        settlements.Receipts(found[0].lease),
        settlements.Receipts(found[1].lease, found[1].origins),
        settlements.Receipts(found[2].lease),
    ]
    assert [done for done, _ in settle(host, *again)] == [2, 1, 2]


@settings(
    max_examples=tries(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5), min_size=1, max_size=5))
def test_merged_receives_give_what_single_ones_do(open_host: Any, turns: list[list[int]]) -> None:
    """Message by message, consumer by consumer."""
    merged, single = open_host(), open_host()
    for run in (merged, single):
        run.send(12, priority=np.arange(12) % 3, keys="aabbccddeeff")
    for shares in turns:
        together = [bodies_of(each) for each in take(merged, *shares)]
        apart = [found for share in shares if (found := single.bodies(share))]
        assert together == apart
