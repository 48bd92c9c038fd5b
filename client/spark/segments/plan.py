"""Assigns ranges of hours to tasks.

The rows of an hour are stored in extents, one per flush, with a checksum and the bounds of their
content. Extents that cannot match are skipped. The others are packed in order into tasks of similar
size: small hours share a task, a large hour is split over several. A run of the far tier, which has
rows of many hours, is read by one task.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.hours.extents import sound_extents
from delaylog.storage.hours.far.sorted_run import RunFacts
from delaylog.storage.layout import (
    EXTENT_SIZE,
    INDEX_BITS,
    INDEX_ENTRY_SIZE,
    STATE_ENTRY_SIZE,
    RowArray,
    hour_name,
)
from pyspark_delaylog.segments.errors import DamagedError
from pyspark_delaylog.segments.folder import Folder, read_folder, wants_group
from pyspark_delaylog.segments.options import SegmentOptions, Wanted

_ROW_BYTES: Final = INDEX_ENTRY_SIZE + STATE_ENTRY_SIZE


@dataclass(frozen=True, slots=True)
class RunSlice:
    """A run of the far tier."""

    run: RunFacts


@dataclass(frozen=True, slots=True)
class HourSlice:
    """Extents [first, first + count) of an hour; without extents, a number of damaged rows."""

    hour: int
    first: int
    count: int
    damaged: int = 0


Piece = HourSlice | RunSlice
_Place = tuple[Callable[[int, int], Piece], npt.NDArray[np.int64]]
"""A function that builds a piece of extents [first, first + count), and the extents to read."""


def _whole_run(run: RunFacts, first: int, count: int) -> RunSlice:
    assert (first, count) == (0, 1), "a run is read by one task"
    return RunSlice(run)


def hour_path(folder: str, hour: int) -> str:
    """The folder of an hour."""
    return f"{folder}/hours/{hour_name(hour)}"


def plan(folder: Folder, options: SegmentOptions) -> list[list[Piece]]:
    """The slices of each task. There are fewer tasks than requested if there is little to read."""
    wanted = options.wanted
    bits = _topic_bits(folder, wanted)
    weights: list[npt.NDArray[np.int64]] = []
    places: list[_Place] = []
    damaged: list[HourSlice] = []
    for hour, known in sorted(folder.hours.items()):
        if not wanted.hour_from <= hour < wanted.hour_to:
            continue
        if known.ended and not os.path.exists(f"{hour_path(folder.path, hour)}/delay.index"):
            continue
        try:
            extents = read_extents(folder.path, hour, known.rows, whole=not options.skip_corrupt)
        except FileNotFoundError as error:
            if gone_since(folder, hour):
                continue
            raise DamagedError(str(error.filename), 0, "missing") from None
        missing = known.rows - int(extents["count"].sum(dtype=np.int64))
        if missing and wanted.takes_damaged:
            damaged.append(HourSlice(hour, 0, 0, missing))
        keep = np.flatnonzero((extents["topic_bits"] & np.uint64(bits)) != 0)
        if len(keep):
            size = extents["count"][keep].astype(np.int64) * _ROW_BYTES
            if options.text:
                size += extents["log_size"][keep].astype(np.int64)
            weights.append(size)
            places.append((partial(HourSlice, hour), keep))
    for run in folder.runs.rows:
        first = max(folder.far_from, wanted.hour_from)
        if first <= run.last_key >> INDEX_BITS and run.first_key >> INDEX_BITS < wanted.hour_to:
            run_size = run.rows * _ROW_BYTES + (run.log_size if options.text else 0)
            weights.append(np.array([run_size], np.int64))
            places.append((partial(_whole_run, run), np.zeros(1, np.int64)))
    tasks = _pack(places, weights, options.partitions)
    if damaged:
        tasks = [[*damaged, *(tasks[0] if tasks else [])], *tasks[1:]]
    return tasks


def _topic_bits(folder: Folder, wanted: Wanted) -> int:
    bits = 0
    for topic in folder.topics:
        if any(wants_group(wanted, topic, group) for group in topic.groups):
            bits |= 1 << (topic.number % 64)
    return bits


def _pack(
    places: list[_Place],
    weights: list[npt.NDArray[np.int64]],
    count: int,
) -> list[list[Piece]]:
    if not places:
        return []
    weight = np.concatenate(weights)
    # An extent belongs to the task whose share of all bytes contains its middle.
    middle = np.cumsum(weight) - weight / 2
    tasks = np.minimum((middle * count / weight.sum()).astype(np.int64), count - 1)
    out: list[list[Piece]] = [[] for _ in range(count)]
    at = 0
    for piece, keep in places:
        mine = tasks[at : at + len(keep)]
        cuts = np.flatnonzero((np.diff(keep) != 1) | (np.diff(mine) != 0)) + 1
        for part in np.split(np.arange(len(keep)), cuts):
            first = int(keep[part[0]])
            out[int(mine[part[0]])].append(piece(first, len(part)))
        at += len(keep)
    return [task for task in out if task]


def read_extents(folder: str, hour: int, rows: int, *, whole: bool) -> RowArray:
    """The extents of the first `rows` rows of an hour, verified and contiguous.

    Raises DamagedError; if not `whole`, returns the extents before the damage instead.
    """
    path = f"{hour_path(folder, hour)}/extents"
    with open(path, "rb") as file:
        extents, _ = sound_extents(file.read())
    covered = np.cumsum(extents["count"], dtype=np.int64)
    number = int(np.searchsorted(covered, rows, "right"))
    found: RowArray = extents[:number]
    if whole and rows and (not number or int(covered[number - 1]) != rows):
        what = f"a damaged extent, or none; {rows} rows of the hour were durable"
        raise DamagedError(path, number * EXTENT_SIZE, what)
    return found


def gone_since(folder: Folder, hour: int) -> bool:
    """Whether an hour without files was deleted because all its messages had ended."""
    if folder.hours[hour].ended:
        return True
    newer = read_folder(folder.path)
    return newer.position > folder.position and (hour not in newer.hours or newer.hours[hour].ended)
