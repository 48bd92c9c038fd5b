"""What becomes of messages by what handlers do, in tasks and in threads, at a live broker."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import threading
from collections import Counter
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from delaylog.client import Client, LeasedMessage, NewMessage, Reject
from delaylog.client.calls import messages
from delaylog.client.hooks import Hooks
from delaylog.client.workers import Backoff, Retry, settlements
from delaylog.client.workers.desk import Desk
from tests.client.workers.live import Kind, Live, Works, live_broker
from tests.waiting import await_that, until

WHOSE: ContextVar[str] = ContextVar("whose", default="nobody")


def test_acks_go_with_receives(live: Live, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that takes one message at a time makes about one call for each."""
    together: list[int] = []
    works, real = Works(kind, live), messages.ack_and_receive_batch

    def counted(places: Any, wanted: Any, receipts: list[str], **asked: Any) -> Any:
        together.append(len(receipts))
        return real(places, wanted, receipts, **asked)

    monkeypatch.setattr(messages, "ack_and_receive_batch", counted)
    # On a machine that stalls acks would go by themselves.
    monkeypatch.setattr(settlements, "GATHER_S", 1.0)

    @works.consumer(prefetch=0, concurrency=1)
    async def handle(message: LeasedMessage) -> None:
        assert message.attempts == 1

    live.send(["x"] * 100)
    with works:
        live.await_counts(acked=100)
    assert sum(together) > 80


def test_so_many_handlers_run_at_once_and_no_more(live: Live, works: Works) -> None:
    lock, now, most = threading.Lock(), 0, 0

    @works.consumer(concurrency=4)
    async def handle(message: LeasedMessage) -> None:
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


def test_retry_comes_again_when_it_says(live: Live, works: Works) -> None:
    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        if message.attempts < 3:
            raise Retry(delay=timedelta(milliseconds=150))

    live.send(["x"], ids=["m"])
    with works:
        live.await_counts(acked=1)
    leased = [step["at_ms"] for step in live.life("m") if step["event"] == "leased"]
    assert len(leased) == 3
    assert all(second - first >= 150 for first, second in itertools.pairwise(leased))


class Odd(Exception):
    """Its text cannot be told."""

    def __str__(self) -> str:
        raise AttributeError("code")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Reject(ValueError("no number")), "no number"), (Odd(), "Odd: Odd"), (Reject(Odd()), "Odd")],
    ids=["rejected with an exception", "without a text", "rejected without a text"],
)
def test_an_odd_exception_takes_no_handler_away(
    live: Live, works: Works, error: Exception, reason: str
) -> None:
    @works.consumer(concurrency=1)
    async def handle(message: LeasedMessage) -> None:
        if message.body == b"odd":
            raise error

    live.send(["odd", "good", "good"], max_retry=0)
    with works:
        live.await_counts(acked=2, dead=1)
    (letter,) = live.client.dead("t")["messages"]
    assert letter["reason"] == reason


def test_a_failure_that_cannot_be_logged_takes_no_handler_away(live: Live, works: Works) -> None:
    """As with a filter of the program that raises."""

    def broken(record: logging.LogRecord) -> bool:
        raise RuntimeError(f"no place for {record.msg}")

    @works.consumer(concurrency=1)
    async def handle(message: LeasedMessage) -> None:
        if message.body == b"odd":
            raise ValueError("no")

    live.send(["odd", "good", "good"], max_retry=0)
    reporter = logging.getLogger("delaylog.client.workers.shift_base")
    reporter.addFilter(broken)
    try:
        with works:
            live.await_counts(acked=2, dead=1)
    finally:
        reporter.removeFilter(broken)


def test_what_a_runner_leaves_behind_is_delivered_again(
    live: Live, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `on_error` ended it, or a bug: the leases must not be extended for ever."""
    works, done, faults = Works("tasks", live), Desk.done, ["a bug"]

    def failing(desk: Desk, *arguments: Any) -> None:
        if faults:
            raise RuntimeError(faults.pop())
        done(desk, *arguments)

    async def ended(message: LeasedMessage, error: BaseException) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @works.consumer(concurrency=1, on_error=ended, backoff=Backoff(first=timedelta(0)))
    async def handle(message: LeasedMessage) -> None:
        if message.body == b"odd" and message.attempts == 1:
            raise ValueError("no")

    monkeypatch.setattr(Desk, "done", failing)
    live.send(["good", "odd"])
    with works:
        live.await_counts(acked=2)
    assert "t: a runner has failed" in caplog.text
    assert "t: a handler cancelled the task it ran in" in caplog.text


def test_on_error_is_asked_how_long_to_wait(live: Live, works: Works) -> None:
    asked: list[tuple[int, str]] = []

    def wait(message: LeasedMessage, error: BaseException) -> timedelta:
        asked.append((message.attempts, str(error)))
        return timedelta(0)

    @works.consumer(on_error=wait)
    async def handle(message: LeasedMessage) -> None:
        if message.attempts < 3:
            raise RuntimeError(f"try {message.attempts}")

    live.send(["x"])
    with works:
        live.await_counts(acked=1)
    assert asked == [(1, "try 1"), (2, "try 2")]


def test_a_batch_is_acked_or_comes_again_together(live: Live, works: Works) -> None:
    sizes: list[int] = []
    failed: list[int] = []

    @works.consumer(batch_max=50, concurrency=1)
    async def handle(messages: list[LeasedMessage]) -> None:
        sizes.append(len(messages))
        if not failed:
            failed.extend(message.ref for message in messages)
            raise Retry(delay=timedelta(0))

    live.send(["x"] * 200)
    with works:
        live.await_counts(acked=200)
    assert max(sizes) == 50
    assert sum(sizes) == 200 + len(failed)


def test_messages_of_a_key_go_one_at_a_time_and_in_order(live: Live, works: Works) -> None:
    lock, running, seen = threading.Lock(), Counter[str](), dict[str, list[int]]()
    twice: list[str] = []

    @works.consumer(concurrency=6)
    async def handle(message: LeasedMessage) -> None:
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


def test_tags_choose_and_exact_tags_choose_again(live: Live, works: Works) -> None:
    seen: list[bytes] = []

    @works.consumer(tags=["a", "b"], tags_mode="all", exact_tags=True)
    async def handle(message: LeasedMessage) -> None:
        assert message.headers == {"n": message.text}
        seen.append(message.body)

    tags = [["a"], ["a", "b"], ["b"], ["b", "a", "c"]]
    live.send(list("0123"), tags=tags, headers=[{"n": each} for each in "0123"])
    with works:
        live.await_counts(acked=2, ready=2)
    assert sorted(seen) == [b"1", b"3"]


def test_no_handler_sees_the_context_variables_of_another(live: Live, works: Works) -> None:
    """Ten one after the other in one runner, half of which fail."""
    seen: list[str] = []

    def on_error(message: Any, error: BaseException) -> timedelta:
        seen.append(WHOSE.get())
        WHOSE.set("on_error")
        return timedelta(minutes=1)

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


def test_groups_have_their_own(live: Live, works: Works) -> None:
    live.client.put_group("t", "mail")
    seen: list[str] = []

    @works.consumer(group="mail")
    async def handle(message: LeasedMessage) -> None:
        seen.append(f"mail {message.group}")

    @works.consumer()
    async def handle_too(message: LeasedMessage) -> None:
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
        async def handle(message: LeasedMessage) -> None:
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

    @works.consumer(lease=timedelta(seconds=3))
    async def handle(message: LeasedMessage) -> None:
        await asyncio.sleep(0.001)
        handled[message.text] += 1

    killable.send([str(n) for n in range(2_000)])
    with works:
        for _ in range(3):
            before = len(handled)
            await_that(lambda before=before: len(handled) > min(before + 100, 1_999))  # type: ignore[misc]
            killable.kill()
            killable.restart()
        # Leases are of three seconds, so nothing hides behind a longer wait.
        await_that(lambda: killable.counts() == {"acked": 2_000}, killable.counts, seconds=90)
    assert len(handled) == 2_000


class Losses(Hooks):
    def __init__(self) -> None:
        self.lost: list[tuple[str, bool]] = []
        self.extended = 0

    def on_lease_lost(self, message: LeasedMessage) -> None:
        self.lost.append((message.text, message.lease_lost))

    def on_settled(self, topic: str, verb: str, n: int, seconds: float) -> None:
        self.extended += n if verb == "extend" else 0


def test_the_lease_of_a_long_handler_is_extended(live: Live, kind: Kind) -> None:
    hooks = Losses()
    works = Works(kind, live, hooks=[hooks])
    begun: list[str] = []

    # Half of a lease is longer than what a busy machine stalls.
    @works.consumer(lease=timedelta(seconds=3), concurrency=1)
    async def handle(message: LeasedMessage) -> None:
        begun.append(message.text)
        await asyncio.sleep(6.5)

    live.send(["x"], ids=["m"])
    with works:
        live.await_counts(acked=1)
    assert begun == ["x"]
    assert hooks.lost == []
    assert hooks.extended >= 3
    assert [step["event"] for step in live.life("m")].count("lease_extended") >= 3


def test_a_lost_lease_is_told_and_its_key_stays_taken(live: Live, kind: Kind) -> None:
    hooks = Losses()
    works = Works(kind, live, hooks=[hooks])
    lock, running, most = threading.Lock(), 0, 0
    told: list[bool] = []

    @works.consumer(lease=timedelta(milliseconds=300), concurrency=4)
    async def handle(message: LeasedMessage) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if message.attempts == 1:
            # Somebody gives it back by force: it comes again while this one still runs.
            with Client(live.url, namespace=live.namespace) as other:
                other.settle_ids("t", "nack", ["m"], delay=timedelta(0))
            await asyncio.sleep(1.0)
            await until(lambda: message.lease_lost)
            told.append(message.lease_lost)
        with lock:
            running -= 1

    live.send(["x"], ids=["m"], keys=["k"])
    with works:
        live.await_counts(acked=1)
    assert told == [True]
    assert hooks.lost[0] == ("x", True)
    assert most == 1


def test_a_handler_decides_by_the_methods_of_its_message(live: Live, kind: Kind) -> None:
    """The worker leaves the message alone afterwards."""
    hooks = Losses()
    works = Works(kind, live, hooks=[hooks])

    @works.consumer()
    async def handle(message: Any) -> None:
        later = {"delay": timedelta(hours=1)} if message.text == "nack" else {}
        said = getattr(message, message.text)(**later)
        assert (await said if inspect.isawaitable(said) else said) == "done"
        if message.text == "ack":
            raise RuntimeError("after its ack")

    live.send(["ack", "nack", "reject"])
    with works:
        live.await_counts(acked=1, waiting=1, dead=1)
    assert live.counts() == {"acked": 1, "waiting": 1, "dead": 1}
    assert hooks.lost == []


def test_a_rejected_message_is_dead_at_once_and_its_reason_is_logged(
    live: Live, works: Works, caplog: pytest.LogCaptureFixture
) -> None:
    @works.consumer()
    async def handle(message: Any) -> None:
        raise Reject("no such address")

    live.send(["x"], ids=["m"])
    with works:
        live.await_counts(dead=1)
    assert live.client.get("t", "m")["cause"] == "rejected"
    assert "t: message m (attempt 1) rejected: no such address" in caplog.messages


@pytest.mark.parametrize("batch", [False, True])
def test_a_handler_over_its_time_limit_has_failed(
    live: Live, works: Works, caplog: pytest.LogCaptureFixture, *, batch: bool
) -> None:
    """Its message comes again, while another handler is not disturbed."""
    asked: list[str] = []
    ended = threading.Event()

    def wait(_: Any, error: BaseException) -> timedelta:
        asked.append(type(error).__name__)
        return timedelta(0)

    @works.consumer(
        time_limit=timedelta(seconds=1),
        batch=batch,
        batch_max=1 if batch else None,
        on_error=wait,
    )
    async def handle(given: Any) -> None:
        message = given[0] if batch else given
        if message.text == "slow" and message.attempts == 1:
            if works.kind == "tasks":
                await asyncio.sleep(60)
            ended.wait(60)

    live.send(["slow", "quick"], ids=["slow", "quick"])
    with works:
        try:
            await_that(lambda: asked == ["TimeLimitExceeded"])
        finally:
            ended.set()
        live.await_counts(acked=2)
    (line,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "t: message slow (attempt 1) failed: TimeLimitExceeded(" in line.message
    assert "time limit of 1 s" in line.message


@pytest.mark.parametrize("batch", [False, True])
def test_a_handler_that_goes_on_after_its_time_limit_has_failed(live: Live, *, batch: bool) -> None:
    """It catches its cancellation and returns, as one in a thread does at some time."""
    works = Works("tasks", live)

    @works.consumer(
        time_limit=timedelta(seconds=0.2),
        batch=batch,
        batch_max=1 if batch else None,
        on_error=lambda *_: timedelta(0),
    )
    async def handle(given: Any) -> None:
        message = given[0] if batch else given
        if message.attempts == 1:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    live.send(["x"], ids=["m"])
    with works:
        live.await_counts(acked=1)
    (reason,) = [step["reason"] for step in live.life("m") if "reason" in step]
    assert reason.startswith("TimeLimitExceeded: ")


def test_a_worker_logs_its_start_its_connection_and_its_stop(
    killable: Live, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    works = Works(kind, killable)

    @works.consumer(wait=timedelta(minutes=1))
    async def handle(message: Any) -> None:
        """Nothing."""

    def told(text: str) -> bool:
        return any(text in line for line in caplog.messages)

    url = killable.url
    with works:
        await_that(lambda: told(f"t: connected to {url}"))
        killable.kill()
        await_that(lambda: told(f"t: cannot receive from {url}: "))
        killable.restart()
        await_that(lambda: told(f"t: connected to {url} again, after "))
    assert f"t: started, 8 handlers at a time, on {url}" in caplog.messages
    assert "t: stopping; running handlers have up to 10 s" in caplog.messages
    assert caplog.messages[-1] == "t: stopped"


def test_a_handler_that_sends_its_own_id_again_is_warned(
    live: Live, works: Works, caplog: pytest.LogCaptureFixture
) -> None:
    """By a worker that takes single messages, and by one that takes batches."""

    @works.consumer("t")
    async def handle(message: Any) -> None:
        works.in_threads.send("t", "again", id=message.id)

    @works.consumer("u", batch_max=5)
    async def handle_all(messages: list[Any]) -> None:
        works.in_threads.send_many("u", [NewMessage("again", id=each.id) for each in messages])

    live.send(["x"], ids=["one"])
    live.send(["x"], topic="u", ids=["two"])
    with works:
        live.await_counts(acked=1)
        live.await_counts("u", acked=1)
    warned = [line for line in caplog.messages if "which is being handled" in line]
    assert sorted(line[:30] for line in warned) == [
        "t: a send with the id 'one', w",
        "u: a send with the id 'two', w",
    ]


def test_each_failure_is_logged_and_stored_until_max_retry_makes_it_dead(
    live: Live, works: Works, caplog: pytest.LogCaptureFixture
) -> None:
    """It is stored with the name of the consumer."""
    attempts: list[int] = []

    @works.consumer(
        consumer_name="mail-worker",
        backoff=Backoff(first=timedelta(milliseconds=10), max=timedelta(milliseconds=20)),
    )
    async def handle(message: LeasedMessage) -> None:
        attempts.append(message.attempts)
        raise ValueError("no such street")

    live.send(["x"], ids=["m"], max_retry=2)
    with works:
        live.await_counts(dead=1)
    assert attempts == [1, 2, 3]
    lines = [each for each in caplog.records if each.levelno == logging.WARNING]
    failed = "t: message m (attempt {}) failed: ValueError('no such street')"
    assert [line.message for line in lines] == [failed.format(n) for n in attempts]
    assert all(line.exc_info for line in lines)
    life = live.life("m")
    assert [step["consumer"] for step in life if step["event"] == "leased"] == ["mail-worker"] * 3
    assert [step["reason"] for step in life if "reason" in step] == [
        "ValueError: no such street"
    ] * 3
