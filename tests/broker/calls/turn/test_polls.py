"""A receive without a task whose client leaves, however far it has come, keeps nothing from others.

Neither does it keep a wake-up to itself, nor messages under lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.long_poll import Poll
from delaylog.broker.calls.turn.receives import Looked
from delaylog.broker.engine.model import Delivery
from tests.broker.calls.turn.test_merged_receives import KEY, a_place


class Asked(Poll[Delivery | None]):
    """A receive of one message; `leaves` = its client leaves before its task begins."""

    def __init__(self, node: ServingNode, *, leaves: bool = False) -> None:
        super().__init__(node, KEY, ReceiveCall(1, 20_000))
        self.leaves = leaves
        self.told: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        self.left = asyncio.Event()
        self.look()

    def made(self, found: Delivery | None) -> Delivery | None:
        return found

    def reply(self, made: Delivery | None) -> None:
        self.told.set_result(made)

    def fail(self, error: BaseException) -> None:
        self.told.set_exception(error)

    def _go_on(self, found: Looked) -> None:
        super()._go_on(found)
        if self.leaves:
            self.leave()

    def leave(self) -> None:
        """The client leaves."""
        self.cancel()
        self.left.set()


async def is_first_delivery(to: Asked) -> bool:
    async with asyncio.timeout(30):
        found = await to.told
    return found is not None and found.attempts.tolist() == [1]


@pytest.mark.parametrize("passes", range(5))
async def test_who_leaves_takes_no_wake_up_along(tmp_path: Path, passes: int) -> None:
    async with a_place(tmp_path) as place:
        leaves, stays = Asked(place.node), Asked(place.node)
        await asyncio.sleep(0.01)
        place.send(1)
        await place.node.durable(place.node.engine.state.position)
        for _ in range(passes):
            await asyncio.sleep(0)
        if leaves.told.done():
            stays.leave()
            return
        leaves.leave()
        assert await is_first_delivery(stays)


async def test_who_leaves_while_its_lease_is_written_keeps_no_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log thread writes, so that the answer waits for it."""
    waiting: asyncio.Queue[Callable[[None], None]] = asyncio.Queue()
    async with a_place(tmp_path) as place:
        with monkeypatch.context() as busy:
            busy.setattr(place.node, "write_through", lambda: False)
            busy.setattr(place.node, "when_durable", lambda _, tell: waiting.put_nowait(tell))
            leaves = Asked(place.node)
            place.send(1)
            async with asyncio.timeout(30):
                written = await waiting.get()
        leaves.leave()
        written(None)
        assert await is_first_delivery(Asked(place.node))


async def test_a_task_that_has_not_begun_keeps_no_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate was shut when the messages were to be handed out."""
    async with a_place(tmp_path) as place:
        with monkeypatch.context() as shut:
            shut.setattr(place.node.turn.receives, "in_time", lambda: False)
            leaves = Asked(place.node, leaves=True)
            place.send(1)
            async with asyncio.timeout(30):
                await leaves.left.wait()
        assert await is_first_delivery(Asked(place.node))


async def test_a_task_that_has_not_begun_keeps_no_wake_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate was shut when it was woken."""
    async with a_place(tmp_path) as place:
        leaves, stays = Asked(place.node, leaves=True), Asked(place.node)
        await asyncio.sleep(0.01)
        with monkeypatch.context() as shut:
            shut.setattr(place.node.role, "may_deliver", lambda: leaves.gone)
            place.send(1)
            async with asyncio.timeout(30):
                await leaves.left.wait()
        assert await is_first_delivery(stays)
