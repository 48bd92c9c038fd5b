"""Counts the living rows of an hour, by a checkpoint's topics, groups and floors.

States alone are not enough in two cases. If a topic has several groups, a row lives once for each
group that must see it. Rows below a group's floor have ended without a state that says so.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final, NoReturn

import numpy as np

from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, Group
from delaylog.broker.engine.upkeep.saved_state import fill_group
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.folder.checkpoint import NO_CHECKPOINT, Checkpoint
from delaylog.storage.hours.hour_rewrite import path_of
from delaylog.storage.layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    STATE_ENDED_FIRST,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    StateArray,
    group_of_name,
)

_ROWS: Final = 65_536


def _no_run(_topic: int) -> NoReturn:
    raise AssertionError("no message becomes ready here")


def groups_of(checkpoint: Checkpoint) -> dict[int, list[Group]] | None:
    """Groups by topic number, or None if the states alone tell which rows are living."""
    members = checkpoint.members
    if checkpoint is NO_CHECKPOINT:
        return None
    out: dict[int, list[Group]] = {}
    plain = True
    for topic in members["topics"]:
        groups = out[topic["number"]] = []
        for saved in topic["groups"]:
            group = Group(saved["number"], saved["name"], _no_run)
            fill_group(group, saved)
            groups.append(group)
        plain &= topic["next_group"] == DEFAULT_GROUP + 1 and [g.floor for g in groups] == [0]
    # Rows of a dropped topic or group are living in no group, but have no state that says so.
    return None if plain and len(out) == members["next_topic"] - 1 else out


def count_living(
    fs: FileSystem, place: str, rows: int, groups: Mapping[int, list[Group]]
) -> Generator[None, None, int]:
    """Count the living rows among the first `rows` of an hour, once for each group."""
    living = 0
    index = fs.open(path_of(fs, place, "delay.index"))
    states: dict[int, File] = {}
    for name in fs.listdir(place):
        if (number := group_of_name(name)) is not None:
            states[number] = fs.open(f"{place}/{name}")
    try:
        for first in range(0, rows, _ROWS):
            count = min(_ROWS, rows - first)
            raw = index.pread(count * INDEX_ENTRY_SIZE, first * INDEX_ENTRY_SIZE)
            part = np.frombuffer(
                raw[: len(raw) // INDEX_ENTRY_SIZE * INDEX_ENTRY_SIZE], INDEX_ENTRY
            )
            for number in np.unique(part["topic"]).tolist():
                mine = part["topic"] == number
                for group in groups.get(number, ()):
                    entries = _entries(states.get(group.number), first, len(part))[mine]
                    alive = group.has(part[mine]) & ~group.purged(part[mine], entries)
                    alive &= entries["state"] < STATE_ENDED_FIRST
                    living += int(np.count_nonzero(alive))
            yield
    finally:
        for file in (index, *states.values()):
            file.close()
    return living


def _entries(file: File | None, first: int, count: int) -> StateArray:
    """States of rows; a missing or short file reads as zeros."""
    size = count * STATE_ENTRY_SIZE
    raw = b"" if file is None else file.pread(size, first * STATE_ENTRY_SIZE)
    return np.frombuffer(raw.ljust(size, b"\0"), STATE_ENTRY)
