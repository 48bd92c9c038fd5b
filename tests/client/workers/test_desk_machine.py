"""All rules of the desk together under Hypothesis, by a clock of numbers."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from delaylog.client.errors import NotReached
from delaylog.client.models import Settled
from delaylog.client.workers.leases import Held, Hold
from delaylog.client.workers.settlements import Settlement, Verb
from tests.client.rows import received
from tests.client.workers.test_desk import REFUSED, Losses, make_desk


class AnyOrder(RuleBasedStateMachine):
    """A broker of a few messages, a clock, and handlers that end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.losses = Losses()
        self.desk = make_desk(hooks=self.losses, concurrency=3)
        self.running: list[Held] = []
        self.extending: list[tuple[Hold, Sequence[Held], float]] = []
        self.calls: list[Settlement] = []
        self.decided: set[int] = set()
        self.lease = 0
        self.taken = 0

    @rule(
        keys=st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=4),
        begun=st.sampled_from([None, 0, 1]),
    )
    def receive(self, keys: list[str], begun: int | None) -> None:
        self.lease += 1
        refs = list(range(self.taken, self.taken + len(keys)))
        self.taken += len(keys)
        self.desk.take_in(0, received(refs, keys=keys, lease=self.lease), self.now_s, begun)

    @rule(result=st.sampled_from([Settled.DONE, Settled.GONE, None]))
    def begin_attempts(self, result: Settled | None) -> None:
        asked = self.desk.to_begin(0, self.now_s)
        if not asked:
            return
        if result is None:
            self.desk.not_begun(0)
        else:
            self.desk.begun(0, [result] * len(asked), 0.0)

    @rule(seconds=st.sampled_from([0.001, 1.0, 14.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def begin(self) -> None:
        held = self.desk.begin(self.now_s)
        if held is not None:
            assert self.now_s < held.hold.until_s
            assert not held.message.lease_lost
            self.running.append(held)

    @rule(data=st.data(), fails=st.booleans())
    def end(self, data: st.DataObject, fails: bool) -> None:
        if not self.running:
            return
        held = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if fails:
            self.desk.failed([held], RuntimeError(), 0.1, self.now_s)
        else:
            self.desk.done(held, 0.1, self.now_s)

    @rule()
    def ask_to_extend(self) -> None:
        for hold, asked in self.desk.extensions(0, self.now_s):
            self.extending.append((hold, asked, self.now_s))

    @rule(data=st.data())
    def answer_extension(self, data: st.DataObject) -> None:
        if not self.extending:
            return
        hold, asked, asked_at_s = self.extending.pop()
        answer = data.draw(st.sampled_from([Settled.DONE, Settled.GONE, None]))
        if answer is None:
            self.desk.not_extended(hold, self.now_s)
        else:
            self.desk.extended(hold, asked, [answer] * len(asked), asked_at_s)

    @rule()
    def settle(self) -> None:
        for call in self.desk.settlements(0, self.now_s):
            for held in call.held:
                assert id(held) not in self.decided, "settled twice"
                self.decided.add(id(held))
                if call.verb is not Verb.GIVE_BACK:
                    assert not held.message.lease_lost, "settled after its lease was lost"
            self.calls.append(call)

    @rule(answer=st.sampled_from([None, NotReached("away"), REFUSED]))
    def carry(self, answer: Exception | None) -> None:
        """Acks go with a receive, which may fail."""
        acks = self.desk.acks_to_carry(0)
        if acks is None:
            return
        assert acks.verb is Verb.ACK
        for held in acks.held:
            assert id(held) not in self.decided, "settled twice"
            assert not held.message.lease_lost, "settled after its lease was lost"
        if answer is None:
            self.decided.update(map(id, acks.held))
            self.desk.settled(acks, [Settled.DONE] * len(acks.held))
        else:
            self.desk.not_carried(acks, answer, self.now_s)

    @rule()
    def answer_settlement(self) -> None:
        if self.calls:
            call = self.calls.pop()
            self.desk.settled(call, [Settled.DONE] * len(call.held))

    @invariant()
    def one_of_a_key(self) -> None:
        identities = [held.identity for held in self.running]
        assert len(identities) == len(set(identities))
        assert self.desk.running == len(self.running)
        assert self.desk.waiting >= 0

    def teardown(self) -> None:
        """Whatever happened, everything comes to an end."""
        while True:
            for held in self.running:
                self.desk.done(held, 0.1, self.now_s)
            self.running.clear()
            held = self.desk.begin(self.now_s)
            asked = self.desk.to_begin(0, self.now_s)
            if asked:
                self.desk.begun(0, [Settled.DONE] * len(asked), 0.0)
            if held is not None:
                self.running.append(held)
            elif not asked:
                break
        assert (self.desk.waiting, self.desk.running) == (0, 0)
        self.now_s += 1.0
        self.calls += self.desk.settlements(0, self.now_s)
        while self.calls:
            self.answer_settlement()
        assert self.desk.unsettled == 0


TestAnyOrder = AnyOrder.TestCase
