"""What becomes of messages by what handlers do, in tasks and in threads, at a live broker."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from delaylog.client import Message
from delaylog.client.calls import messages
from delaylog.client.calls.call import Call
from delaylog.client.calls.messages import settle_forced
from delaylog.client.calls.places import Places
from delaylog.client.hooks import Hooks
from delaylog.client.workers import Backoff, Retry, settling
from tests.client.workers.live import Kind, Live, Works, await_that, live_broker

WHOSE: ContextVar[str] = ContextVar("whose", default="nobody")


def test_what_is_handled_is_acked(live: Live, kind: Kind) -> None:
    seen: list[bytes] = []
    works = Works(kind, live)

    @works.consumer()
    async def handle(message: Message) -> None:
        seen.append(message.body)

    live.send([str(number) for number in range(300)])
    with works:
        live.await_counts(acked=300)
    assert sorted(seen, key=int) == [b"%d" % number for number in range(300)]


def test_acks_go_with_receives(live: Live, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that takes one message at a time makes about one call for each."""
    together: list[int] = []
    works, real = Works(kind, live), messages.ack_and_receive_batch

    def counted(places: Any, wanted: Any, receipts: list[str], **asked: Any) -> Any:
        together.append(len(receipts))
        return real(places, wanted, receipts, **asked)

    monkeypatch.setattr(messages, "ack_and_receive_batch", counted)
    # On a machine that stalls acks would go by themselves.
    monkeypatch.setattr(settling, "GATHER_S", 1.0)

    @works.consumer(prefetch=0, concurrency=1)
    async def handle(message: Message) -> None:
        assert message.attempts == 1

    live.send(["x"] * 100)
    with works:
        live.await_counts(acked=100)
    assert sum(together) > 80


def test_so_many_handlers_run_at_once_and_no_more(live: Live, kind: Kind) -> None:
    lock, now, most = threading.Lock(), 0, 0
    works = Works(kind, live)

    @works.consumer(concurrency=4)
    async def handle(message: Message) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        await asyncio.sleep(0.02)
        with lock:
            now -= 1

    live.send(["x"] * 40)
    with works:
        live.await_counts(acked=40)
    assert most == 4


def test_retry_comes_again_when_it_says(live: Live, kind: Kind) -> None:
    works = Works(kind, live)

    @works.consumer()
    async def handle(message: Message) -> None:
        if message.attempts < 3:
            raise Retry(delay_ms=150)

    live.send(["x"], ids=["m"])
    with works:
        live.await_counts(acked=1)
    leased = [step["at_ms"] for step in live.life("m") if step["event"] == "leased"]
    assert len(leased) == 3
    assert all(second - first >= 150 for first, second in itertools.pairwise(leased))


def test_past_max_retry_it_is_dead(live: Live, kind: Kind) -> None:
    attempts: list[int] = []
    works = Works(kind, live)

    @works.consumer(backoff=Backoff(first_ms=10, max_ms=20))
    async def handle(message: Message) -> None:
        attempts.append(message.attempts)
        raise RuntimeError("this one never works")

    live.send(["x"], max_retry=2)
    with works:
        live.await_counts(dead=1)
    assert attempts == [1, 2, 3]


def test_on_error_is_asked_how_long_to_wait(live: Live, kind: Kind) -> None:
    asked: list[tuple[int, str]] = []

    def wait(message: Message, error: BaseException) -> int:
        asked.append((message.attempts, str(error)))
        return 0

    works = Works(kind, live)

    @works.consumer(on_error=wait)
    async def handle(message: Message) -> None:
        if message.attempts < 3:
            raise RuntimeError(f"try {message.attempts}")

    live.send(["x"])
    with works:
        live.await_counts(acked=1)
    assert asked == [(1, "try 1"), (2, "try 2")]


def test_a_batch_is_acked_or_comes_again_together(live: Live, kind: Kind) -> None:
    sizes: list[int] = []
    failed: list[int] = []
    works = Works(kind, live)

    @works.consumer(batch_max=50, concurrency=1)
    async def handle(messages: list[Message]) -> None:
        sizes.append(len(messages))
        if not failed:
            failed.extend(message.ref for message in messages)
            raise Retry(delay_ms=0)

    live.send(["x"] * 200)
    with works:
        live.await_counts(acked=200)
    assert max(sizes) == 50
    assert sum(sizes) == 200 + len(failed)


def test_messages_of_a_key_go_one_at_a_time_and_in_order(live: Live, kind: Kind) -> None:
    lock, running, seen = threading.Lock(), Counter[str](), dict[str, list[int]]()
    twice: list[str] = []
    works = Works(kind, live)

    @works.consumer(concurrency=6)
    async def handle(message: Message) -> None:
        key = message.key or ""
        with lock:
            running[key] += 1
            if running[key] > 1:
                twice.append(key)
            seen.setdefault(key, []).append(int(message.body))
        await asyncio.sleep(0.002)
        with lock:
            running[key] -= 1

    live.send([str(n) for n in range(90)], keys=[f"k{n % 9}" for n in range(90)])
    with works:
        live.await_counts(acked=90)
    assert twice == []
    assert all(order == sorted(order) for order in seen.values())


def test_tags_choose_and_exact_tags_choose_again(live: Live, kind: Kind) -> None:
    works = Works(kind, live)
    seen: list[bytes] = []

    @works.consumer(tags=["a", "b"], tags_mode="all", exact_tags=True)
    async def handle(message: Message) -> None:
        assert message.headers == {"n": message.text}
        seen.append(message.body)

    tags = [["a"], ["a", "b"], ["b"], ["b", "a", "c"]]
    live.send(list("0123"), tags=tags, headers=[{"n": each} for each in "0123"])
    with works:
        live.await_counts(acked=2, ready=2)
    assert sorted(seen) == [b"1", b"3"]


def test_no_handler_sees_the_context_variables_of_another(live: Live, kind: Kind) -> None:
    """Ten one after the other in one runner, half of which fail."""
    seen: list[str] = []
    works = Works(kind, live)

    def on_error(message: Any, error: BaseException) -> int:
        seen.append(WHOSE.get())
        WHOSE.set("on_error")
        return 60_000

    @works.consumer(concurrency=1, on_error=on_error)
    async def handle(message: Any) -> None:
        seen.append(WHOSE.get())
        WHOSE.set(message.text)
        await asyncio.sleep(0)
        assert WHOSE.get() == message.text
        if int(message.text) % 2:
            raise ValueError(message.text)

    live.send([str(number) for number in range(10)])
    with works:
        await_that(lambda: len(seen) == 15)
    assert set(seen) == {"nobody"}


def test_groups_have_their_own(live: Live, kind: Kind) -> None:
    live.client.put_group("t", "mail")
    works = Works(kind, live)
    seen: list[str] = []

    @works.consumer(group="mail")
    async def handle(message: Message) -> None:
        seen.append(f"mail {message.group}")

    @works.consumer()
    async def handle_too(message: Message) -> None:
        seen.append(f"default {message.group}")

    live.send(["x"])
    with works:
        live.await_counts(group="mail", acked=1)
        live.await_counts(acked=1)
    assert sorted(seen) == ["default None", "mail mail"]


def test_all_shards_are_consumed_also_when_one_is_away(
    killable: Live, kind: Kind, tmp_path: Path
) -> None:
    seen: list[str] = []
    with live_broker(tmp_path, "other") as other:
        works = Works(kind, killable, other)

        @works.consumer()
        async def handle(message: Message) -> None:
            seen.append(message.text)

        killable.send(["a1"])
        other.send(["b1"])
        with works:
            killable.await_counts(acked=1)
            other.await_counts(acked=1)
            other.kill()
            killable.send(["a2"] * 20)
            killable.await_counts(acked=21)
            other.restart()
            other.send(["b2"])
            other.await_counts(acked=2)
    assert sorted(set(seen)) == ["a1", "a2", "b1", "b2"]


def test_a_broker_that_comes_back_is_consumed_again(killable: Live, kind: Kind) -> None:
    handled = Counter[str]()
    works = Works(kind, killable)

    @works.consumer(lease_ms=3_000)
    async def handle(message: Message) -> None:
        await asyncio.sleep(0.001)
        handled[message.text] += 1

    killable.send([str(n) for n in range(2_000)])
    with works:
        for _ in range(3):
            before = len(handled)
            await_that(lambda before=before: len(handled) > min(before + 100, 1_999))  # type: ignore[misc]
            killable.kill()
            killable.restart()
        killable.await_counts(acked=2_000)
    assert len(handled) == 2_000


class Losses(Hooks):
    def __init__(self) -> None:
        self.lost: list[tuple[str, bool]] = []
        self.extended = 0

    def on_lease_lost(self, message: Message) -> None:
        self.lost.append((message.text, message.lease_lost))

    def on_settled(self, topic: str, verb: str, n: int, seconds: float) -> None:
        self.extended += n if verb == "extend" else 0


def test_the_lease_of_a_long_handler_is_extended(live: Live, kind: Kind) -> None:
    hooks = Losses()
    works = Works(kind, live, hooks=hooks)
    begun: list[str] = []

    @works.consumer(lease_ms=400, concurrency=1)
    async def handle(message: Message) -> None:
        begun.append(message.text)
        await asyncio.sleep(1.3)

    live.send(["x"], ids=["m"])
    with works:
        live.await_counts(acked=1)
    assert begun == ["x"]
    assert hooks.lost == []
    assert hooks.extended >= 3
    assert [step["event"] for step in live.life("m")].count("lease_extended") >= 3


def test_a_lost_lease_is_told_and_its_key_stays_taken(live: Live, kind: Kind) -> None:
    hooks = Losses()
    works = Works(kind, live, hooks=hooks)
    lock, running, most = threading.Lock(), 0, 0
    told: list[bool] = []

    @works.consumer(lease_ms=300, concurrency=4)
    async def handle(message: Message) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if message.attempts == 1:
            # Somebody gives it back by force: it comes again while this one still runs.
            live.client._carry(forced_nack(live, "m"))
            await asyncio.sleep(1.0)
            told.append(message.lease_lost)
        with lock:
            running -= 1

    live.send(["x"], ids=["m"], keys=["k"])
    with works:
        live.await_counts(acked=1)
    assert told == [True]
    assert hooks.lost[0] == ("x", True)
    assert most == 1


def forced_nack(live: Live, message_id: str) -> Call[list[str]]:
    places = Places(live.namespace)
    return settle_forced(places, "t", "nack", [message_id], delay_ms=0)


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

        @works._in_threads.consumer("t")
        def handle_in_thread(message: Message) -> None:
            raised.set()
            raise error

    live.send(["x"])
    works.start()
    assert raised.wait(10)
    with pytest.raises(type(error)):
        works.stop()


@pytest.mark.parametrize("kind_raised", [BaseException, asyncio.CancelledError, GeneratorExit])
def test_on_error_that_fails_in_any_way_holds_up_nothing(
    live: Live, kind: Kind, kind_raised: type[BaseException]
) -> None:
    """With one handler, which nothing could replace: what failed comes again, and so do others."""
    works = Works(kind, live)

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
def test_on_error_may_end_the_program(live: Live, kind: Kind, error: BaseException) -> None:
    works = Works(kind, live)
    asked = threading.Event()

    def on_error(message: Message, failure: BaseException) -> None:
        asked.set()
        raise error

    @works.consumer(concurrency=1, on_error=on_error, backoff=Backoff(first_ms=0))
    async def handle(message: Message) -> None:
        raise RuntimeError("the database is gone")

    live.send(["x"])
    works.start()
    assert asked.wait(10)
    with pytest.raises(type(error)):
        works.stop()
    assert live.counts() == {"ready": 1}


def test_a_stop_gives_back_what_was_not_begun(live: Live, kind: Kind) -> None:
    works = Works(kind, live)
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


def test_acks_of_a_broker_that_is_away_are_made_when_it_is_back(killable: Live, kind: Kind) -> None:
    works = Works(kind, killable)
    killed = threading.Event()
    begun = threading.Event()

    @works.consumer(lease_ms=20_000)
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


def test_it_runs_again_after_a_stop(live: Live, kind: Kind) -> None:
    works = Works(kind, live)

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


def test_nothing_to_run_is_said(live: Live, kind: Kind) -> None:
    works = Works(kind, live)
    with pytest.raises(RuntimeError, match="declare a handler"):
        works.start()
    works.stop()
