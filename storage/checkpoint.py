"""Checkpoints: position, counts and all small state, in one sealed file.

A checkpoint is written to a temporary file, fsynced and renamed, then the folder is fsynced. The
newest two are kept, so damage to one is survivable. A checkpoint is taken at a frame boundary and
promises that every row of frames below its position is durable in its hour.

`Checkpoint` decodes the members that readers of folders use. The engine packs and restores the
others (`broker/engine/upkeep/saved_state.py`).

Large states are packed as msgpack in parts. `msgpack.packb` keeps the interpreter's lock from the
first byte to the last, so a thread that packs a checkpoint of 200 MB would stop the event loop for
a second. The loop can run between two parts. The bytes are the same.
"""

from __future__ import annotations

import io
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np

from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem, read_file, replace_file
from delaylog.storage.hours.far.sorted_run import RunFacts, run_size
from delaylog.storage.hours.hour_table import HourCounts, HourTable
from delaylog.storage.layout import (
    CHECKPOINT_MAGIC,
    INDEX_ENTRY,
    STATE_ENTRY,
    level_of_file,
    open_file,
    seal_parts,
)
from delaylog.storage.log.frames import FIRST_LEVEL, check_level
from delaylog.storage.log.log_reader import check_begin

# ----------------------------------------------------------------------------- packing in parts

PART_ITEMS: Final = 256
"""Items of one part: some tenths of a millisecond of packing."""
_LEVELS: Final = 2
"""How deep long lists and maps are packed in parts: the state, and its members."""


@dataclass(slots=True)
class PackedList:
    """A list whose items are already packed."""

    count: int
    blocks: list[bytes] = field(default_factory=list)
    """Items, one after another; no item is split between two blocks."""

    def __iter__(self) -> Iterator[Any]:
        for block in self.blocks:
            yield from _unpacker(block)


def unpacked_members(raw: bytes, *, lists: Container[str]) -> dict[str, Any]:
    """The map that `packed_parts` packed; members named in `lists` stay packed, as `PackedList`."""
    unpacker = _unpacker(raw)
    members: dict[str, Any] = {}
    for _ in range(unpacker.read_map_header()):
        name = unpacker.unpack()
        if name not in lists:
            members[name] = unpacker.unpack()
            continue
        count = unpacker.read_array_header()
        first = unpacker.tell()
        for _ in range(count):
            unpacker.skip()
        members[name] = PackedList(count, [raw[first : unpacker.tell()]])
    return members


def _unpacker(raw: bytes) -> msgpack.Unpacker:
    """Reads `raw` piece by piece, without a copy of all of it."""
    return msgpack.Unpacker(io.BytesIO(raw), strict_map_key=False, max_buffer_size=0)


def packed_parts(value: Any, levels: int = _LEVELS) -> Iterator[bytes]:
    """The parts of `msgpack.packb(value)`."""
    if levels and isinstance(value, Mapping):
        yield msgpack.Packer().pack_map_header(len(value))
        if levels == _LEVELS:
            for name, member in value.items():
                yield msgpack.packb(name)
                yield from packed_parts(member, levels - 1)
        else:
            yield from _in_parts([thing for pair in value.items() for thing in pair])
    elif levels and isinstance(value, (list, tuple)) and len(value) > PART_ITEMS:
        yield msgpack.Packer().pack_array_header(len(value))
        yield from _in_parts(value)
    elif isinstance(value, PackedList):
        yield msgpack.Packer().pack_array_header(value.count)
        yield from value.blocks
    else:
        yield msgpack.packb(value)


def _in_parts(items: list[Any] | tuple[Any, ...]) -> Iterator[bytes]:
    packer = msgpack.Packer()
    for first in range(0, len(items), PART_ITEMS):
        yield b"".join(map(packer.pack, items[first : first + PART_ITEMS]))


# ------------------------------------------------------------------------------------- the file

KEPT: Final = 2
_HOUR_FIELDS: Final = ("rows", "living", "position", "keep_until_ms", "guests")
"""The values that a checkpoint's `hours` has for each hour, in this order."""
_PREFIX: Final = "checkpoint-"
_PACKED_LISTS: Final = frozenset({"topics"})
"""Lists that stay packed: a hundred thousand items take seconds to unpack, and most readers need
none of them."""


class Kept(NamedTuple):
    """The part of the log that a retained checkpoint needs."""

    position: int
    log_from: int
    """Position of the first frame that a start from this checkpoint reads: at or before its own
    position.
    """


class SavedGroup(NamedTuple):
    """A group of a topic. It sees messages from `born` on; a purge ended those below `floor`."""

    number: int
    name: str
    born: int
    floor: int
    purged_ms: int


class SavedTopic(NamedTuple):
    """A topic."""

    number: int
    namespace: str
    name: str
    groups: tuple[SavedGroup, ...]


@dataclass(frozen=True, slots=True)
class FarRuns:
    """The runs of the far tier that a checkpoint names. They exist as long as it does."""

    rows: tuple[RunFacts, ...] = ()
    states: Mapping[int, tuple[RunFacts, ...]] = field(default_factory=dict)
    """By group, newest first: of several states of a row, the first one counts."""

    def each(self) -> Iterator[tuple[np.dtype[Any], RunFacts]]:
        """Every run, with the layout of its rows."""
        yield from ((INDEX_ENTRY, facts) for facts in self.rows)
        for runs in self.states.values():
            yield from ((STATE_ENTRY, facts) for facts in runs)

    @property
    def sizes(self) -> dict[str, int]:
        """The names of the files in `hours/far`, and their sizes."""
        return {f"{facts.number}.run": run_size(facts, dtype) for dtype, facts in self.each()}


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file. What it does not have reads as empty."""

    members: dict[str, Any]
    """All of it; the owner of a member packs and restores it."""
    position: int
    behind: int = 0
    """Bytes of log before `position` that a start reads, too."""

    @property
    def log_from(self) -> int:
        """Position of the first frame that a start from this checkpoint reads."""
        return self.position - self.behind

    @property
    def told_ms(self) -> int:
        """When it was taken, by the leader's clock."""
        return self._number("told_ms")

    @property
    def epoch(self) -> int:
        """The count of epochs."""
        return self._number("epoch")

    @property
    def hour_floor(self) -> int:
        """No new row gets an hour below this one."""
        return self._number("hour_floor")

    @property
    def hour_floor_top(self) -> int:
        """The highest floor so far: hours below it may have been removed."""
        return self._number("hour_floor_top")

    def _number(self, name: str) -> int:
        found: int = self.members.get(name, 0)
        return found

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """The epochs, and where each begins.

        Empty if it was taken before the first epoch: by a member that was stopped at once.
        """
        return [(epoch, start) for epoch, start in self.members.get("epochs", ())]

    @property
    def id_key(self) -> bytes:
        """Key of the hashes of ids. It is secret."""
        found: bytes = self.members.get("id_key", b"")
        return found

    def topics(self) -> Iterator[SavedTopic]:
        """Every topic, unpacked one by one."""
        for topic in self.members.get("topics", ()):
            groups = (
                SavedGroup(*(each[name] for name in SavedGroup._fields)) for each in topic["groups"]
            )
            yield SavedTopic(topic["number"], topic["ns"], topic["name"], tuple(groups))

    @cached_property
    def hours(self) -> dict[int, HourCounts]:
        """Counts of the hours that have folders."""
        saved = self.members.get("hours", {})
        return {
            hour: HourCounts(**dict(zip(_HOUR_FIELDS, values, strict=True)))
            for hour, values in saved.items()
        }

    @cached_property
    def table(self) -> HourTable:
        """Counts of all hours, far ones too."""
        table = HourTable()
        table.restore(self.hours, self._far.get("hours"))
        return table

    @cached_property
    def runs(self) -> FarRuns:
        """The runs of the far tier."""
        tier = self._far.get("tier")
        if tier is None:
            return FarRuns()
        states = {group: _runs(reversed(sets)) for group, sets in tier["states"].items()}
        return FarRuns(_runs(tier["rows"]), states)

    @property
    def _far(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.members.get("far", {})
        return found


NO_CHECKPOINT: Final = Checkpoint({}, 0)
"""A folder without a checkpoint: its log begins at 0, and has everything."""


def _runs(sets: Iterable[Any]) -> tuple[RunFacts, ...]:
    """Runs of sets; a set is [level, its runs]."""
    return tuple(RunFacts(*facts) for _, runs in sets for facts in runs)


def saved_hours(near: Mapping[int, HourCounts]) -> dict[int, list[int]]:
    """The member `hours` of a checkpoint."""
    return {hour: [getattr(counts, name) for name in _HOUR_FIELDS] for hour, counts in near.items()}


def checkpoint_names(fs: FileSystem, folder: str) -> list[str]:
    """Names of checkpoint files, oldest first."""
    return checkpoints_among(fs.listdir(folder))


def checkpoints_among(names: Iterable[str]) -> list[str]:
    """The names that are those of checkpoint files, oldest first."""
    found = [name for name in names if name.startswith(_PREFIX) and name[len(_PREFIX) :].isdigit()]
    return sorted(found, key=lambda name: int(name[len(_PREFIX) :]))


def read_checkpoint(fs: FileSystem, path: str) -> Checkpoint | None:
    """The content of a checkpoint file, or None if it is damaged."""
    return decode_checkpoint(read_file(fs, path))


def decode_checkpoint(raw: bytes) -> Checkpoint | None:
    """The checkpoint in these bytes, or None if they are damaged.

    The member `topics` is a `PackedList`: an iteration unpacks them one by one.
    Raises NewerFormatError or OlderFormatError for an intact checkpoint of another release.
    """
    opened = open_file(CHECKPOINT_MAGIC, raw)
    if opened is None:
        return None
    check_level(level_of_file(raw), "the checkpoint of this folder")
    payload, position, behind = opened
    return Checkpoint(unpacked_members(payload, lists=_PACKED_LISTS), position, behind)


def load_newest(fs: FileSystem, folder: str) -> Checkpoint | None:
    """The newest intact checkpoint, or None in a folder without one, whose log begins at 0.

    Raises OlderFormatError or NewerFormatError for the folder of another release, and
    CorruptionError when checkpoints exist and none can be read: starting without one would
    silently drop every pending message.
    """
    names = checkpoint_names(fs, folder)
    for name in reversed(names):
        found = read_checkpoint(fs, f"{folder}/{name}")
        if found is not None:
            return found
    if names:
        raise CorruptionError("no checkpoint can be read", path=f"{folder}/{names[-1]}", position=0)
    check_begin(fs, f"{folder}/log")
    return None


def write_checkpoint(
    fs: FileSystem,
    folder: str,
    state: Mapping[str, Any],
    position: int,
    log_from: int | None = None,
) -> list[Kept]:
    """Write a checkpoint durably; return those of the newest two that are intact, oldest first.

    Older ones are removed if both are intact.

    `log_from` = the position from which a start from it reads the log, if not its own position.
    """
    behind = 0 if log_from is None else position - log_from
    assert 0 <= behind <= position, "a start reads the log from the checkpoint's position or before"
    parts = list(packed_parts(state))
    # A node that was stopped before the log had any frames has stored no level yet.
    level = max(state.get("level", 0), FIRST_LEVEL)
    names = checkpoint_names(fs, folder)
    number = int(names[-1][len(_PREFIX) :]) + 1 if names else 1
    head = seal_parts(CHECKPOINT_MAGIC, parts, a=position, b=behind, level=level)
    replace_file(fs, f"{folder}/{_PREFIX}{number}", [head, *parts])
    fs.sync_folder(folder)
    kept = kept_checkpoints(fs, folder)
    # A damaged one frees no older one either: nothing else that a start from it needs is removed.
    if len(kept) == KEPT:
        for name in checkpoint_names(fs, folder)[:-KEPT]:
            fs.unlink(f"{folder}/{name}")
    return kept


def kept_checkpoints(fs: FileSystem, folder: str) -> list[Kept]:
    """Those of the newest two checkpoints that are intact, oldest first."""
    kept = []
    for name in checkpoint_names(fs, folder)[-KEPT:]:
        opened = open_file(CHECKPOINT_MAGIC, memoryview(read_file(fs, f"{folder}/{name}")))
        if opened is not None:
            _, position, behind = opened
            kept.append(Kept(position, position - behind))
    return kept
