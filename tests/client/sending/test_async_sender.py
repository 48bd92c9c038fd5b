"""AsyncSender over a broker in memory: gathering, waiting, cancelling, back pressure, the end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from delaylog.client.errors import AnswerLost, BadRequest, ClientError, NotReached, SendFailed
from delaylog.client.models import Sent
from delaylog.client.sending.async_sender import AsyncSender, AsyncSending
from delaylog.client.sending.batch import make_row
from delaylog.client.sending.outbox import Outbox, OutboxFull, SendLimits
from delaylog.client.wire.bulk import SendAnswer
from delaylog.client.wire.exchange import OnRepeat
from tests.client.sending.fake_broker import REFUSED, FakeBroker


class Stage:
    """A sender whose requests wait until `gate` is open, and are counted."""

    def __init__(self, limits: SendLimits | None = None) -> None:
        self.broker = FakeBroker()
        self.outbox = Outbox(limits or SendLimits(), random=lambda: 0.0)
        self.sender = AsyncSender(self.post, self.outbox, shard="here")
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def post(
        self,
        topic: str,
        wire: bytes,
        on_repeat: OnRepeat | None = None,
        limit_s: float | None = None,
    ) -> SendAnswer:
        self.asked.set()
        await self.gate.wait()
        return self.broker.send(topic, wire)

    def put(self, body: bytes, topic: str = "t", **members: Any) -> AsyncSending:
        return self.sender.put(topic, make_row(body, **members))

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self.broker.taken]


async def test_what_is_put_in_one_turn_goes_as_one_request_and_each_learns_its_own() -> None:
    stage = Stage()
    sendings = [stage.put(b"%d" % number, id=f"id-{number}") for number in range(100)]
    assert not sendings[0].done()
    with pytest.raises(asyncio.InvalidStateError):
        sendings[0].result()
    found = await asyncio.gather(*sendings)
    assert found == [Sent(f"id-{n}", n * 10, "created", "here") for n in range(100)]
    assert stage.broker.requests == 1
    # Again, and by somebody else: the same.
    assert await sendings[5] == sendings[5].result() == found[5]
    assert sendings[5].exception() is None


async def test_rows_gather_behind_a_request_of_their_topic_only() -> None:
    stage = Stage()
    stage.gate.clear()
    first = stage.put(b"0")
    await stage.asked.wait()
    more = [stage.put(b"%d" % number) for number in range(1, 50)]
    other = stage.put(b"other", topic="u")
    stage.gate.set()
    await asyncio.gather(first, other, *more)
    assert stage.broker.requests == 3
    assert [body for topic, body in stage.broker.taken if topic == "t"] == [
        b"%d" % number for number in range(50)
    ]


async def test_a_batch_goes_when_it_is_full_or_has_lingered() -> None:
    stage = Stage(SendLimits(linger=timedelta(minutes=1), batch_max=4))
    await asyncio.gather(*(stage.put(b"%d" % number) for number in range(4)))
    stage.put(b"4")
    await stage.sender.flush()  # Well before its minute is over.
    assert stage.broker.requests == 2
    stage = Stage(SendLimits(linger=timedelta(seconds=1.5)))
    first = stage.put(b"0")
    await asyncio.sleep(0.01)
    assert stage.broker.requests == 0
    await asyncio.gather(first, stage.put(b"1"))
    assert stage.broker.requests == 1


async def test_a_batch_has_bytes_enough_too() -> None:
    stage = Stage(SendLimits(batch_bytes_max=3500))
    await asyncio.gather(*(stage.put(b"%d" % n + bytes(1000)) for n in range(10)))
    assert stage.broker.requests == 4


async def test_cancelling_one_who_waits_harms_neither_the_message_nor_the_others() -> None:
    stage = Stage()
    stage.gate.clear()
    sending = stage.put(b"x")

    async def wait() -> Sent:
        return await sending

    waiting = [asyncio.create_task(wait()) for _ in range(3)]
    await stage.asked.wait()
    waiting[1].cancel()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wait(), 0.01)
    stage.gate.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in found] == [Sent, asyncio.CancelledError, Sent]
    assert stage.bodies == [b"x"]


async def test_a_refused_message_fails_alone_and_nobody_else_hears_of_it() -> None:
    stage = Stage()
    good, bad, fine = stage.put(b"a"), stage.put(REFUSED), stage.put(b"b")
    assert (await good).result == "created"
    assert (await fine).result == "created"
    for _ in range(2):
        with pytest.raises(BadRequest):
            await bad
    assert isinstance(bad.exception(), BadRequest)
    # Somebody looked at it, so there is nothing left to tell.
    assert stage.outbox.take_unseen() is None


async def test_failures_that_nobody_looked_at_are_kept_for_flush() -> None:
    stage = Stage()
    stage.put(REFUSED)
    stage.put(b"fine")
    seen = stage.put(REFUSED)
    with pytest.raises(BadRequest):
        await seen
    await stage.sender.flush()
    unseen = stage.outbox.take_unseen()
    assert isinstance(unseen, SendFailed)
    assert unseen.rows == 1
    assert isinstance(unseen.failures[0], BadRequest)
    assert stage.outbox.take_unseen() is None


async def test_a_put_after_room_is_never_refused_and_one_without_may_be() -> None:
    stage = Stage(SendLimits(batch_max=5, pending_max=10))
    for number in range(200):
        await stage.sender.room()
        stage.put(b"%d" % number)
        assert stage.outbox.rows <= 10
    await stage.sender.flush()
    assert stage.bodies == [b"%d" % number for number in range(200)]
    for _ in range(20):
        stage.put(b"more")
    with pytest.raises(OutboxFull, match="room"):
        stage.put(b"too many")
    await stage.sender.flush()
    assert (stage.outbox.rows, stage.outbox.size_bytes) == (0, 0)
    assert len(stage.bodies) == 220


async def test_room_is_bounded_in_bytes_too() -> None:
    stage = Stage(SendLimits(batch_bytes_max=4000, pending_bytes_max=5000))
    stage.gate.clear()
    stage.put(bytes(5_000))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stage.sender.room(), 0.01)
    stage.put(bytes(5_000))
    with pytest.raises(OutboxFull):
        stage.put(b"")
    stage.gate.set()
    await stage.sender.room()


async def test_a_message_is_repeated_until_it_is_there_and_is_there_once() -> None:
    stage = Stage()
    faults = ["unreached", "lost_after", "not_ready_after", "lost_before"]
    stage.broker.fault = lambda: faults.pop(0) if faults else "none"  # type: ignore[return-value,arg-type]
    await asyncio.gather(*(stage.put(b"%d" % number) for number in range(3)))
    assert stage.bodies == [b"0", b"1", b"2"]
    assert stage.broker.requests == 5


async def test_abandoning_ends_everything_and_says_what_may_be_there() -> None:
    stage = Stage()
    stage.gate.clear()
    out = stage.put(b"out there")
    await stage.asked.wait()
    queued = stage.put(b"queued")
    other = stage.put(b"not begun", topic="u")
    await stage.sender.abandon(ClientError("closed"))
    assert isinstance(out.exception(), AnswerLost)
    assert isinstance(queued.exception(), ClientError)
    assert not isinstance(queued.exception(), AnswerLost)
    assert other.done()
    with pytest.raises(ClientError, match="closed"):
        stage.put(b"late")
    assert (stage.outbox.rows, stage.outbox.size_bytes) == (0, 0)


def test_a_loop_that_ends_leaves_nobody_believing_that_it_was_sent() -> None:
    found: list[AsyncSending] = []

    async def run() -> None:
        stage = Stage()
        stage.gate.clear()
        found.append(stage.put(b"out there"))
        await stage.asked.wait()
        found.append(stage.put(b"queued"))
        found.append(stage.put(b"not begun", topic="u"))

    asyncio.run(run())
    assert all(isinstance(sending.exception(), ClientError) for sending in found)


async def test_a_fault_of_the_transport_fails_the_messages_and_not_the_sender() -> None:
    stage = Stage()
    good = stage.broker.send

    def broken(topic: str, wire: bytes) -> SendAnswer:
        stage.broker.send = good  # type: ignore[method-assign]
        raise RuntimeError("a bug")

    stage.broker.send = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a bug"):
        await stage.put(b"x")
    await stage.put(b"y")
    assert stage.bodies == [b"y"]


async def test_hooks_hear_of_all_and_one_that_fails_changes_nothing() -> None:
    heard: list[tuple[Any, ...]] = []

    class Listening:
        def on_sent(self, topic: str, n: int, seconds: float) -> None:
            heard.append(("sent", topic, n))
            raise ValueError("of the hook's own")

        def on_send_retry(self, topic: str, n: int, error: Exception) -> None:
            heard.append(("retry", topic, n, type(error)))

        def on_send_failed(self, topic: str, n: int, error: Exception, seconds: float) -> None:
            assert 0 <= seconds < 60
            heard.append(("failed", topic, n, type(error)))

        def outgoing_headers(self, topic: str) -> dict[str, str] | None:
            return None

    stage = Stage()
    stage.outbox.hooks = Listening()
    faults = ["unreached"]
    stage.broker.fault = lambda: faults.pop() if faults else "none"  # type: ignore[return-value,arg-type]
    await stage.put(b"a")
    with pytest.raises(BadRequest):
        await stage.put(REFUSED)
    assert heard == [
        ("retry", "t", 1, NotReached),
        ("sent", "t", 1),
        ("failed", "t", 1, BadRequest),
    ]


async def test_what_any_shard_may_have_goes_on_where_one_can_be_reached() -> None:
    alive, dead = FakeBroker(), FakeBroker(lambda: "unreached")
    outbox = Outbox(random=lambda: 0.0)
    senders: dict[str, AsyncSender] = {}

    def sender(name: str, broker: FakeBroker) -> AsyncSender:
        async def post(topic: str, wire: bytes, *_: object) -> SendAnswer:
            return broker.send(topic, wire)

        def spare(tried: set[str]) -> AsyncSender | None:
            return next((senders[each] for each in senders if each not in tried), None)

        return AsyncSender(post, outbox, shard=name, spare=spare)

    senders |= {"dead": sender("dead", dead), "alive": sender("alive", alive)}
    free = [senders["dead"].put("t", make_row(b"%d" % n), free=True) for n in range(3)]
    pinned = senders["dead"].put("t", make_row(b"at home"))
    assert [sent.shard for sent in await asyncio.gather(*free)] == ["alive"] * 3
    assert not senders["dead"].reachable
    assert senders["alive"].reachable
    assert not pinned.done()
    dead.fault = lambda: "none"
    assert (await pinned).shard == "dead"
    assert [body for _, body in dead.taken] == [b"at home"]
