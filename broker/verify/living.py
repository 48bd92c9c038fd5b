"""How many rows of an hour live, by what a checkpoint says about topics, groups and floors.

Where a topic has several groups a row lives once for each that has to see it, and what lies below
a floor has ended without a state that says so: then the states alone do not tell.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NoReturn

import numpy as np

from delaylog.broker.engine.groups import DEFAULT_GROUP, Group
from delaylog.broker.engine.ready_queue import ReadyQueue
from delaylog.broker.engine.upkeep import fill_group
from delaylog.storage.delay_hour import DelayHour
from delaylog.storage.errors import CorruptionError
from delaylog.storage.file_system import FileSystem
from delaylog.storage.layout import STATE_ENDED_FIRST


def _no_run() -> NoReturn:
    raise AssertionError("nothing becomes ready here")


def groups_of(members: Mapping[str, Any]) -> dict[int, list[Group]] | None:
    """Groups by topic number, or None where the states alone tell what lives."""
    out: dict[int, list[Group]] = {}
    plain = True
    for topic in members["topics"]:
        groups = out[topic["number"]] = []
        for saved in topic["groups"]:
            group = Group(saved["number"], saved["name"], ReadyQueue(_no_run))
            fill_group(group, saved)
            groups.append(group)
        plain &= [group.number for group in groups] == [DEFAULT_GROUP] and not groups[0].floor
    # The rows of a topic that was dropped live for nobody.
    return None if plain and len(out) == members["next_topic"] - 1 else out


def count_living(
    fs: FileSystem, place: str, hour: int, groups: Mapping[int, list[Group]]
) -> Generator[None, None, int | None]:
    """Living rows, once for each group; None where damage (reported elsewhere) hides them."""
    folder = DelayHour(fs, place, hour)
    living = 0
    try:
        for rows in folder.scan_rows():
            index = rows["global_index"].astype(np.int64)
            for number in np.unique(rows["topic"]).tolist():
                mine = rows["topic"] == number
                for group in groups.get(number, ()):
                    entries = folder.states(group.number).get(index[mine])
                    alive = group.has(rows[mine]) & ~group.purged(rows[mine], entries)
                    alive &= entries["state"] < STATE_ENDED_FIRST
                    living += int(np.count_nonzero(alive))
            yield
    except CorruptionError:
        return None
    finally:
        folder.close()
    return living
