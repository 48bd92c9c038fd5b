"""Pushes of a real node to receivers on loopback: what ends, what returns, and what survives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from delaylog.broker.engine.late.causes import bounded_by
from delaylog.broker.engine.push.commands import drop_target, put_target
from delaylog.broker.engine.push.targets import BY_OPERATOR, WELL, Health, Target
from delaylog.broker.engine.topics.commands import drop_group, drop_topic, put_group, put_topic
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.topics.settings import Backoff, TopicSettings
from delaylog.broker.push import pump
from delaylog.broker.push.attempts import Attempts
from delaylog.broker.push.breaker import FAILURES_TO_OPEN, PAUSE_FIRST_MS
from delaylog.broker.push.pusher import Pusher
from delaylog.broker.push.requests import make_request
from delaylog.broker.rules.push_addresses import AddressRules, parse_networks
from delaylog.broker.rules.push_signatures import make_secret
from tests.broker.host.running_node import RunningNode, running
from tests.broker.push.receivers import Receiver, Slow, answer, hang

pytestmark = pytest.mark.processes
SECRET = make_secret(b"s" * 32)
LOOPBACK = parse_networks(["127.0.0.0/8"])
QUICK = TopicSettings(backoff=Backoff(first_ms=10, max_ms=10, jitter=0), max_retry=3)


class Pushing:
    """A running node with a pusher."""

    def __init__(self, it: RunningNode, pusher: Pusher) -> None:
        self.it, self.pusher = it, pusher

    def topic(self, name: str = "t", settings: TopicSettings = QUICK) -> Any:
        """A topic, made with these settings."""
        state, now_ms = self.it.engine.state, self.it.clock.now_ms()
        made = put_topic(state, "default", name, settings, now_ms, made=True)
        self.it.node.appended()
        return made

    def group(self, name: str = "t") -> Group:
        """The default group of a topic."""
        return self.it.engine.state.topics["default", name].default

    def target(self, receiver: Receiver, name: str = "t", **more: Any) -> Target:
        """Push the default group of a topic to a receiver."""
        health = more.pop("health", WELL)
        url = f"http://127.0.0.1:{receiver.port}/hook"
        values: dict[str, Any] = {"timeout_ms": 20_000} | more
        target = Target(url, (SECRET,), **values)
        state, topic = self.it.engine.state, self.it.engine.state.topics["default", name]
        put_target(state, topic, topic.default, target, self.it.clock.now_ms(), health=health)
        self.it.node.appended()
        return target

    def health(self, name: str = "t") -> Health:
        """What the state has of a target."""
        topic = self.it.engine.state.topics["default", name]
        return self.it.engine.state.targets.healths[topic.number, topic.default.number]

    async def counts(self, name: str = "t", **wanted: int) -> None:
        """Return once the counts of a topic's default group are these."""
        counts = self.group(name).counts
        await self.it.until(lambda: {each: getattr(counts, each) for each in wanted} == wanted)


@asynccontextmanager
async def pushing(
    folder: Path, *receivers: Receiver, attempts_max: int = 10_000
) -> AsyncGenerator[Pushing]:
    async with running(folder) as it:
        rules = AddressRules(LOOPBACK, frozenset(each.port for each in receivers))
        attempts = Attempts(rules, now_ms=it.clock.now_ms)
        pusher = Pusher(it.node, attempts, it.fatal.append, attempts_max=attempts_max)
        pusher.start()
        try:
            yield Pushing(it, pusher)
        finally:
            await pusher.stop()


async def test_a_message_is_pushed_signed_and_acked(tmp_path: Path) -> None:
    async with Receiver(answer(200)) as receiver, pushing(tmp_path, receiver) as push:
        push.topic()
        push.it.send(3)
        push.target(receiver)
        await push.counts(acked=3, leased=0, living=0)
    assert len(receiver.requests) == 3
    line, headers, body = receiver.requests[0]
    assert line == "POST /hook HTTP/1.1"
    assert body == b"\0"
    assert headers["ce-source"] == "/v1/ns/default/topics/t"
    assert headers["ce-attempt"] == "1"
    assert headers["ce-id"] == headers["webhook-id"]
    Webhook(SECRET).verify(body, headers, json_parse=False)
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 3


async def test_a_message_of_the_future_is_pushed_at_its_time(tmp_path: Path) -> None:
    async with Receiver(answer(200)) as receiver, pushing(tmp_path, receiver) as push:
        push.topic()
        push.target(receiver, mode="structured")
        push.it.send(1, delay_ms=600)
        due_ms = push.it.clock.now_ms() + 590
        await push.counts(acked=1)
        assert push.it.clock.now_ms() >= due_ms
    event = json.loads(receiver.requests[0][2])
    assert event["data"] == "\0"
    assert event["specversion"] == "1.0"


async def test_a_failed_attempt_returns_with_its_reason_until_retries_run_out(
    tmp_path: Path,
) -> None:
    async with Receiver(answer(500, body=b"no")) as receiver, pushing(tmp_path, receiver) as push:
        push.topic()
        push.target(receiver)
        push.it.send()
        await push.counts(dead=1, living=0)
    attempts = [headers["ce-attempt"] for _, headers, _ in receiver.requests]
    assert attempts == ["1", "2", "3", "4"]
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 1


async def test_a_refused_message_becomes_a_dead_letter_at_once(tmp_path: Path) -> None:
    script = answer(422, "webhook-delivery: abort-message")
    async with Receiver(script) as receiver, pushing(tmp_path, receiver) as push:
        push.topic()
        push.target(receiver)
        push.it.send(2)
        await push.counts(dead=2, living=0)
    assert len(receiver.requests) == 2


async def test_410_disables_the_target_and_keeps_the_messages(tmp_path: Path) -> None:
    async with Receiver(answer(410)) as receiver, pushing(tmp_path, receiver) as push:
        push.topic()
        target = push.target(receiver)
        push.it.send()
        await push.it.until(lambda: push.health().disabled == "gone")
        push.it.send(4)
        await push.counts(leased=0, living=5, dead=0)
        before = len(receiver.requests)
        await asyncio.sleep(0.3)
        assert len(receiver.requests) == before
        receiver.script = answer(200)
        # As PATCH push: on does.
        push.target(receiver, timeout_ms=target.timeout_ms)
        await push.counts(acked=5, dead=0)
    # The attempt that disabled it did not count.
    assert {headers["ce-attempt"] for _, headers, _ in receiver.requests} == {"1"}


@pytest.mark.parametrize("stored", [False, True])
async def test_429_throttles_and_counts_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """Messages wait for the target meanwhile, and no longer, whether the throttle is stored or
    not."""
    if stored:
        monkeypatch.setattr(pump, "THROTTLE_STORED_MS", 100)
    async with (
        Receiver(answer(429, "retry-after: 1")) as receiver,
        pushing(tmp_path, receiver) as push,
    ):
        topic = push.topic()
        push.target(receiver, concurrency=1)
        push.it.send()
        await receiver.arrived.wait()
        began_ms = push.it.clock.now_ms()
        receiver.script = answer(200)
        state, place = push.it.engine.state, (1, 1)

        def bound() -> str | None:
            return bounded_by(state, topic, topic.default, push.it.clock.now_ms())

        await push.it.until(lambda: bound() == "push_target")
        assert push.health().blocks == stored
        await push.counts(acked=1)
        assert push.it.clock.now_ms() - began_ms >= 950
        await push.it.until(lambda: not push.health().blocks)
        now_ms = push.it.clock.now_ms()
        spans = state.timeline.spans(("default", "t", "default"), place, 0, now_ms)
        blamed = [each for each in spans if each.cause == "push_target"]
        assert sum((each.until_ms or now_ms) - each.from_ms for each in blamed) >= 800, spans
        assert all(each.until_ms is not None for each in blamed)
    assert [headers["ce-attempt"] for _, headers, _ in receiver.requests] == ["1", "1"]


async def test_an_open_breaker_uses_up_no_retries_and_survives_a_restart(tmp_path: Path) -> None:
    async with Receiver(answer(500)) as receiver:
        async with pushing(tmp_path, receiver) as push:
            push.topic(settings=replace(QUICK, max_retry=100))
            push.target(receiver)
            push.it.send(20)
            await push.it.until(lambda: push.health().open_until_ms > 0)
            opened = push.health()
            assert push.pusher.health((1, 1)) == opened
            assert push.pusher.health((1, 2)) is None
            assert opened.reason == "answer 500 Internal Server Error"
            await push.counts(leased=0, living=20)
        receiver.script = answer(200)
        tried = len(receiver.requests)
        assert tried <= FAILURES_TO_OPEN + 1
        async with pushing(tmp_path, receiver) as push:
            assert push.health() == opened
            await push.it.until(lambda: len(receiver.requests) > tried)
            assert push.it.clock.now_ms() >= opened.open_until_ms
            await push.counts(acked=20)
            await push.it.until(lambda: push.health() == WELL)
    assert PAUSE_FIRST_MS == 5_000


async def test_a_disabled_target_stays_disabled_over_a_restart_and_a_checkpoint(
    tmp_path: Path,
) -> None:
    stored = Health(BY_OPERATOR)
    async with Receiver(answer(200)) as receiver:
        async with pushing(tmp_path, receiver) as push:
            push.topic()
            push.target(receiver, health=stored)
            push.it.send()
        async with pushing(tmp_path, receiver) as push:
            assert push.health() == stored
            push.it.engine.run_inline(push.it.engine.upkeep.checkpoint(push.it.clock.now_ms))
        async with pushing(tmp_path, receiver) as push:
            assert push.health() == stored
            assert push.it.engine.state.targets.targets[1, 1].secrets == (SECRET,)
            await asyncio.sleep(0.3)
            assert not receiver.requests


async def test_a_changed_target_gets_what_comes_next(tmp_path: Path) -> None:
    async with (
        Receiver(answer(200)) as first,
        Receiver(answer(200)) as second,
        pushing(tmp_path, first, second) as push,
    ):
        push.topic()
        push.target(first)
        push.it.send()
        await push.counts(acked=1)
        push.target(second)
        push.it.send(5)
        await push.counts(acked=6)
    assert (len(first.requests), len(second.requests)) == (1, 5)


@pytest.mark.parametrize("what", ["target", "topic", "group"])
async def test_nothing_is_pushed_once_its_place_is_gone(tmp_path: Path, what: str) -> None:
    """Also while a receive waits, and if a topic of the same name comes back."""
    async with Receiver(answer(200)) as receiver, pushing(tmp_path, receiver) as push:
        topic = push.topic()
        state, now_ms = push.it.engine.state, push.it.clock.now_ms()
        group = put_group(state, topic, "g", now_ms)
        target = Target(f"http://127.0.0.1:{receiver.port}/", (SECRET,))
        put_target(state, topic, group, target, now_ms)
        push.it.send()
        await push.it.until(lambda: group.counts.acked == 1)
        await asyncio.sleep(0.1)
        if what == "target":
            drop_target(state, topic, group, now_ms)
        elif what == "group":
            drop_group(state, topic, group, now_ms)
            put_group(state, topic, "g", now_ms)
        else:
            drop_topic(state, topic, now_ms)
            topic = push.topic()
            put_group(state, topic, "g", now_ms)
        push.it.send()
        await push.it.until(lambda: not push.pusher.pumps)
        await asyncio.sleep(0.5)
        assert len(receiver.requests) == 1
        assert not push.pusher.pumps
        again = topic.group("g")
        assert again is not None
        assert again.counts.living == 1


async def test_a_stop_returns_messages_in_flight(tmp_path: Path) -> None:
    async with Receiver(hang) as receiver:
        async with pushing(tmp_path, receiver) as push:
            push.topic()
            push.target(receiver, timeout_ms=60_000)
            push.it.send()
            await receiver.arrived.wait()
        receiver.script = answer(200)
        async with pushing(tmp_path, receiver) as push:
            # Not after the lease, which is longer than this test.
            await push.counts(acked=1)


async def test_an_error_of_the_broker_costs_an_attempt_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter(range(2))

    def broken(*given: Any) -> Any:
        if next(failures, None) is not None:
            raise RuntimeError("a mistake of ours")
        return make_request(*given)

    monkeypatch.setattr(pump, "make_request", broken)
    async with Receiver(answer(200)) as receiver, pushing(tmp_path, receiver) as push:
        push.topic()
        push.target(receiver)
        push.it.send(2)
        await push.counts(acked=2)
    assert "a mistake of ours" in caplog.text
    assert len(receiver.requests) == 2


async def test_rate_and_concurrency(tmp_path: Path) -> None:
    slow = Slow()
    async with Receiver(slow) as receiver, pushing(tmp_path, receiver) as push:
        push.topic()
        push.it.send(60)
        push.target(receiver, concurrency=4)
        await push.counts(acked=60)
        assert slow.most == 4
        # So few that the rate is what they wait for, however slow the machine.
        push.target(receiver, concurrency=4, per_second=5)
        push.it.send(10)
        began_ms = push.it.clock.now_ms()
        await push.counts(acked=70)
        # The bucket began full.
        assert push.it.clock.now_ms() - began_ms >= 900
        # Messages that waited for the rate say so, not that nobody asked.
        state, group = push.it.engine.state, push.group()
        spans = state.timeline.spans(
            ("default", "t", "default"), (group.topic, group.number), 0, push.it.clock.now_ms()
        )
        limited = sum(
            (span.until_ms or 0) - span.from_ms for span in spans if span.cause == "rate_limit"
        )
        assert limited >= 500, spans


async def test_targets_that_hang_delay_no_others(tmp_path: Path) -> None:
    """A hundred hang beside one that works, and none of them has ended when it is done."""
    async with (
        Receiver(hang) as hanging,
        Receiver(answer(200)) as receiver,
        pushing(tmp_path, hanging, receiver) as push,
    ):
        for number in range(100):
            push.topic(f"bad{number}")
            push.target(hanging, f"bad{number}", timeout_ms=30_000)
            push.it.send(5, topic=f"bad{number}")
        push.topic()
        push.target(receiver)
        await push.it.until(lambda: len(hanging.requests) == 100)
        for number in range(20):
            push.it.send()
            await push.counts(acked=number + 1)
        assert 100 <= push.pusher.share.in_flight <= 100 + 1
        assert len(hanging.requests) == 100
