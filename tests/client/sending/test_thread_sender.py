"""ThreadSender over a broker in memory: gathering, back pressure, forks, exits."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from delaylog.client.errors import AnswerLost, BadRequest, ClientError, NotReachedInTime
from delaylog.client.hooks import Hooks
from delaylog.client.sending.batch import make_row
from delaylog.client.sending.outbox import Outbox, SendLimits
from delaylog.client.sending.thread_sender import ThreadSender, ThreadSending
from delaylog.client.wire.bulk import SendAnswer
from delaylog.client.wire.exchange import OnRepeat
from tests.client.sending.fake_broker import REFUSED, FakeBroker
from tests.programs import forked, run_program, status_of

WAIT_S = 60.0
WAIT = timedelta(seconds=WAIT_S)


class Stage:
    """A sender whose requests wait until `gate` is open."""

    def __init__(self, limits: SendLimits | None = None) -> None:
        self.broker = FakeBroker()
        self.outbox = Outbox(limits or SendLimits(), random=lambda: 0.0)
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        self.sender = ThreadSender(self.post, self.outbox, lock=threading.RLock(), shard="here")

    def post(
        self,
        topic: str,
        wire: bytes,
        on_repeat: OnRepeat | None = None,
        limit_s: float | None = None,
    ) -> SendAnswer:
        self.asked.set()
        assert self.gate.wait(WAIT_S)
        return self.broker.send(topic, wire)

    def put(self, body: bytes, topic: str = "t", **members: Any) -> ThreadSending:
        return self.sender.put(topic, make_row(body, **members))

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self.broker.taken]


@pytest.fixture
def stages() -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(limits: SendLimits | None = None) -> Stage:
        made.append(Stage(limits))
        return made[-1]

    yield make
    for stage in made:
        stage.gate.set()
        stage.sender.abandon(ClientError("the test is over"))


def no_thread_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start of a thread fails, as on a machine that has too many."""
    real = threading.Thread.start

    def start(_: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", real)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def test_a_thread_that_cannot_be_started_is_started_with_the_next_message(
    stages: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stages()
    no_thread_once(monkeypatch)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        stage.put(b"refused")
    assert stage.outbox.rows == 0
    assert stage.put(b"sent").result(WAIT).result == "created"
    assert stage.bodies == [b"sent"]


def test_a_sender_without_a_thread_takes_nothing_over(
    stages: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stages()
    no_thread_once(monkeypatch)
    assert [stage.sender._can_send() for _ in range(2)] == [False, True]


def test_rows_gather_while_a_request_is_under_way(stages: Callable[..., Stage]) -> None:
    stage = stages()
    stage.gate.clear()
    first = stage.put(b"0", id="a")
    assert stage.asked.wait(WAIT_S)
    more = [stage.put(b"%d" % number) for number in range(1, 50)]
    assert not first.done()
    with pytest.raises(TimeoutError):
        first.result(timedelta(milliseconds=10))
    stage.gate.set()
    assert first.result(WAIT) == ("a", 0, "created", "here")
    assert [sending.result(WAIT).deliver_at_ms for sending in more] == [
        10 * number for number in range(1, 50)
    ]
    assert stage.broker.requests == 2


def test_many_threads_send_and_each_learns_its_own(stages: Callable[..., Stage]) -> None:
    stage = stages(SendLimits(batch_max=7, pending_max=20))

    def send(number: int) -> None:
        sent = stage.put(b"%d" % number, topic=f"t{number % 3}").result(WAIT)
        assert stage.bodies[sent.deliver_at_ms // 10] == b"%d" % number

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(500)))
    assert sorted(map(int, stage.bodies)) == list(range(500))


def test_who_puts_waits_for_room(stages: Callable[..., Stage]) -> None:
    stage = stages(SendLimits(batch_max=5, pending_max=10))
    stage.gate.clear()
    for number in range(10):
        stage.put(b"%d" % number)
    waited = threading.Thread(target=stage.put, args=(b"10",))
    waited.start()
    waited.join(0.05)
    assert waited.is_alive()
    stage.gate.set()
    waited.join(WAIT_S)
    stage.sender.flush(WAIT_S)
    assert stage.bodies == [b"%d" % number for number in range(11)]
    assert (stage.outbox.rows, stage.outbox.size_bytes) == (0, 0)


def test_flush_ends_the_linger_and_waits(stages: Callable[..., Stage]) -> None:
    stage = stages(SendLimits(linger=timedelta(minutes=1)))
    for number in range(3):
        stage.put(b"%d" % number)
    stage.gate.clear()
    with pytest.raises(TimeoutError):
        stage.sender.flush(0.01)
    stage.gate.set()
    stage.sender.flush(WAIT_S)
    assert stage.bodies == [b"0", b"1", b"2"]


def test_a_lane_that_pauses_does_not_hold_up_another(stages: Callable[..., Stage]) -> None:
    stage = stages()
    post = stage.broker.send
    stage.broker.fault = lambda: "unreached"
    paused = stage.put(b"paused")
    while stage.broker.requests < 3:
        time.sleep(0.001)

    def choosing(topic: str, wire: bytes) -> SendAnswer:
        stage.broker.fault = lambda: "unreached" if topic == "t" else "none"
        return post(topic, wire)

    stage.broker.send = choosing  # type: ignore[method-assign]
    assert stage.put(b"goes", topic="u").result(WAIT).result == "created"
    assert not paused.done()
    stage.broker.send = post  # type: ignore[method-assign]
    stage.broker.fault = lambda: "none"
    assert paused.result(WAIT).result == "created"


def test_failures_are_raised_to_who_asks_and_kept_for_who_does_not(
    stages: Callable[..., Stage],
) -> None:
    stage = stages()
    asked = stage.put(REFUSED)
    with pytest.raises(BadRequest):
        asked.result(WAIT)
    stage.put(REFUSED)
    stage.sender.flush(WAIT_S)
    unseen = stage.outbox.take_unseen()
    assert unseen is not None
    assert unseen.rows == 1


def test_who_refuses_sends_what_it_has_taken(stages: Callable[..., Stage]) -> None:
    """Nobody gets in between the flush of a close and its end, nor waits for room for ever."""
    limits = SendLimits(batch_max=1, pending_max=1)
    stage = stages(limits)
    stage.gate.clear()
    taken = stage.put(b"taken")
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(stage.put, b"waits for room")
        until_s = time.monotonic() + WAIT_S
        while not stage.outbox.room_waiters and time.monotonic() < until_s:
            time.sleep(0.001)
        stage.sender.refuse()
        with pytest.raises(ClientError, match="the client is closed"):
            late.result(WAIT_S)
    with pytest.raises(ClientError, match="the client is closed"):
        stage.put(b"late")
    stage.gate.set()
    stage.sender.flush(WAIT_S)
    assert taken.result(WAIT).result == "created"
    assert stage.bodies == [b"taken"]


def test_abandoning_says_what_may_be_there(stages: Callable[..., Stage]) -> None:
    stage = stages()
    stage.gate.clear()
    out = stage.put(b"out there")
    assert stage.asked.wait(WAIT_S)
    queued = stage.put(b"queued")
    stage.sender.abandon(ClientError("closed"))
    with pytest.raises(AnswerLost):
        out.result(timedelta(0))
    with pytest.raises(ClientError, match="closed"):
        queued.result(timedelta(0))
    with pytest.raises(ClientError, match="closed"):
        stage.put(b"late")
    stage.gate.set()


def test_a_forked_child_sends_its_own_and_the_parent_its_own(
    stages: Callable[..., Stage],
) -> None:
    """The child looks at what its copy of the broker got; the parent goes on meanwhile."""
    stage = stages(SendLimits(pending_max=10, batch_max=5))
    stage.put(b"before").result(WAIT)
    stage.gate.clear()
    stage.asked.clear()
    queued = [stage.put(b"%d" % number) for number in range(10)]
    assert stage.asked.wait(WAIT_S)

    def child() -> None:
        stage.gate.set()
        known = set(stage.broker.known)
        assert all(isinstance(each.exception(), ClientError) for each in queued)
        stage.put(b"child").result(WAIT)
        fresh = {name[1] for name in set(stage.broker.known) - known}
        assert fresh.isdisjoint(name[1] for name in known)
        assert stage.bodies == [b"before", b"child"]

    assert status_of(forked(child)) == 0
    stage.gate.set()
    for sending in queued:
        sending.result(WAIT)
    assert stage.bodies == [b"before", *(b"%d" % number for number in range(10))]


def test_a_fork_while_an_answer_is_noted_leaves_the_child_all_senders() -> None:
    """The thread that sends holds the lock then, and has counted rows whose outcome it lacks."""
    asked, gate = threading.Event(), threading.Event()

    def post(*_: object) -> SendAnswer:
        asked.set()
        gate.wait(WAIT_S)
        raise ClientError("the test is over")

    outbox, lock = Outbox(SendLimits()), threading.RLock()
    one, other = (ThreadSender(post, outbox, lock=lock, shard=name) for name in "ab")
    sending = one.put("t", make_row(b"x"))
    assert asked.wait(WAIT_S)
    sending._batch.left -= 1

    def look() -> None:
        assert lock not in (one._lock, other._lock)

    status = status_of(forked(look))
    sending._batch.left += 1
    gate.set()
    with pytest.raises(ClientError, match="the test is over"):
        sending.result(WAIT)
    assert status == 0


EXITING = """
import sys, threading, time
from delaylog.client.wire.bulk import SendAnswer
from delaylog.client.sending.outbox import Outbox, SendLimits
from delaylog.client.sending.batch import make_row
from delaylog.client.sending.thread_sender import ThreadSender
import msgpack
from array import array

def post(topic, wire, *_):
    time.sleep(0.02)
    n = msgpack.unpackb(wire)["n"]
    print(n, flush=True)
    return SendAnswer(n, array("q", range(n)), array("q", range(n)), array("B", bytes(n)))

sender = ThreadSender(post, Outbox(SendLimits(batch_max=10)), lock=threading.RLock())
for _ in range(100):
    sender.put("t", make_row(b"x"))
"""


def test_what_is_queued_when_the_interpreter_exits_is_sent_first() -> None:
    ended = run_program(sys.executable, "-c", EXITING, check=True)
    assert sum(map(int, ended.stdout.split())) == 100
    assert ended.stderr == ""


LEAVING = """
import threading
from array import array

from delaylog.client.wire.bulk import SendAnswer
from delaylog.client.errors import NotReached
from delaylog.client.sending import thread_sender
from delaylog.client.sending.outbox import Outbox, SendLimits
from delaylog.client.sending.batch import make_row
from delaylog.client.sending.thread_sender import ThreadSender

thread_sender.EXIT_FOR_S = 0.2

def away(topic, wire, *_):
    raise NotReached("nobody there")

def there(topic, wire, *_):
    print("sent", topic, flush=True)
    return SendAnswer(1, array("q", [0]), array("q", [0]), array("B", [0]))

for posts in ((away, away), (there,), (away,)):
    outbox, lock = Outbox(SendLimits()), threading.RLock()
    for number, post in enumerate(posts):
        sender = ThreadSender(post, outbox, lock=lock, shard=str(number))
        for _ in range(1 if post is there else 3):
            sender.put("t", make_row(b"x"))
"""


def test_what_cannot_be_sent_when_the_interpreter_exits_is_counted() -> None:
    """Each client's once, after a wait that all of them share; what can be sent is."""
    ended = run_program(sys.executable, "-c", LEAVING, timeout=120, check=True)
    assert ended.stdout == "sent t\n"
    told = [line for line in ended.stderr.splitlines() if line.startswith("at exit: ")]
    why = "were not sent; the first: the program ended before the message was sent"
    assert sorted(told) == [f"at exit: 3 messages {why}", f"at exit: 6 messages {why}"]


def test_a_hook_may_queue_messages(stages: Callable[..., Stage]) -> None:
    """It is called in the thread that sends, which must not wait for itself."""
    stage = stages(SendLimits(pending_max=2, batch_max=1))
    said: list[ThreadSending | Exception] = []

    class Resend(Hooks):
        def on_sent(self, topic: str, n: int, seconds: float) -> None:
            if topic == "t":
                for _ in range(3):
                    try:
                        said.append(stage.put(b"more", "others"))
                    except NotReachedInTime as error:
                        said.append(error)

    stage.outbox.hooks = Resend()
    assert stage.put(b"first").result(WAIT).result == "created"
    stage.sender.flush(WAIT_S)
    assert [type(each) for each in said] == [ThreadSending, NotReachedInTime, NotReachedInTime]
    assert stage.bodies == [b"first", b"more"]
