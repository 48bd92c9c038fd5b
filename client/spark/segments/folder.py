"""Reads the newest valid checkpoint of a folder: topics, groups, and the number of valid rows.

The table is a snapshot as of that checkpoint. Counted rows never change; later rows are in the log,
which is not read, or after the counted rows, where they may be torn. States may be newer, since
they are written in place.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.checkpoint import (
    NO_CHECKPOINT,
    Checkpoint,
    FarRuns,
    SavedGroup,
    SavedTopic,
    checkpoints_among,
    decode_checkpoint,
)
from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.layout import HOUR_SHIFT, INDEX_BITS, INDEX_MASK, Int64Array
from pyspark_delaylog.segments.errors import DamagedError, SegmentError
from pyspark_delaylog.segments.options import Wanted

_TRIES: Final = 5
"""How often the folder is listed again when a checkpoint was deleted meanwhile."""


@dataclass(frozen=True)
class Folder:
    """A snapshot of a folder at one checkpoint."""

    path: str
    position: int
    as_of_ms: int
    hour_floor: int
    topics: tuple[SavedTopic, ...]
    hours: dict[int, HourCounts]
    """The hours that have folders. One that has ended may have been deleted."""
    far_from: int
    """Hours from this one on are far, unless they have a folder."""
    far_rows: dict[int, int]
    """Assigned row numbers by far hour."""
    runs: FarRuns
    broker: str
    """A digest that names the log: that of backups and of all nodes of a cluster."""

    @cached_property
    def _counts(self) -> tuple[Int64Array, Int64Array]:
        known = self.far_rows | {hour: each.rows for hour, each in self.hours.items()}
        hours = sorted(known)
        return np.array(hours, np.int64), np.array([known[hour] for hour in hours], np.int64)

    def is_far(self, keys: Int64Array) -> npt.NDArray[np.bool_]:
        """Which keys of a run belong to the far tier."""
        hours = keys >> INDEX_BITS
        out: npt.NDArray[np.bool_] = hours >= self.far_from
        early = [hour for hour in self.hours if hour >= self.far_from]
        return out & ~np.isin(hours, early) if early else out

    def holds(self, refs: Int64Array) -> npt.NDArray[np.bool_]:
        """Which refs name a row that the checkpoint counts."""
        hours, rows = self._counts
        if len(hours) == 0:
            return np.zeros(len(refs), np.bool_)
        which = refs >> HOUR_SHIFT
        at = np.minimum(np.searchsorted(hours, which), len(hours) - 1)
        index = refs & INDEX_MASK
        out: npt.NDArray[np.bool_] = (hours[at] == which) & (index >= 1) & (index <= rows[at])
        return out


class GroupTable:
    """The groups with one number, as columns by topic."""

    def __init__(self, topics: tuple[SavedTopic, ...], number: int, wanted: Wanted) -> None:
        self.number = number
        size = max((topic.number for topic in topics), default=0) + 2
        self._beyond = size - 1
        self.there = np.zeros(size, np.bool_)
        self.born = np.zeros(size, np.int64)
        self.floor = np.zeros(size, np.int64)
        self.purged_ms = np.zeros(size, np.int64)
        self.topic_code = np.zeros(size, np.int32)
        self.group_code = np.zeros(size, np.int32)
        self.names: list[str] = []
        codes: dict[str, int] = {}
        for code, topic in enumerate(topics):
            self.topic_code[topic.number] = code
            for group in topic.groups:
                if group.number == number and wants_group(wanted, topic, group):
                    at = topic.number
                    self.there[at] = True
                    self.born[at], self.floor[at] = group.born, group.floor
                    self.purged_ms[at] = group.purged_ms
                    self.group_code[at] = codes.setdefault(group.name, len(codes))
        self.names = list(codes)

    def places(self, topics: npt.NDArray[np.uint32]) -> Int64Array:
        """The column indexes of the rows' topics; deleted topics get an unused index."""
        return np.minimum(topics.astype(np.int64), self._beyond)


def wants_group(wanted: Wanted, topic: SavedTopic, group: SavedGroup) -> bool:
    """Whether any rows of a topic and group can match."""
    return (
        (wanted.topics is None or topic.name in wanted.topics)
        and (wanted.namespaces is None or topic.namespace in wanted.namespaces)
        and (wanted.groups is None or group.name in wanted.groups)
    )


def read_folder(path: str) -> Folder:
    """Read the newest valid checkpoint of a folder. Raises SegmentError."""
    for _ in range(_TRIES):
        try:
            return _read_folder(path)
        except FileNotFoundError:
            if not os.path.isdir(path):
                raise SegmentError(f"{path} does not exist, or is not a folder") from None
        except PermissionError as error:
            raise SegmentError(
                f"{error.filename}: permission denied; Spark's driver and executors must run as a "
                "user who may read the broker's folder"
            ) from None
    raise SegmentError(f"{path}: its checkpoints were deleted faster than they could be read")


def _read_folder(path: str) -> Folder:
    names = os.listdir(path)
    checkpoints = checkpoints_among(names)
    for name in reversed(checkpoints):
        with open(f"{path}/{name}", "rb") as file:
            found = decode_checkpoint(file.read())
        if found is not None:
            return _folder(path, found)
    if checkpoints:
        raise DamagedError(f"{path}/{checkpoints[-1]}", 0, "no checkpoint of the folder is valid")
    if "log" not in names:
        raise SegmentError(
            f"{path} contains neither a log nor a checkpoint: it is not a broker's data folder or"
            " a backup"
        )
    return _folder(path, NO_CHECKPOINT)


def _folder(path: str, checkpoint: Checkpoint) -> Folder:
    table, id_key = checkpoint.table, checkpoint.id_key
    far = table.far_hours()
    return Folder(
        path,
        checkpoint.position,
        checkpoint.told_ms,
        checkpoint.hour_floor,
        tuple(checkpoint.topics()),
        {hour: counts for hour, counts in checkpoint.hours.items() if counts.rows},
        table.far_from,
        dict(zip(far.tolist(), table.row_counts(far).tolist(), strict=True)),
        checkpoint.runs,
        # The key itself is secret.
        blake2b(id_key, digest_size=16).hexdigest() if id_key else "",
    )
