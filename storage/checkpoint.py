"""Checkpoints: position, counts and all small state, in one sealed file.

A checkpoint is written to a temporary file, fsynced and renamed, then the folder is fsynced. The
newest two are kept, so damage to one is survivable. A checkpoint is taken at a frame boundary and
promises that every row of frames below its position is durable in its hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from delaylog.storage.columns.packing import packed_parts, unpacked_members
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.files.whole_files import read_file, replace_file
from delaylog.storage.layout import CHECKPOINT_MAGIC, level_of_file, open_file, seal_parts
from delaylog.storage.log.levels import FIRST_LEVEL, check_level
from delaylog.storage.log.log_reader import check_begin

KEPT: Final = 2
HOUR_FIELDS: Final = ("rows", "living", "position", "keep_until_ms", "guests")
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


def checkpoint_names(fs: FileSystem, folder: str) -> list[str]:
    """Names of checkpoint files, oldest first."""
    return checkpoints_among(fs.listdir(folder))


def checkpoints_among(names: Iterable[str]) -> list[str]:
    """The names that are those of checkpoint files, oldest first."""
    found = [name for name in names if name.startswith(_PREFIX) and name[len(_PREFIX) :].isdigit()]
    return sorted(found, key=lambda name: int(name[len(_PREFIX) :]))


def read_checkpoint(fs: FileSystem, path: str) -> tuple[dict[str, Any], int] | None:
    """(state, position) of a checkpoint file, or None if it is damaged."""
    return decode_checkpoint(read_file(fs, path))


def decode_checkpoint(raw: bytes) -> tuple[dict[str, Any], int] | None:
    """(state, position) of a checkpoint's bytes, or None if they are damaged.

    `topics` is a `PackedList`: an iteration unpacks them one by one.
    Raises NewerFormatError or OlderFormatError for an intact checkpoint of another release.
    """
    opened = open_file(CHECKPOINT_MAGIC, raw)
    if opened is None:
        return None
    check_level(level_of_file(raw), "the checkpoint of this folder")
    payload, position, _ = opened
    return unpacked_members(payload, lists=_PACKED_LISTS), position


def load_newest(fs: FileSystem, folder: str) -> tuple[dict[str, Any], int] | None:
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
    """Write a checkpoint durably and remove all but the newest two; return these, oldest first.

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
    for name in checkpoint_names(fs, folder)[:-KEPT]:
        fs.unlink(f"{folder}/{name}")
    return kept_checkpoints(fs, folder)


def kept_checkpoints(fs: FileSystem, folder: str) -> list[Kept]:
    """Those of the newest two checkpoints that are intact, oldest first."""
    kept = []
    for name in checkpoint_names(fs, folder)[-KEPT:]:
        opened = open_file(CHECKPOINT_MAGIC, memoryview(read_file(fs, f"{folder}/{name}")))
        if opened is not None:
            _, position, behind = opened
            kept.append(Kept(position, position - behind))
    return kept
