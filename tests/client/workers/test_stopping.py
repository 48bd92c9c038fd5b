"""How workers end: by a stop, by what handlers raise, and while a broker is away."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest

from delaylog.client import Hooks, Message
from delaylog.client.workers import Backoff
from tests.client.workers.live import Kind, Live, Works
from tests.waiting import await_that


def test_a_handler_that_cancels_its_own_task_leaves_the_worker_whole(live: Live) -> None:
    works = Works("tasks", live)
    most = now = 0

    @works.consumer(concurrency=2)
    async def handle(message: Message) -> None:
        nonlocal most, now
        if message.body == b"cancels":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1

    live.send(["cancels"] * 3)
    with works:
        live.await_counts(acked=3)
        live.send(["x"] * 6)
        live.await_counts(acked=9)
    assert most == 2


def test_a_handler_that_fails_in_any_way_leaves_the_others_going(live: Live, kind: Kind) -> None:
    works = Works(kind, live)

    @works.consumer(concurrency=2)
    async def handle(message: Message) -> None:
        if message.attempts == 1:
            match message.text:
                case "cancelled":
                    raise asyncio.CancelledError
                case "base":
                    raise BaseException("of no kind")
                case "generator":
                    raise GeneratorExit

    live.client.put_topic("t", {"backoff": {"first_ms": 10}})
    live.send(["cancelled", "base", "generator"] * 3 + ["x"] * 3)
    with works:
        live.await_counts(acked=12)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_handler_may_end_the_program(live: Live, kind: Kind, error: BaseException) -> None:
    works = Works(kind, live)
    raised = threading.Event()

    @works.consumer()
    async def handle(message: Message) -> None:
        raised.set()
        raise error

    if kind == "threads":
        # asyncio.run of the helper would turn them into something of its own.
        works = Works(kind, live)

        @works.in_threads.consumer("t")
        def handle_in_thread(message: Message) -> None:
            raised.set()
            raise error

    live.send(["x"])
    works.start()
    assert raised.wait(30)
    with pytest.raises(type(error)):
        works.stop()


@pytest.mark.parametrize("kind_raised", [BaseException, asyncio.CancelledError, GeneratorExit])
def test_on_error_that_fails_in_any_way_holds_up_nothing(
    live: Live, works: Works, kind_raised: type[BaseException]
) -> None:
    """With one handler, which nothing could replace: what failed comes again, and so do others."""

    def on_error(message: Message, error: BaseException) -> None:
        raise kind_raised

    @works.consumer(concurrency=1, on_error=on_error)
    async def handle(message: Message) -> None:
        if message.attempts == 1:
            raise RuntimeError("the first attempt fails")

    live.client.put_topic("t", {"backoff": {"first_ms": 10}})
    live.send(["x"] * 3)
    with works:
        live.await_counts(acked=3)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_on_error_may_end_the_program(live: Live, works: Works, error: BaseException) -> None:
    asked = threading.Event()

    def on_error(message: Message, failure: BaseException) -> None:
        asked.set()
        raise error

    @works.consumer(concurrency=1, on_error=on_error, backoff=Backoff(first=timedelta(0)))
    async def handle(message: Message) -> None:
        raise RuntimeError("the database is gone")

    live.send(["x"])
    works.start()
    assert asked.wait(30)
    with pytest.raises(type(error)):
        works.stop()
    assert live.counts() == {"ready": 1}


def test_a_stop_gives_back_what_was_not_begun(live: Live, works: Works) -> None:
    begun = threading.Semaphore(0)
    go = threading.Event()

    @works.consumer(concurrency=2, prefetch=100)
    async def handle(message: Message) -> None:
        if message.text == "slow":
            begun.release()
            await asyncio.to_thread(go.wait)

    live.send(["quick"] * 100)
    works.start()
    live.await_counts(acked=100)
    live.send(["slow"] * 50)
    begun.acquire()
    begun.acquire()
    await_that(lambda: live.counts().get("leased", 0) > 2, live.counts)
    stopping = threading.Thread(target=works.stop)
    stopping.start()
    live.await_counts(acked=100, leased=2, ready=48)
    go.set()
    stopping.join()
    assert live.counts() == {"acked": 102, "ready": 48}


class Received(Hooks):
    """The number of messages of each answered receive."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def on_received(self, topic: str, n: int) -> None:
        self.numbers.append(n)


@pytest.mark.parametrize("grace_s", [0.0, 10.0])
def test_a_stop_fetches_nothing_that_it_gave_back(live: Live, kind: Kind, grace_s: float) -> None:
    """A receive that waits meanwhile would lease the messages again."""
    received = Received()
    works = Works(kind, live, hooks=[received])
    begun, go = threading.Event(), threading.Event()

    @works.consumer(concurrency=1, prefetch=100, wait=timedelta(seconds=5))
    async def handle(message: Message) -> None:
        if message.text == "slow":
            begun.set()
            await asyncio.to_thread(go.wait)

    live.send(["quick"] * 100)
    works.start()
    live.await_counts(acked=100)
    live.send(["slow"] * 20)
    assert begun.wait(30)
    await_that(lambda: sum(received.numbers) == 120, lambda: received.numbers)
    # The next receive is on its way, and waits.
    time.sleep(0.2)
    stopping = threading.Thread(target=works.stop, args=(grace_s,))
    stopping.start()
    live.await_counts(acked=100, **({"leased": 1, "ready": 19} if grace_s else {"ready": 20}))
    go.set()
    stopping.join()
    assert sum(received.numbers) == 120


def test_a_handler_that_never_ends_does_not_hold_up_a_stop(live: Live, kind: Kind) -> None:
    works = Works(kind, live)
    begun = threading.Event()
    lost: list[bool] = []

    @works.consumer()
    async def handle(message: Message) -> None:
        begun.set()
        try:
            await asyncio.sleep(30 if kind == "tasks" else 2)
        finally:
            lost.append(message.lease_lost)

    live.send(["x"])
    works.start()
    begun.wait()
    works.stop(grace_s=0.2)
    assert live.counts() == {"ready": 1}
    await_that(lambda: lost == [True])
    assert live.counts() == {"ready": 1}


class ReadSlowly(threading.Event):
    """Whoever looks acts on it a while later."""

    def is_set(self) -> bool:
        found = super().is_set()
        time.sleep(0.05)
        return found


def test_no_thread_stays_behind_that_was_about_to_wait_at_the_stop(live: Live) -> None:
    works = Works("threads", live)

    @works.consumer()
    async def handle(message: Message) -> None:
        pass

    before = set(threading.enumerate())
    works.start()
    ((_, shift),) = works.in_threads._shifts
    shift._over, flush = ReadSlowly(), shift._flush

    def flush_and_pause() -> None:
        flush()
        time.sleep(0.02)

    # The last settling calls wake threads, which look whether that was all.
    shift._flush = flush_and_pause  # type: ignore[method-assign]
    live.send(["x"])
    live.await_counts(acked=1)
    works.stop()
    await_that(lambda: {*threading.enumerate()} <= before, threading.enumerate)


def test_acks_of_a_broker_that_is_away_are_made_when_it_is_back(killable: Live, kind: Kind) -> None:
    works = Works(kind, killable)
    killed = threading.Event()
    begun = threading.Event()

    @works.consumer(lease=timedelta(seconds=20))
    async def handle(message: Message) -> None:
        begun.set()
        await asyncio.to_thread(killed.wait)

    killable.send(["x"], ids=["m"])
    with works:
        begun.wait()
        killable.kill()
        killed.set()
        time.sleep(0.3)
        killable.restart()
        killable.await_counts(acked=1)
    events = [step["event"] for step in killable.life("m")]
    assert events.count("leased") == 1


def test_it_runs_again_after_a_stop(live: Live, works: Works) -> None:
    @works.consumer()
    async def handle(message: Message) -> None:
        return

    live.send(["x"])
    with works:
        with pytest.raises(RuntimeError, match="running already"):
            works.start()
        live.await_counts(acked=1)
        works.halt()
        live.send(["x"])
        works.start()
        live.await_counts(acked=2)


def test_a_stop_may_wait_for_ever(live: Live, kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    """Of threads, too, whose locks take no such timeout."""
    works = Works(kind, live)
    inside, go = threading.Event(), threading.Event()

    @works.consumer(grace=timedelta.max, time_limit=timedelta.max)
    async def handle(message: Message) -> None:
        inside.set()
        await asyncio.to_thread(go.wait, 20)

    live.send(["x"])
    works.start()
    assert inside.wait(20)
    threading.Timer(0.5, go.set).start()
    works.stop(grace_s=None)
    assert live.counts() == {"acked": 1}
    assert [line for line in caplog.messages if "has ended" in line] == []


@pytest.mark.parametrize("after_s", [0, 0.1])
def test_a_stop_that_is_cancelled_leaves_no_lease(live: Live, after_s: float) -> None:
    works = Works("tasks", live)
    inside, ended = threading.Event(), threading.Event()

    @works.consumer(lease=timedelta(seconds=0.5))
    async def handle(message: Message) -> None:
        inside.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def stopped() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(after_s):
                await works._in_loop.stop()

    live.client.put_topic("t", {"backoff": {"first_ms": 0}})
    live.send(["x"])
    works.start()
    assert inside.wait(20)
    works._in_turn(stopped())
    try:
        assert ended.wait(20)
        live.await_counts(ready=1)
    finally:
        works.stop()
