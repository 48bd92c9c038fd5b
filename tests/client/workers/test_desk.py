"""Single rules of the desk, by a clock of numbers."""

from __future__ import annotations

from datetime import timedelta

from delaylog.client.errors import AnswerLost, NotReached, api_error
from delaylog.client.handlers import Reject, Retry
from delaylog.client.hooks import NO_HOOKS, Hooks
from delaylog.client.message import LeasedMessage
from delaylog.client.models import Settled
from delaylog.client.workers.consumer import Backoff, Consumer
from delaylog.client.workers.desk import UNSETTLED_MAX, Desk
from delaylog.client.workers.leases import Held, KeyGate
from delaylog.client.workers.settlements import CARRIED_MAX, Settlement, Verb
from tests.client.rows import received

LEASE_S = 30.0
REFUSED = api_error(404, {"code": "unknown", "detail": "there is no such call"})


class Losses(Hooks):
    def __init__(self) -> None:
        self.refs: list[int] = []

    def on_lease_lost(self, message: LeasedMessage) -> None:
        self.refs.append(message.ref)


def make_desk(
    *, gate: KeyGate | None = None, hooks: Hooks = NO_HOOKS, ports: int = 1, **members: object
) -> Desk:
    consumer = Consumer(topic="t", handler=print, **members)  # type: ignore[arg-type]
    return Desk(consumer, ports=ports, gate=gate or KeyGate(), hooks=hooks, chance=lambda: 0.0)


def begin(desk: Desk, now_s: float = 0.0) -> Held:
    held = desk.begin(now_s)
    assert held is not None
    return held


def settlements(desk: Desk) -> list[tuple[Verb, int | None, list[int]]]:
    return [
        (each.verb, each.decision.delay_ms, [held.message.ref for held in each.held])
        for each in desk.settlements(0, 0.0, everything=True)
    ]


def test_a_message_is_acked_when_its_handler_has_returned() -> None:
    desk = make_desk()
    desk.take_in(0, received([1, 2]), 0.0)
    first = begin(desk)
    assert settlements(desk) == []
    desk.done(first, 0.1, 0.1)
    assert settlements(desk) == [(Verb.ACK, None, [1])]
    assert (desk.waiting, desk.running, desk.unsettled) == (1, 0, 1)


def test_of_one_key_only_one_runs_also_when_it_came_twice() -> None:
    desk = make_desk()
    desk.take_in(0, received([1, 2], keys=["a", "b"], lease=1), 0.0)
    desk.take_in(0, received([1, 3], keys=["a", "a"], lease=2), 0.0)
    running = [begin(desk), begin(desk)]
    assert [held.message.ref for held in running] == [1, 2]
    assert desk.begin(0.0) is None
    desk.done(running[0], 0.1, 0.1)
    again = begin(desk)
    assert (again.message.ref, again.message.lease) == (1, 2)
    assert desk.begin(0.0) is None
    desk.done(again, 0.1, 0.1)
    assert begin(desk).message.ref == 3


def test_a_message_without_a_key_does_not_run_beside_itself() -> None:
    desk = make_desk()
    desk.take_in(0, received([1], lease=1), 0.0)
    first = begin(desk)
    desk.take_in(0, received([1, 2], lease=2), 1.0)
    assert begin(desk).message.ref == 2
    assert desk.begin(1.0) is None
    desk.done(first, 1.0, 1.0)
    assert begin(desk).message.lease == 2


def test_the_same_ref_of_two_shards_are_two_messages() -> None:
    desk = make_desk(ports=2)
    desk.take_in(0, received([1]), 0.0)
    desk.take_in(1, received([1]), 0.0)
    begin(desk)
    assert begin(desk).hold.port == 1


def test_consumers_that_share_a_gate_wait_for_one_another() -> None:
    gate = KeyGate()
    left, right = make_desk(gate=gate), make_desk(gate=gate)
    left.take_in(0, received([1], keys=["a"]), 0.0)
    right.take_in(0, received([2], keys=["a"]), 0.0)
    woken: list[int] = []
    right.on_ready = woken.append
    first = begin(left)
    assert right.begin(0.0) is None
    left.done(first, 0.1, 0.1)
    assert woken == [1]
    assert begin(right).message.ref == 2


def test_a_message_whose_lease_is_over_is_dropped_before_it_begins() -> None:
    losses = Losses()
    desk = make_desk(hooks=losses)
    desk.take_in(0, received([1]), 0.0)
    assert desk.begin(LEASE_S) is None
    assert (desk.waiting, settlements(desk), losses.refs) == (0, [], [])


def test_a_lease_that_is_lost_under_a_handler_is_told_and_nothing_is_acked() -> None:
    losses = Losses()
    desk = make_desk(hooks=losses)
    desk.take_in(0, received([1, 2]), 0.0)
    held = begin(desk)
    ((hold, asked),) = desk.extensions(0, LEASE_S / 2)
    assert {each.message.ref for each in asked} == {1, 2}
    desk.extended(hold, asked, [Settled.GONE, Settled.GONE], LEASE_S / 2)
    assert losses.refs == [1]
    assert held.message.lease_lost
    assert desk.begin(LEASE_S / 2) is None
    desk.done(held, 20.0, 20.0)
    assert settlements(desk) == []
    assert (desk.waiting, desk.running) == (0, 0)


def test_a_lease_that_nobody_extends_is_lost_when_its_time_has_passed() -> None:
    losses = Losses()
    desk = make_desk(hooks=losses)
    desk.take_in(0, received([1]), 0.0)
    begin(desk)
    ((hold, _),) = desk.extensions(0, LEASE_S / 2)
    desk.not_extended(hold, LEASE_S)
    assert desk.extensions(0, LEASE_S) == []
    assert losses.refs == [1]


def test_what_was_acked_meanwhile_is_gone_and_nobodys_loss() -> None:
    losses = Losses()
    desk = make_desk(hooks=losses)
    desk.take_in(0, received([1]), 0.0)
    held = begin(desk)
    ((hold, asked),) = desk.extensions(0, LEASE_S / 2)
    desk.done(held, 15.0, 15.0)
    desk.extended(hold, asked, [Settled.GONE], LEASE_S / 2)
    assert losses.refs == []
    assert desk.extensions(0, LEASE_S) == []


def test_an_ack_that_comes_too_late_is_a_lost_lease_unless_it_was_repeated() -> None:
    losses = Losses()
    desk = make_desk(hooks=losses)
    desk.take_in(0, received([1, 2]), 0.0)
    desk.done(begin(desk), 0.1, 0.1)
    (call,) = desk.settlements(0, 0.0, everything=True)
    desk.settled(call, [Settled.GONE])
    desk.done(begin(desk), 0.1, 0.1)
    (call,) = desk.settlements(0, 0.0, everything=True)
    call.maybe_done = True
    desk.settled(call, [Settled.GONE])
    assert losses.refs == [1]
    assert desk.unsettled == 0


def test_who_says_when_a_failed_message_comes_again() -> None:
    error = RuntimeError()
    for members, raised, asked_ms, wanted_ms in (
        ({}, error, None, None),
        ({}, Retry(), None, None),
        ({}, Retry(delay=timedelta(milliseconds=7)), None, 7),
        ({}, error, 9, 9),
        ({"backoff": Backoff(first=timedelta(milliseconds=50))}, error, None, 100),
        ({"backoff": Backoff(first=timedelta(milliseconds=50))}, error, 0, 0),
        (
            {"backoff": Backoff(first=timedelta(milliseconds=50))},
            Retry(delay=timedelta(milliseconds=7)),
            None,
            7,
        ),
        ({"backoff": Backoff(first=timedelta(milliseconds=50))}, Retry(), None, 100),
    ):
        desk = make_desk(**members)
        desk.take_in(0, received([1], attempts=2), 0.0)
        desk.failed([begin(desk)], raised, 0.1, 0.1, delay_ms=asked_ms)
        assert settlements(desk) == [(Verb.NACK, wanted_ms, [1])]


def test_a_stop_gives_back_what_was_not_begun_parked_or_not() -> None:
    desk = make_desk()
    desk.take_in(0, received([1, 2, 3], keys=["a", "a", "b"]), 0.0)
    first = begin(desk)
    third = begin(desk)
    assert third.message.ref == 3
    desk.take_in(0, received([4], lease=2), 0.0)
    desk.give_back_waiting(0.1)
    assert settlements(desk) == [(Verb.GIVE_BACK, None, [4, 2])]
    desk.done(first, 0.1, 0.1)
    assert desk.begin(0.2) is None
    assert settlements(desk) == [(Verb.ACK, None, [1])]
    assert desk.waiting == 0


def test_what_an_abandoned_handler_decides_counts_no_more() -> None:
    desk = make_desk()
    desk.take_in(0, received([1]), 0.0)
    held = begin(desk)
    abandoned = desk.abandon([held])
    assert held.message.lease_lost
    desk.give_back(abandoned, 0.1)
    desk.done(held, 0.2, 0.2)
    assert settlements(desk) == [(Verb.NACK, 0, [1])], "it was begun"
    assert desk.running == 0


def test_a_shard_is_asked_again_when_half_of_its_window_is_used_up() -> None:
    desk = make_desk(concurrency=1)
    told: list[int] = []
    desk.on_room = told.append
    assert desk.ask(0) == 1
    desk.take_in(0, received([1]), 0.0)
    assert desk.ask(0) == 0
    held = begin(desk)
    assert told == [0]
    assert desk.ask(0) == 0
    desk.done(held, 10.0, 10.0)
    assert desk.begin(10.0) is None
    assert told == [0, 0]
    assert desk.ask(0) == 1


def test_nothing_is_asked_for_while_too_many_acks_are_not_answered() -> None:
    desk = make_desk()
    told: list[int] = []
    desk.on_room = told.append
    calls: list[Settlement] = []
    for lease in range(UNSETTLED_MAX // 1000):
        desk.take_in(0, received(range(lease * 1000, lease * 1000 + 1000), lease=lease), 0.0)
        while (held := desk.begin(0.0)) is not None:
            desk.done(held, 0.0, 0.0)
        calls += desk.settlements(0, 0.0, everything=True)
    assert desk.ask(0) == 0
    told.clear()
    desk.settled(calls[0], [Settled.DONE] * len(calls[0].held))
    assert told == [0]
    assert desk.ask(0) > 0


def test_acks_go_with_a_receive_unless_they_are_many_or_the_broker_knows_no_such_call() -> None:
    desk = make_desk(concurrency=200)
    told: list[int] = []
    desk.on_settle = told.append

    def handle(count: int) -> None:
        desk.take_in(0, received(range(count)), 0.0)
        while (held := desk.begin(0.0)) is not None:
            desk.done(held, 0.1, 0.1)
        told.clear()

    assert desk.acks_to_carry(0) is None
    handle(CARRIED_MAX + 1)
    assert desk.acks_to_carry(0) is None
    assert len(settlements(desk)) == 1
    for error, maybe_done in ((NotReached("away"), False), (AnswerLost("cut off"), True)):
        handle(2)
        acks = desk.acks_to_carry(0)
        assert acks is not None
        assert settlements(desk) == []
        assert not desk.not_carried(acks, error, 0.2)
        assert (acks.maybe_done, told) == (maybe_done, [0])
        assert settlements(desk) == [(Verb.ACK, None, [0, 1])]
    handle(2)
    acks = desk.acks_to_carry(0)
    assert acks is not None
    assert desk.not_carried(acks, REFUSED, 0.2), "the receive is made without them"
    assert not acks.maybe_done
    assert settlements(desk) == [(Verb.ACK, None, [0, 1])]
    handle(2)
    assert desk.acks_to_carry(0) is None


def test_a_rejected_message_is_dead_and_asks_for_no_delay() -> None:
    desk = make_desk(backoff=Backoff(first=timedelta(milliseconds=5)))
    desk.take_in(0, received([1]), 0.0)
    desk.failed([begin(desk)], Reject("never"), 0.1, 0.1)
    assert settlements(desk) == [(Verb.REJECT, None, [1])]


def test_a_message_that_its_handler_settled_is_left_alone() -> None:
    """However the handler ends, and while an extension of its lease is on its way."""
    losses = Losses()
    desk = make_desk(hooks=losses)
    desk.take_in(0, received([1, 2, 3, 4]), 0.0)
    held = [begin(desk) for _ in range(4)]
    for each in held:
        each.message.settled = True
    ((hold, asked),) = desk.extensions(0, LEASE_S / 2)
    desk.extended(hold, asked, [Settled.GONE] * 4, LEASE_S / 2)
    desk.done(held[0], 0.1, 0.1)
    desk.batch_done(held[1:2], 0.1, 0.1)
    desk.failed(held[2:3], RuntimeError(), 0.1, 0.1)
    assert desk.abandon(held[3:]) == []
    assert (settlements(desk), losses.refs, desk.running) == ([], [], 1)
    assert not any(each.message.lease_lost for each in held)


def test_an_abandoned_message_can_count_as_failed() -> None:
    desk = make_desk(backoff=Backoff(first=timedelta(milliseconds=5)))
    desk.take_in(0, received([1, 2]), 0.0)
    held = [begin(desk), begin(desk)]
    abandoned = desk.abandon(held)
    desk.abandoned_failed(abandoned[:1], RuntimeError(), 1.0)
    desk.abandoned_failed(abandoned[1:], RuntimeError(), 1.0, delay_ms=70)
    desk.batch_done(held, 9.0, 9.0)
    assert settlements(desk) == [(Verb.NACK, 5, [1]), (Verb.NACK, 70, [2])]
    assert desk.running == 0


def test_the_reason_of_a_failure_goes_with_its_settlement() -> None:
    desk = make_desk(concurrency=4)
    desk.take_in(0, received([1, 2, 3, 4]), 0.0)
    for error in (ValueError("no"), ValueError("no"), Reject("gone"), Retry()):
        desk.failed([begin(desk)], error, 0.1, 0.1)
    calls = desk.settlements(0, 0.0, everything=True)
    assert [(*call.call, len(call.held)) for call in calls] == [
        ("nack", {"delay_ms": None, "reason": "ValueError: no"}, 2),
        ("reject", {"reason": "gone"}, 1),
        ("nack", {"delay_ms": None, "reason": None}, 1),
    ]
