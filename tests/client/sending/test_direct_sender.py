"""DirectSender over a broker in memory: one call, one request, from any number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from delaylog.client.errors import AnswerLate, AnswerLost, BadRequest, NotReachedInTime
from delaylog.client.models import Sent
from delaylog.client.sending.batch import make_row
from delaylog.client.sending.direct_sender import DirectSender
from delaylog.client.sending.outbox import Outbox, SendLimits
from tests.client.sending.fake_broker import REFUSED, FakeBroker


def sender(**limits: float) -> tuple[DirectSender, list[float]]:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    outbox = Outbox(SendLimits(**limits), random=lambda: 1.0)  # type: ignore[arg-type]
    return DirectSender(outbox, clock=lambda: now[0], sleep=sleep), now


def test_a_send_is_one_request_and_its_repeats_add_nothing() -> None:
    faults = ["unreached", "lost_after", "not_ready_after"]
    broker = FakeBroker(lambda: faults.pop(0) if faults else "none")  # type: ignore[return-value,arg-type]
    direct, now = sender()
    sent = direct.send("t", make_row(b"x", id="a"), [("one", broker.send)], 60.0)
    assert sent == Sent("a", 0, "created", "one")
    assert [body for _, body in broker.taken] == [b"x"]
    assert broker.requests == 4
    assert now[0] > 0


def test_sends_of_many_threads_are_all_there_once() -> None:
    broker = FakeBroker()
    direct, _ = sender()

    def send(number: int) -> Sent:
        return direct.send("t", make_row(b"%d" % number), [("one", broker.send)], 60.0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(400)))
    assert sorted(int(body) for _, body in broker.taken) == list(range(400))


def test_many_rows_go_in_few_requests_and_each_has_its_end() -> None:
    broker = FakeBroker()
    direct, _ = sender(batch_max=10)
    rows = [make_row(REFUSED if n == 13 else b"%d" % n) for n in range(25)]
    outcomes = direct.send_rows("t", rows, [("one", broker.send)], 60.0)
    assert [n for n, each in enumerate(outcomes) if not isinstance(each, Sent)] == [13]
    assert isinstance(outcomes[13], BadRequest)
    assert [int(body) for _, body in broker.taken] == [n for n in range(25) if n != 13]
    assert broker.requests == 4


def test_it_goes_to_the_next_shard_only_while_it_is_certainly_nowhere() -> None:
    dead, alive = FakeBroker(lambda: "unreached"), FakeBroker()
    direct, _ = sender()
    places = [("dead", dead.send), ("alive", alive.send)]
    assert direct.send("t", make_row(b"a"), places, 60.0).shard == "alive"
    # For a while the dead one is not even asked.
    assert direct.send("t", make_row(b"b"), places, 60.0).shard == "alive"
    assert dead.requests == 1
    faults = ["lost_after", "unreached", "unreached"]
    doubtful = FakeBroker(lambda: faults.pop(0) if faults else "none")  # type: ignore[return-value,arg-type]
    places = [("doubtful", doubtful.send), ("alive", alive.send)]
    assert direct.send("t", make_row(b"c"), places, 60.0).shard == "doubtful"
    assert [body for _, body in alive.taken] == [b"a", b"b"]
    assert [body for _, body in doubtful.taken] == [b"c"]


def test_each_part_of_a_divided_batch_names_its_own_shard() -> None:
    """Or a cancel by the id that the second shard has made goes to the first one."""
    faults = ["none", "none", "unreached"]
    first = FakeBroker(lambda: faults.pop(0), quota_rows=1, names_quota=True)  # type: ignore[return-value,arg-type]
    direct, _ = sender()
    places = [("first", first.send), ("second", FakeBroker().send)]
    outcomes = direct.send_rows("t", [make_row(b"a"), make_row(b"b")], places, 60.0)
    assert [each.shard for each in outcomes if isinstance(each, Sent)] == ["first", "second"]


def test_all_shards_down_is_told_within_the_time_limit() -> None:
    dead = FakeBroker(lambda: "unreached")
    direct, now = sender()
    with pytest.raises(NotReachedInTime):
        direct.send("t", make_row(b"a"), [("one", dead.send), ("two", dead.send)], 5.0)
    assert now[0] == pytest.approx(4.5), "the last try has half a second"
    assert dead.limits_s == sorted(dead.limits_s, reverse=True)
    assert (dead.limits_s[0], dead.limits_s[-1]) == (5.0, pytest.approx(0.5))


def test_the_time_limit_is_that_of_each_request() -> None:
    """Of a broker that is slow but answers, many messages may take longer in all."""
    broker = FakeBroker()
    direct, now = sender(batch_max=1)

    def slow(topic: str, wire: bytes, on_repeat: object, limit_s: float) -> object:
        assert limit_s == 5.0
        now[0] += 4.0
        return broker.send(topic, wire)

    rows = [make_row(b"%d" % n) for n in range(5)]
    outcomes = direct.send_rows("t", rows, [("one", slow)], 5.0)  # type: ignore[list-item]
    assert all(isinstance(each, Sent) for each in outcomes)
    assert now[0] == 20.0


def test_what_is_behind_a_request_that_took_the_time_is_not_tried() -> None:
    direct, now = sender(batch_max=1)
    asked = []

    def mute(topic: str, wire: bytes, on_repeat: object, limit_s: float) -> object:
        asked.append(wire)
        now[0] += limit_s
        raise AnswerLost("no answer")

    rows = [make_row(b"%d" % n) for n in range(3)]
    outcomes = direct.send_rows("t", rows, [("one", mute)], 5.0)  # type: ignore[list-item]
    assert [type(each) for each in outcomes] == [AnswerLate, NotReachedInTime, NotReachedInTime]
    assert len(asked) == 1
    assert now[0] == 5.0


def test_an_interrupted_call_leaves_a_numbering_that_can_be_used() -> None:
    broker = FakeBroker()
    direct, _ = sender()

    def interrupted(topic: str, wire: bytes, *_: object) -> object:
        broker.send(topic, wire)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        direct.send("t", make_row(b"a"), [("one", interrupted)], 60.0)  # type: ignore[list-item]
    direct.send("t", make_row(b"b"), [("one", broker.send)], 60.0)
    assert [body for _, body in broker.taken] == [b"a", b"b"]
