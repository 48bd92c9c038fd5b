"""The judges of a run: the checker of histories with what its report reached, and rot of a disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, Final

from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.history import RULES, CheckSettings, HistoryChecker
from delaylog.broker.rules.schedules import instants_of
from delaylog.storage.checkpoint import checkpoint_names, load_newest
from delaylog.storage.errors import CorruptionError
from delaylog.storage.log.frames import Frame
from delaylog.storage.log.log_reader import scan_segment, segment_bases, segment_name
from delaylog.storage.log.tick_slots import newest_slot
from tests.simulation.broker import FOLDER, damages
from tests.simulation.disk import SimDisk

if TYPE_CHECKING:
    from tests.simulation.world import World


_REUSED: Final = re.compile(r"s\d+$")
"""Ids that several messages have."""


def check_histories(world: World) -> None:
    """Check the history of each topic."""
    options = world.plan.options
    kinds = {kind for kind, _ in world.plan.actors.values()}
    rules = set(RULES)
    if options["order"] != "time" or kinds & {"select", "transact"}:
        # Rows of a transaction arrive when they are published, after the commit.
        rules.discard("G")
    if options["drift"]:
        # After years the broker's clock is minutes off the clients', which know the instants.
        rules.discard("K")
    settings = CheckSettings(
        bound_ms=30_000,
        lease_ms=options["lease_ms"],
        # A slow broker fires late, and what a change of the schedule overtakes is not fired.
        slack_ms=2_000 if "schedule" in kinds else 250,
        rules=frozenset(rules),
    )
    for topic, items in world.records.items.items():
        checker = HistoryChecker(settings, instants=instants_of)
        if options["merge_leased"] != "keep" or options["groups"] > 1:
            # The checker takes an id for one living message: a successor is a second one, and so
            # is a message that replaces another one in some of the groups.
            items = [each for each in items if not _REUSED.match(getattr(each, "id", None) or "")]
        checker.extend(items)
        report = checker.finish()
        for rule, findings in report.rules.items():
            for example in findings.examples[:3]:
                world.violated(f"rule {rule}", f"{topic} {example.id}: {example.text}")
        for cause, count in report.duplicates.items():
            if count:
                world.marks.reached("a message was delivered again")
                world.marks.reached(f"delivered again: {cause}")
        if report.fates.expired:
            world.marks.reached("a message expired")


# ----------------------------------------------------------------------------------------- rot

_LOG = f"{FOLDER}/log"


def check_rot(world: World, random: Random) -> None:
    """Damage a copy of the disk where bytes are known to be durable, which must be noticed."""
    disk = SimDisk()
    disk.root = deepcopy(world.broker.disk.root)
    if not disk.exists(f"{FOLDER}/tick"):
        return
    newest = load_newest(disk, FOLDER)
    with closing(disk.open(f"{FOLDER}/tick")) as file:
        tick, _ = newest_slot(file)
    replayed = 0 if newest is None else newest.position
    durable = max(replayed, 0 if tick is None else tick.durable_end)
    frames = [each for each in _frames(disk) if each.end <= durable]
    if not frames:
        return
    if newest is not None and random.random() < 0.3:
        _rot_checkpoints(world, disk, random)
        return
    frame = random.choice(frames)
    at = frame.header.position
    bases = segment_bases(disk, _LOG)
    base = max(each for each in bases if each <= at)
    path = f"{_LOG}/{segment_name(base)}"
    data = disk.content(path)
    here = slice(at - base, frame.end - base)
    alike = [each for each in frames if len(each.payload) == len(frame.payload)]
    way = random.choice(("flip", "misdirected", "misdirected", "cut", "gap"))
    if way == "gap":
        disk.unlink(path)
        at = base
    elif way == "cut":
        for later in bases[bases.index(base) + 1 :]:
            disk.unlink(f"{_LOG}/{segment_name(later)}")
        disk.put(path, data[: here.start])
    elif way == "flip":
        disk.flip(path, random.randrange(here.start * 8, here.stop * 8))
    else:
        other = random.choice(alike)
        if other is frame:
            return
        from_base = max(each for each in bases if each <= other.header.position)
        there = slice(other.header.position - from_base, other.end - from_base)
        block = disk.content(f"{_LOG}/{segment_name(from_base)}")[there]
        disk.put(path, data[: here.start] + block + data[here.stop :])
    what = f"{way} at {at} of [{bases[0]}, {durable}), replayed from {replayed}"
    world.marks.reached(f"rot: {way}")
    if not damages(disk) and not (way == "gap" and base == bases[0]):
        world.violated("rot", f"verify accepts: {what}")
    if at >= replayed and _starts(world, disk):
        world.violated("rot", f"a start accepts: {what}")


def _rot_checkpoints(world: World, disk: SimDisk, random: Random) -> None:
    """A start needs one: without the newest it succeeds, unless there was no other yet."""
    names = checkpoint_names(disk, FOLDER)
    names = random.choice((names, names[-1:]))
    for name in names:
        disk.flip(f"{FOLDER}/{name}", random.randrange(256))
    left = len(checkpoint_names(disk, FOLDER)) - len(names)
    world.marks.reached(f"rot: {left} checkpoints are left")
    may_start = left > 0 or (len(names) == 1 and segment_bases(disk, _LOG)[0] > 0)
    if not damages(disk) or _starts(world, disk) != may_start:
        world.violated("rot", f"of {len(names) + left} checkpoints {names} are damaged")


def _starts(world: World, disk: SimDisk) -> bool:
    try:
        Engine(disk, FOLDER, Setup(random=Random(0)), now_ms=world.broker_ms())
    except CorruptionError:
        world.marks.reached("a start was refused")
        return False
    return True


def _frames(disk: SimDisk) -> Iterator[Frame]:
    for base in segment_bases(disk, _LOG):
        with closing(disk.open(f"{_LOG}/{segment_name(base)}")) as file:
            yield from scan_segment(file, base, base)
