"""A lane against a broker that loses answers, refuses rows, is over quota, and dies.

The model: every message ends exactly once, as sent or as failed; what was sent is there once; what
is certain not to be there is not; messages that arrived stand in the order they were queued.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.client.errors import (
    AnswerLate,
    AnswerLost,
    ApiError,
    BadRequest,
    DiskFull,
    NotReached,
    NotReachedInTime,
    QuotaExceeded,
    api_error,
)
from delaylog.client.models import Sent
from delaylog.client.sending.batch import Batch, make_row
from delaylog.client.sending.lane import Lane, Limit, Numbering
from delaylog.client.wire.bulk import SendAnswer
from tests.client.sending.fake_broker import REFUSED, REFUSED_UNNAMED, FakeBroker, Fault
from tests.effort import tries

FAULTS: list[Fault] = [
    "none",
    "unreached",
    "lost_before",
    "lost_after",
    "not_ready",
    "not_ready_after",
    "quota",
]


class Carrier:
    """Carries a lane's requests to a broker by its own clock."""

    def __init__(
        self,
        broker: FakeBroker,
        *,
        retry_for_s: float = 60.0,
        batch_max: int = 8,
        of_calls: bool = False,
    ) -> None:
        self.broker = broker
        self.now_s = 100.0
        self.batch_max = batch_max
        self.lane = Lane(
            "t", Numbering("p"), limit=Limit(retry_for_s, of_calls, of_calls), random=lambda: 1.0
        )
        self.rows: list[tuple[Batch, int, bytes]] = []

    def queue(self, body: bytes, **members: object) -> None:
        _, kind, time_ms, rest = make_row(body, **members)  # type: ignore[arg-type]
        batch = self.lane.open
        if batch is None or batch.kind != kind or len(batch.bodies) >= self.batch_max:
            batch = self.lane.begin(kind, self.now_s)
        self.rows.append((batch, batch.add(body, time_ms, rest), body))

    def step(self) -> bool:
        """One exchange; False when nothing waits."""
        attempt = self.lane.attempt()
        if attempt is None:
            return False
        left_s = self.lane.left_s(self.now_s)
        if left_s is not None and left_s <= 0:
            self.lane.expire()
            return True
        try:
            answer = self.broker.send("t", attempt.wire)
        except (NotReached, AnswerLost, ApiError) as error:
            self.now_s += self.lane.failed(error, self.now_s).pause_s
        else:
            assert self.lane.answered(answer, self.now_s) is None
        self.now_s += 0.001
        return True

    def run(self) -> None:
        while self.step():
            pass

    def outcomes(self) -> list[Sent | BaseException]:
        return [batch.outcome(row) for batch, row, _ in self.rows]


MS = timedelta(milliseconds=1)
BODIES = st.sampled_from([b"plain"] * 6 + [REFUSED, REFUSED_UNNAMED])
KINDS = st.sampled_from([{"delay": MS}, {"deliver_at_ms": 10**12}, {"delay": MS, "merge": "keep"}])


@settings(max_examples=tries(300), deadline=None)
@given(
    rows=st.lists(st.tuples(BODIES, KINDS, st.booleans()), min_size=1, max_size=40),
    faults=st.lists(st.sampled_from(FAULTS), max_size=60),
    quota_rows=st.none() | st.integers(1, 5),
    retry_for_s=st.sampled_from([0.0, 1.0, 60.0]),
    of_calls=st.booleans(),
)
def test_every_row_ends_once_and_nothing_is_there_twice(
    rows: list[tuple[bytes, dict[str, object], bool]],
    faults: list[Fault],
    quota_rows: int | None,
    retry_for_s: float,
    of_calls: bool,
) -> None:
    left = list(faults)
    broker = FakeBroker(lambda: left.pop() if left else "none", quota_rows=quota_rows)
    carrier = Carrier(broker, retry_for_s=retry_for_s, of_calls=of_calls)
    for number, (body, members, step) in enumerate(rows):
        unique = body if body.startswith(REFUSED) else b"%d" % number
        carrier.queue(unique, **members)
        if step:
            carrier.step()
    carrier.run()
    there = [body for _, body in broker.taken]
    assert len(set(there)) == len(there)
    assert there == sorted(there, key=int)
    for (_, _, body), outcome in zip(carrier.rows, carrier.outcomes(), strict=True):
        if isinstance(outcome, Sent):
            assert broker.taken[outcome.deliver_at_ms // 10][1] == body
        elif not isinstance(outcome, AnswerLost):
            assert body not in there
        # Callers are told that the time is over; a refusal ends a send before that.
        assert not of_calls or type(outcome) is not NotReached
    assert carrier.lane.idle


def test_a_refused_row_fails_alone_and_the_others_go_on() -> None:
    carrier = Carrier(FakeBroker())
    for body in (b"0", REFUSED, b"2", REFUSED, b"4"):
        carrier.queue(body)
    carrier.run()
    kinds = [type(outcome) for outcome in carrier.outcomes()]
    assert kinds == [Sent, BadRequest, Sent, BadRequest, Sent]
    # Two refusals name their rows, the third request takes the rest.
    assert carrier.broker.requests == 3


def test_where_the_refusal_names_no_row_the_batch_is_halved_until_it_is_found() -> None:
    carrier = Carrier(FakeBroker(), batch_max=100)
    for number in range(64):
        carrier.queue(REFUSED_UNNAMED if number == 37 else b"%d" % number)
    carrier.run()
    failed = [n for n, each in enumerate(carrier.outcomes()) if not isinstance(each, Sent)]
    assert failed == [37]
    assert carrier.broker.requests < 20


def test_a_refusal_of_the_body_as_a_whole_is_not_tried_in_parts() -> None:
    carrier = Carrier(FakeBroker())
    for number in range(8):
        carrier.queue(b"%d" % number)
    carrier.lane.attempt()
    verdict = carrier.lane.failed(api_error(400, {"code": "bad_request", "field": "topic"}), 0.0)
    assert verdict.rows_failed == 8
    assert carrier.lane.idle


def test_rows_that_may_be_there_are_not_sent_in_another_shape() -> None:
    # The answer was lost, and the repeat is refused: whether the first came through nobody knows,
    # so its rows must not go out under another sequence.
    carrier = Carrier(FakeBroker())
    carrier.queue(b"0")
    carrier.queue(b"1")
    carrier.lane.attempt()
    carrier.lane.failed(AnswerLost("cut off"), carrier.now_s)
    carrier.lane.attempt()
    refusal = api_error(400, {"code": "bad_request", "field": "id", "item": 1})
    carrier.lane.failed(refusal, carrier.now_s)
    assert carrier.lane.idle
    assert [type(each) for each in carrier.outcomes()] == [AnswerLost, AnswerLost]
    assert carrier.outcomes()[0].__cause__ is refusal  # type: ignore[union-attr]


def test_it_is_tried_for_so_long_and_then_told_as_it_is() -> None:
    carrier = Carrier(FakeBroker(lambda: "unreached"), retry_for_s=10.0)
    carrier.queue(b"0")
    began_s = carrier.now_s
    carrier.run()
    assert isinstance(carrier.outcomes()[0], NotReached)
    assert 10.0 <= carrier.now_s - began_s <= 10.1, "the last try is made when the time is over"
    faults: list[Fault] = ["lost_after"]
    carrier.broker.fault = lambda: faults.pop() if faults else "unreached"
    carrier.queue(b"1")
    carrier.run()
    assert isinstance(carrier.outcomes()[1], AnswerLost)
    assert carrier.broker.taken == [("t", b"1")]


def test_callers_that_wait_are_told_within_their_time_limit() -> None:
    faults: list[Fault] = ["unreached"] * 50
    carrier = Carrier(FakeBroker(faults.pop), retry_for_s=10.0, of_calls=True)
    carrier.queue(b"0")
    carrier.step()
    carrier.now_s += 2.0
    carrier.queue(b"1")
    carrier.run()
    first, second = carrier.outcomes()
    assert type(first) is type(second) is NotReachedInTime
    assert str(first).endswith("nobody there (time limit 10 s): nothing was sent")
    assert carrier.now_s <= 100.0 + 2.0 + 10.0
    faults[:] = ["unreached"] * 50 + ["lost_after"]
    carrier.queue(b"2")
    carrier.run()
    assert type(carrier.outcomes()[2]) is AnswerLate
    assert str(carrier.outcomes()[2]).endswith("(time limit 10 s): the message may exist")


def test_what_was_not_tried_in_its_time_is_nowhere() -> None:
    carrier = Carrier(FakeBroker(), retry_for_s=10.0, of_calls=True)
    carrier.queue(b"0")
    carrier.now_s += 10.0
    carrier.run()
    assert type(carrier.outcomes()[0]) is NotReachedInTime
    assert carrier.broker.requests == 0


def test_what_waits_behind_a_batch_that_failed_does_not_wait_as_long_again() -> None:
    carrier = Carrier(FakeBroker(lambda: "unreached"), retry_for_s=10.0, batch_max=1)
    for number in range(20):
        carrier.queue(b"%d" % number)
    carrier.run()
    assert carrier.now_s - 100.0 < 15.0
    assert all(isinstance(each, NotReached) for each in carrier.outcomes())


def test_a_batch_that_waits_while_others_are_answered_is_not_late() -> None:
    carrier = Carrier(FakeBroker(), retry_for_s=10.0, batch_max=1)
    carrier.queue(b"0")
    carrier.queue(b"1")
    carrier.now_s += 60.0
    carrier.step()
    faults: list[Fault] = ["unreached", "unreached"]
    carrier.broker.fault = lambda: faults.pop() if faults else "none"
    carrier.run()
    assert [body for _, body in carrier.broker.taken] == [b"0", b"1"]


def test_a_quota_that_takes_a_part_gets_parts() -> None:
    carrier = Carrier(FakeBroker(quota_rows=3), batch_max=100)
    for number in range(50):
        carrier.queue(b"%d" % number)
    carrier.run()
    assert [int(body) for _, body in carrier.broker.taken] == list(range(50))


@pytest.mark.parametrize("limit", [True, False])
def test_a_limit_of_calls_does_not_divide_a_batch(*, limit: bool) -> None:
    """Each part would be a call, and wait for the next second. A quota of a topic names itself."""
    faults: list[Fault] = ["quota"]
    broker = FakeBroker(lambda: faults.pop() if faults else "none", names_quota=not limit)
    carrier = Carrier(broker, batch_max=100)
    for number in range(50):
        carrier.queue(b"%d" % number)
    carrier.run()
    assert [int(body) for _, body in broker.taken] == list(range(50))
    assert (broker.requests, carrier.now_s >= 100.5) == ((2, True) if limit else (3, False))


def test_a_wait_that_a_quota_asks_for_and_that_is_too_long_fails_that_row_at_once() -> None:
    carrier = Carrier(FakeBroker())
    carrier.queue(b"far ahead")
    carrier.lane.attempt()
    verdict = carrier.lane.failed(api_error(429, {"code": "quota"}, 86_400.0), carrier.now_s)
    assert verdict.rows_failed == 1
    assert isinstance(carrier.outcomes()[0], QuotaExceeded)


@pytest.mark.parametrize(
    "error",
    [AnswerLost("cut off"), api_error(503, {"code": "not_ready"}), api_error(502, {})],
    ids=["lost", "not ready", "proxy"],
)
def test_parts_that_were_not_sent_are_nowhere_when_the_part_before_them_is_in_doubt(
    error: Exception,
) -> None:
    """A batch is split only if its request was not carried out, so that its parts do not exist."""
    carrier = Carrier(FakeBroker(), retry_for_s=10.0)
    carrier.queue(b"0")
    carrier.queue(b"1")
    carrier.lane.attempt()
    carrier.lane.failed(api_error(429, {"code": "quota"}), carrier.now_s)
    carrier.now_s += 11.0
    carrier.lane.attempt()
    assert carrier.lane.failed(error, carrier.now_s).rows_failed == 2
    assert [type(each) for each in carrier.outcomes()] == [AnswerLost, NotReached]


def test_a_full_disk_fails_the_rows_at_once() -> None:
    carrier = Carrier(FakeBroker())
    carrier.queue(b"0")
    carrier.lane.attempt()
    carrier.lane.failed(api_error(507, {"code": "disk_full"}, 1.0), carrier.now_s)
    assert isinstance(carrier.outcomes()[0], DiskFull)


def test_an_answer_about_another_number_of_rows_counts_as_lost() -> None:
    carrier = Carrier(FakeBroker())
    carrier.queue(b"0")
    attempt = carrier.lane.attempt()
    assert attempt is not None
    one = carrier.broker.send("t", attempt.wire)
    wrong = SendAnswer(2, one.refs, one.deliver_at_ms, one.result)
    assert isinstance(carrier.lane.answered(wrong, 0.0), AnswerLost)
    assert carrier.lane.attempt() is attempt


@pytest.mark.parametrize("in_flight", [True, False])
def test_giving_up_is_never_more_certain_than_it_is(in_flight: bool) -> None:
    carrier = Carrier(FakeBroker(), batch_max=2)
    for number in range(5):
        carrier.queue(b"%d" % number)
    carrier.lane.attempt()
    error = NotReached("closed")
    assert [rows for _, rows in carrier.lane.give_up(error, in_flight=in_flight)] == [2, 2, 1]
    first = AnswerLost if in_flight else NotReached
    kinds = [type(outcome) for outcome in carrier.outcomes()]
    assert kinds == [first, first, NotReached, NotReached, NotReached]
    assert carrier.lane.idle


def test_only_a_batch_that_is_certainly_nowhere_may_go_to_another_shard() -> None:
    broker = FakeBroker()
    lane = Lane("t", Numbering("p"), limit=Limit(60.0), random=lambda: 1.0, free=True)
    batch = lane.begin(0, 0.0)
    batch.add(b"x", 1, None)
    assert lane.release_unreached() is None
    lane.attempt()
    lane.failed(NotReached(""), 0.0)
    assert lane.release_unreached() is batch
    assert lane.idle
    lane.adopt(batch)
    lane.attempt()
    lane.failed(AnswerLost(""), 0.0)
    assert lane.release_unreached() is None
    attempt = lane.attempt()
    assert attempt is not None
    assert lane.answered(broker.send("t", attempt.wire), 0.0) is None


def test_an_error_that_no_broker_says_tells_nothing_of_the_rows() -> None:
    """A proxy's 502: the broker behind it may have taken them, so they are sent again as they are.

    A broker's own errors have a code.
    """
    carrier = Carrier(FakeBroker(), retry_for_s=10.0)
    carrier.queue(b"0")
    carrier.queue(b"1")
    first = carrier.lane.attempt()
    assert first is not None
    carrier.broker.send("t", first.wire)
    carrier.lane.failed(api_error(502, {"detail": "<html>"}), carrier.now_s)
    assert carrier.lane.attempt() is first
    carrier.run()
    assert all(isinstance(each, Sent) for each in carrier.outcomes())
    assert carrier.broker.taken == [("t", b"0"), ("t", b"1")]
    carrier.queue(b"2")
    while carrier.lane.attempt() is not None:
        verdict = carrier.lane.failed(api_error(504, {}), carrier.now_s)
        carrier.now_s += verdict.pause_s + 0.001
    assert isinstance(carrier.outcomes()[2], AnswerLost)
