"""A cluster's feature level: raised once all members know it; then one that does not is refused.

Real members in one loop, over transports in memory that announce what a test says. The level above
ours is an artificial one: it adds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from delaylog.storage.log.frames import KNOWN_LEVEL
from tests.broker.cluster.real.lives import SIZE
from tests.broker.cluster.real.members import until
from tests.broker.cluster.real.world import World

NEXT_LEVEL = KNOWN_LEVEL + 1


@pytest.fixture(autouse=True)
def known_next_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program knows it; transports announce what a test says."""
    for module in (
        "delaylog.storage.log.frames",
        "delaylog.replication.replica",
        "delaylog.broker.cluster.greeting",
        "delaylog.broker.cluster.members.known_members",
    ):
        monkeypatch.setattr(f"{module}.KNOWN_LEVEL", NEXT_LEVEL)


def levels(world: World) -> list[int]:
    """Of the members that are there."""
    return [life.node.engine.state.level for life in world.there()]


def run(folder: Path, seed: int, course: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World(folder, seed)
        world.network.known = dict.fromkeys(range(SIZE), KNOWN_LEVEL)
        await world.run(lambda: course(world))

    asyncio.run(main())


async def upgrade(world: World, node: int, level: int) -> None:
    """Stop a member and begin it again as a program that knows another level."""
    life = world.lives[node]
    if life is not None and life in world.there():
        await life.stop()
    world.network.known[node] = level
    await world.begin(node)


def test_the_level_rises_once_all_members_know_it(tmp_path: Path) -> None:
    """Under load, one member after another; nothing acknowledged is lost, repeated or early."""

    async def course(world: World) -> None:
        for node in range(SIZE):
            assert await until(lambda: levels(world) == [KNOWN_LEVEL] * SIZE)
            await asyncio.sleep(0.5)
            assert levels(world) == [KNOWN_LEVEL] * SIZE
            await upgrade(world, node, NEXT_LEVEL)
        assert await until(lambda: levels(world) == [NEXT_LEVEL] * SIZE)

    run(tmp_path, 21, course)


def test_it_does_not_rise_while_a_member_is_away(tmp_path: Path) -> None:
    """It may come back as what it was."""

    async def course(world: World) -> None:
        gone = world.lives[2]
        assert gone is not None
        await gone.stop()
        for node in (0, 1):
            await upgrade(world, node, NEXT_LEVEL)
        assert await until(lambda: bool(world.leaders()))
        await asyncio.sleep(0.5)
        assert levels(world) == [KNOWN_LEVEL] * 2
        await upgrade(world, 2, NEXT_LEVEL)
        assert await until(lambda: levels(world) == [NEXT_LEVEL] * SIZE)

    run(tmp_path, 22, course)


def test_an_older_program_is_refused_afterwards(tmp_path: Path) -> None:
    """It gets no frame of the raised log, and the others go on."""

    async def course(world: World) -> None:
        for node in range(SIZE):
            await upgrade(world, node, NEXT_LEVEL)
        assert await until(lambda: levels(world) == [NEXT_LEVEL] * SIZE)
        await upgrade(world, 0, KNOWN_LEVEL)
        assert await until(lambda: world.network.refused == {0})
        # Node 0 may have led and failed to hand over. As raftos would, choose another node.
        world.wanted = {1}
        await asyncio.sleep(0.3)
        assert await until(lambda: bool(world.leaders()))
        await upgrade(world, 0, NEXT_LEVEL)

    run(tmp_path, 23, course)
