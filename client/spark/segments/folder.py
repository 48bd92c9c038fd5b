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
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.checkpoint import HOUR_FIELDS, checkpoints_among, decode_checkpoint
from delaylog.storage.layout import HOUR_MAX, HOUR_SHIFT, INDEX_BITS, INDEX_MASK, Int64Array
from pyspark_delaylog.segments.errors import DamagedError, SegmentError
from pyspark_delaylog.segments.wanted import Wanted

_TRIES: Final = 5
"""How often the folder is listed again when a checkpoint was deleted meanwhile."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of a topic. It sees messages from `born` on; a purge ended those below `floor`."""

    number: int
    name: str
    born: int
    floor: int
    purged_ms: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic."""

    number: int
    namespace: str
    name: str
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Hour:
    """The rows of an hour. An `ended` hour, without live messages, may have been deleted."""

    rows: int
    ended: bool
    keep_until_ms: int = 0
    position: int = 0
    """The end of the last log frame that changed the hour."""


@dataclass(frozen=True, slots=True)
class Run:
    """A file of the far tier, hours/far/NUMBER.run. A key is hour << 32 | row number."""

    number: int
    rows: int
    log_size: int
    first_key: int
    last_key: int


@dataclass(frozen=True, slots=True)
class Far:
    """The far tier: hours without a folder, because they are beyond the next 35."""

    hour_from: int
    """Hours from this one on are far, unless they have their own counts."""
    rows: dict[int, int]
    """Assigned row numbers by far hour."""
    runs: tuple[Run, ...]
    states: dict[int, tuple[Run, ...]]
    """The runs of states by group, newest first."""


NO_FAR: Final = Far(HOUR_MAX + 1, {}, (), {})


@dataclass(frozen=True)
class Folder:
    """A snapshot of a folder at one checkpoint."""

    path: str
    position: int
    as_of_ms: int
    hour_floor: int
    topics: tuple[Topic, ...]
    hours: dict[int, Hour]
    """The hours that have folders."""
    far: Far = NO_FAR
    broker: str = ""
    """A digest that names the log: that of backups and of all nodes of a cluster."""

    @cached_property
    def _counts(self) -> tuple[Int64Array, Int64Array]:
        known = self.far.rows | {hour: each.rows for hour, each in self.hours.items()}
        hours = sorted(known)
        return np.array(hours, np.int64), np.array([known[hour] for hour in hours], np.int64)

    def is_far(self, keys: Int64Array) -> npt.NDArray[np.bool_]:
        """Which keys of a run belong to the far tier."""
        hours = keys >> INDEX_BITS
        out: npt.NDArray[np.bool_] = hours >= self.far.hour_from
        early = [hour for hour in self.hours if hour >= self.far.hour_from]
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

    def __init__(self, topics: tuple[Topic, ...], number: int, wanted: Wanted) -> None:
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


def wants_group(wanted: Wanted, topic: Topic, group: Group) -> bool:
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
            return _folder(path, *found)
    if checkpoints:
        raise DamagedError(f"{path}/{checkpoints[-1]}", 0, "no checkpoint of the folder is valid")
    if "log" not in names:
        raise SegmentError(
            f"{path} contains neither a log nor a checkpoint: it is not a broker's data folder or"
            " a backup"
        )
    return Folder(path, 0, 0, 0, (), {})


def _folder(path: str, members: dict[str, Any], position: int) -> Folder:
    topics = tuple(
        Topic(
            topic["number"],
            topic["ns"],
            topic["name"],
            tuple(
                Group(each["number"], each["name"], each["born"], each["floor"], each["purged_ms"])
                for each in topic["groups"]
            ),
        )
        for topic in members["topics"]
    )
    hours = {}
    for hour, values in members["hours"].items():
        counts = dict(zip(HOUR_FIELDS, values, strict=True))
        if counts["rows"]:
            ended = counts["living"] == 0 and counts["guests"] == 0
            hours[hour] = Hour(counts["rows"], ended, counts["keep_until_ms"], counts["position"])
    return Folder(
        path,
        position,
        members["told_ms"],
        members["hour_floor"],
        topics,
        hours,
        _far(members["far"]),
        # The key itself is secret.
        blake2b(members["id_key"], digest_size=16).hexdigest(),
    )


def _far(saved: dict[str, Any]) -> Far:
    counts, tier = saved["hours"], saved["tier"]
    rows = np.frombuffer(counts["columns"]["rows"], "<i8")
    used = np.flatnonzero(rows).tolist()
    states = {
        group: tuple(run for one in reversed(sets) for run in _runs([one]))
        for group, sets in tier["states"].items()
    }
    return Far(
        counts["from"],
        {counts["base"] + at: int(rows[at]) for at in used},
        _runs(tier["rows"]),
        states,
    )


def _runs(sets: list[Any]) -> tuple[Run, ...]:
    """Runs of sets; a set is [level, its runs]."""
    return tuple(Run(*facts[:5]) for _, runs in sets for facts in runs)
