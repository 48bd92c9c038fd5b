"""Receives that come together, on a real node: nobody waits while there are messages."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.long_poll import long_poll
from delaylog.broker.calls.turn.receives import ReceiveMerger
from delaylog.broker.calls.turn.writes import Settling
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import Delivery
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.host import release_timer
from delaylog.storage.log.physical_log import PhysicalLog
from tests.broker.host.running_node import RunningNode, running

KEY = ("default", "t")
LONG_MS = 20_000


class Place(RunningNode):
    """A node with one topic."""

    def receive(self, *, wait_ms: int = LONG_MS, count: int = 1) -> asyncio.Task[Delivery | None]:
        return asyncio.create_task(long_poll(self.node, KEY, ReceiveCall(count, wait_ms)))


def a_place(folder: Path, **limits: Any) -> AbstractAsyncContextManager[Place]:
    return running(folder, node_class=Place, limits=Limits(**limits))


def refs(deliveries: list[Delivery | None]) -> list[int]:
    return [ref for each in deliveries if each is not None for ref in each.origins.tolist()]


async def test_everybody_gets_one(tmp_path: Path) -> None:
    """Of messages that are there, then of those that come; each once, under its own lease."""
    async with a_place(tmp_path) as place:
        place.send(30)
        calls = [place.receive() for _ in range(50)]
        for first in itertools.islice(asyncio.as_completed(calls), 30):
            await first
        place.send(20)
        found = await asyncio.gather(*calls)
        assert len(set(refs(found))) == 50
        assert len({each.lease for each in found if each is not None}) == 50


async def test_an_answer_that_is_full_leaves_the_rest_to_others_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaylog.broker.engine.deliver.receives.RECEIVE_BYTES_MAX", 1_000)
    async with a_place(tmp_path) as place:
        place.send(20, size=400)
        calls = [place.receive() for _ in range(20)]
        assert len(set(refs(await asyncio.gather(*calls)))) == 20


async def test_a_rate_limit_lets_them_through_one_after_the_other(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place:
        settings = TopicSettings.from_dict({"rate_limit": {"per_second": 50, "burst": 1}})
        place.node.engine.put_topic("t", settings, place.node.clock.now_ms())
        place.send(20)
        place.node.kick_dispatch()
        began = place.node.time_s()
        found = await asyncio.gather(*[place.receive() for _ in range(10)])
        assert len(set(refs(found))) == 10
        assert place.node.time_s() - began >= 0.15


@pytest.mark.parametrize("passes", range(5))
async def test_who_goes_away_takes_nothing_along(tmp_path: Path, passes: int) -> None:
    """However far its call had come: somebody else has the message at once, as a first delivery."""
    async with a_place(tmp_path) as place:
        calls = [place.receive(), place.receive()]
        await asyncio.sleep(0.01)
        place.send(1)
        await place.node.durable(place.node.engine.state.position)
        for _ in range(passes):
            await asyncio.sleep(0)
        calls[0].cancel()
        (first,) = await asyncio.gather(calls[0], return_exceptions=True)
        if isinstance(first, Delivery):
            calls[1].cancel()
            return
        second = await calls[1]
        assert second is not None
        assert second.attempts.tolist() == [1]


async def test_a_node_that_was_stopped_after_the_lease_hands_nothing_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node may lead when it goes on. If none does, the message is new to its consumer."""

    async def may_deliver(seconds: float) -> bool:
        return False

    async with a_place(tmp_path) as place:
        place.send(1)
        await place.node.durable(place.node.engine.state.position)
        with monkeypatch.context() as stopped:
            stopped.setattr(place.node.role, "delivers_until_ms", lambda: 0)
            stopped.setattr(place.node.role, "until_may_deliver", may_deliver)
            assert await place.node.turn.receives.receive(KEY, ReceiveCall(1, 0)) is None
        found = await place.receive()
        assert found is not None
        assert found.attempts.tolist() == [1]


async def test_a_message_that_comes_up_right_behind_the_look_is_not_slept_through(
    tmp_path: Path,
) -> None:
    """The consumer stands in the line before anything else can happen."""
    async with a_place(tmp_path) as place:
        node, state = place.node, place.node.engine.state
        call = place.receive()
        await asyncio.sleep(0)

        def come_up() -> None:
            # In the loop's queue this stands behind the look and before the consumer.
            place.send(1)
            state.log.write_pending()
            state.log.sync()
            node.run_due(unpaced=True)

        asyncio.get_running_loop().call_soon(come_up)
        began = node.time_s()
        found = await call
        assert found is not None
        assert node.time_s() - began < 5


@pytest.mark.parametrize("count", [1, 2])
async def test_who_takes_one_message_does_not_wait_for_the_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A batch would bring it no more; who takes several waits until they have gathered."""
    monkeypatch.setattr(release_timer, "LONGEST_S", 60.0)
    async with a_place(tmp_path) as place:
        place.node.releases.pace.shortest_s = 60.0
        for takes in (1, count):
            place.send(1)
            await place.node.durable(place.node.engine.state.position)
            call = place.receive(count=takes)
            done, _ = await asyncio.wait([call], timeout=20 if takes == 1 else 0.2)
            assert bool(done) is (takes == 1)
        call.cancel()


async def test_a_bound_of_leased_messages_lets_others_through_as_some_are_acked(
    tmp_path: Path,
) -> None:
    async with a_place(tmp_path, leased_max=5) as place:
        place.send(20)
        calls = {place.receive() for _ in range(20)}
        seen: set[int] = set()
        while calls:
            done, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            for call in done:
                found = call.result()
                assert found is not None
                seen |= set(found.origins.tolist())
                meant = Receipts(found.lease, found.origins)
                await place.node.turn.settles.settle(KEY, Settling("ack"), [meant])
        assert len(seen) == 20


async def test_a_begin_waits_for_no_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ack in the same turn does."""
    async with a_place(tmp_path) as place:
        place.send(2)
        found = await place.receive(count=2)
        assert found is not None
        go_on, sync = threading.Event(), PhysicalLog.sync

        def slow_sync(log: PhysicalLog, *given: Any) -> Any:
            go_on.wait(20)
            return sync(log, *given)

        monkeypatch.setattr(PhysicalLog, "sync", slow_sync)
        settle, (one, other) = place.node.turn.settles.settle, found.origins
        first = [Receipts(found.lease, np.array([one]))]
        second = [Receipts(found.lease, np.array([other]))]
        acked = asyncio.create_task(settle(KEY, Settling("ack"), second))
        try:
            await asyncio.wait_for(settle(KEY, Settling("begin", lease_ms=5_000), first), 10)
            assert not acked.done()
        finally:
            go_on.set()
        await acked


async def test_waiters_with_a_filter_are_not_woken_for_what_they_do_not_want(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_place(tmp_path) as place:
        node, looks = place.node, []
        look = ReceiveMerger.receive

        async def counted(self: Any, key: Any, call: ReceiveCall) -> Any:
            looks.append(call.only)
            return await look(self, key, call)

        monkeypatch.setattr(ReceiveMerger, "receive", counted)
        wanted = TagFilter.parse(["b"])
        calls = [
            asyncio.create_task(long_poll(node, KEY, ReceiveCall(1, 1_000, only=wanted)))
            for _ in range(100)
        ]
        await asyncio.sleep(0.05)
        looks.clear()
        place.send(50)
        assert await asyncio.gather(*calls) == [None] * 100
        assert len(looks) < 20, "one looks whether there is something for it"
