"""Random schedules of whole clusters: no invariant breaks, and after the faults all is served.

Method: `World` runs the real classes from a seed; every fifth schedule ends in a calm in which
somebody must come to serve and hand out all that is due. A failure prints the seed: run
`World(seed, size).run(steps)` to see it again.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.replication.full_disk import FullDisk, FullWorld
from tests.replication.memory_disk import MemoryDisk
from tests.replication.real_disk import RealDisk
from tests.replication.world import World

CALM_MS = 3_000
"""Longer than a resignation, a refused try and a fetch together; a cluster needs far less."""


def run(
    seeds: range,
    *,
    size: int,
    steps: int,
    changes: float = 0.0,
    wipes: float | None = None,
    disk: type[MemoryDisk] = MemoryDisk,
) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        make = FullWorld if disk is FullDisk else World
        world = make(seed, size, changes=changes, wipes=wipes, disk=disk)
        try:
            world.run(steps)
            if seed % 5 == 0:
                world.calm(CALM_MS)
        except BaseException as error:
            more = f"changes={changes}, wipes={wipes}, disk={disk.__name__}"
            error.add_note(f"{make.__name__}({seed}, {size}, {more}).run({steps})")
            raise
        total.update(world.judge.stats)
        total["refused"] += world.refused
        disks = (node.disk for node in world.nodes)
        total["full"] += sum(each.refused for each in disks if isinstance(each, FullDisk))
    return total


@pytest.mark.long
def test_three_nodes() -> None:
    total = run(range(2_000), size=3, steps=400)
    # The schedules are worth something: they commit, fail over, hand out and hand over.
    assert total["commits"] > 8_000
    assert total["leaders"] > 3_000
    assert total["handed"] > 5_000
    assert total["repeats"] > 50
    assert total["heirs"] > 100
    # Sound nodes send nothing that another one refuses.
    assert total["refused"] == 0


@pytest.mark.long
def test_five_nodes() -> None:
    total = run(range(300), size=5, steps=1_000)
    assert total["commits"] > 600
    assert total["leaders"] > 250


def test_seven_nodes() -> None:
    assert run(range(60), size=7, steps=1_500)["leaders"] > 30


def test_one_node() -> None:
    total = run(range(200), size=1, steps=200)
    assert total["leaders"] > 200
    assert total["commits"] > 1_000


def test_real_disks() -> None:
    """The physical log, the slots and the meta file instead of the simulator's own."""
    total = run(range(200), size=3, steps=400, disk=RealDisk)
    assert total["commits"] > 600
    assert total["leaders"] > 200


@pytest.mark.long
def test_full_disks() -> None:
    """What finds no space is as good as not asked for."""
    total = run(range(600), size=3, steps=400, disk=FullDisk)
    total += run(range(600, 900), size=3, steps=800, changes=0.05, wipes=0.5, disk=FullDisk)
    assert total["full"] > 1_000
    assert total["refused"] == 0
    assert total["leaders"] > 1_000
    assert total["commits"] > 3_000


@pytest.mark.long
def test_members_change() -> None:
    """Of three nodes and two spares, three to five vote; who was removed goes on standing."""
    total = run(range(1_000), size=3, steps=800, changes=0.03)
    assert total["changed"] > 300
    assert total["commits"] > 8_000
    assert total["refused"] == 0


@pytest.mark.long
def test_members_change_and_disks_are_lost() -> None:
    """New nodes and nodes whose disk was lost come in blank, and any leader may let them vote."""
    total = run(range(400), size=3, steps=800, changes=0.05, wipes=0.5)
    assert total["wiped"] > 200
    assert total["readmissions"] > 30
    assert total["changed"] > 100


@pytest.mark.long
def test_up_to_seven_members_change() -> None:
    total = run(range(60), size=5, steps=3_000, changes=0.03, wipes=0.5)
    assert total["changed"] > 15
    assert total["commits"] > 150


def test_members_change_on_real_disks() -> None:
    assert run(range(60), size=3, steps=800, changes=0.05, disk=RealDisk)["changed"] > 15


@pytest.mark.drill
@pytest.mark.parametrize("part", range(5))
def test_many_schedules(part: int) -> None:
    first = 1_000_000 + part * 5_000
    run(range(first, first + 5_000), size=3, steps=400)
    run(range(first, first + 1_000), size=5, steps=1_000)
    run(range(first, first + 1_000), size=3, steps=400, disk=RealDisk)


@pytest.mark.drill
@pytest.mark.parametrize("part", range(10))
def test_many_changes_of_members(part: int) -> None:
    """20,000 schedules in all: three to seven nodes, blank newcomers, lost disks, stale leaders."""
    first = 2_000_000 + part * 2_000
    run(range(first, first + 600), size=3, steps=800, changes=0.03)
    run(range(first + 600, first + 1_300), size=3, steps=800, changes=0.06, wipes=0.5)
    run(range(first + 1_300, first + 2_000), size=5, steps=3_000, changes=0.03, wipes=0.4)
