"""Compares the data folders of all nodes after a drill, and verifies each of them.

Rows, records, second indexes and states are determined by the log alone, so they are equal byte by
byte on all nodes. Some things may differ, because each node does them in its own time: the ranges
in which it flushed an hour (`extents`), the removal of ended hours, compaction, and the runs of the
far tier. Only `verify` checks compacted hours and runs. A node that lost its majority while it
stopped makes no last checkpoint: its hours lack what only its log has, so they are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from delaylog.broker.verify import Report, verify_folder
from delaylog.broker.verify.physical_log import verify_log
from delaylog.storage.checkpoint import (
    NO_CHECKPOINT,
    Checkpoint,
    checkpoint_names,
    read_checkpoint,
)
from delaylog.storage.files.os_file_system import ReadOnlyFileSystem
from delaylog.storage.layout import (
    EXTENT,
    EXTENT_REWRITTEN,
    EXTENT_SIZE,
    INDEX_ENTRY_SIZE,
    STATE_ENTRY_SIZE,
    hour_of_name,
)

_OWN: Final = frozenset({"extents"})
_CHUNK_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Comparison:
    """How much was compared, and what was damaged or different."""

    hours: int = 0
    rows: int = 0
    wrong: list[str] = field(default_factory=list)
    unsaved: list[int] = field(default_factory=list)
    """Nodes without a last checkpoint: verified, not compared."""


def compare(folders: Mapping[int, Path]) -> Comparison:
    """Verify each folder, and compare every hour that two nodes have, file by file."""
    found = Comparison(unsaved=[node for node, folder in folders.items() if is_unsaved(folder)])
    for node, folder in folders.items():
        report = Report()
        for _ in verify_folder(ReadOnlyFileSystem(), str(folder), report):
            pass
        found.wrong += [f"node {node}, damaged: {damage.line()}" for damage in report.damage]
        found.rows = max(found.rows, report.rows)
    hours: set[str] = set()
    for (one, left), (other, right) in combinations(folders.items(), 2):
        if one in found.unsaved or other in found.unsaved:
            continue
        both = _hours(left) & _hours(right)
        hours |= both
        for hour in sorted(both):
            if _compacted(left, hour) or _compacted(right, hour):
                # Each node compacts in its own time. `verify` has checked these files.
                continue
            for name in sorted((_files(left, hour) | _files(right, hour)) - _OWN):
                at = _difference(left / "hours" / hour / name, right / "hours" / hour / name)
                if at is not None:
                    where = f"hours/{hour}/{name}, byte {at:,}{_row(name, at)}"
                    found.wrong.append(f"nodes {one} and {other} differ in {where}")
    found.hours = len(hours)
    return found


def is_unsaved(folder: Path) -> bool:
    """Whether the log has changes behind the newest checkpoint, which hours may not have yet."""
    after = _newest(folder).position
    frames = verify_log(ReadOnlyFileSystem(), str(folder), Report(), after=after, durable_end=0)
    while True:
        try:
            next(frames)
        except StopIteration as end:
            return bool(end.value.changed)


def _hours(folder: Path) -> set[str]:
    """Names of the near hours that have folders; the folder of a far hour may be incomplete."""
    place = folder / "hours"
    if not place.is_dir():
        return set()
    table = _newest(folder).table
    return {
        each.name
        for each in place.iterdir()
        if (hour := hour_of_name(each.name)) is not None and not table.is_far(hour)
    }


def _newest(folder: Path) -> Checkpoint:
    """The newest checkpoint; an empty one if there is none, or it is damaged."""
    fs = ReadOnlyFileSystem()
    for name in checkpoint_names(fs, str(folder))[-1:]:
        return read_checkpoint(fs, str(folder / name)) or NO_CHECKPOINT
    return NO_CHECKPOINT


def _files(folder: Path, hour: str) -> set[str]:
    return {each.name for each in (folder / "hours" / hour).iterdir()}


def _compacted(folder: Path, hour: str) -> bool:
    """Whether the node has compacted this hour."""
    path = folder / "hours" / hour / "extents"
    raw = path.read_bytes() if path.exists() else b""
    extents = np.frombuffer(raw[: len(raw) // EXTENT_SIZE * EXTENT_SIZE], EXTENT)
    return bool((extents["flags"] & EXTENT_REWRITTEN).any())


def _row(name: str, at: int) -> str:
    """The row that a byte belongs to, as text; empty for files without rows of a fixed size."""
    if name == "delay.index":
        return f" (row {at // INDEX_ENTRY_SIZE})"
    return f" (row {at // STATE_ENTRY_SIZE})" if name.startswith("state") else ""


def _difference(left: Path, right: Path) -> int | None:
    """Offset of the first different byte, or None. Missing bytes count as zeros, like holes."""
    at = 0
    with _open(left) as one, _open(right) as other:
        while True:
            a, b = one.read(_CHUNK_BYTES), other.read(_CHUNK_BYTES)
            size = max(len(a), len(b))
            if size == 0:
                return None
            a, b = a.ljust(size, b"\0"), b.ljust(size, b"\0")
            if a != b:
                return at + next(n for n in range(size) if a[n] != b[n])
            at += size


def _open(path: Path) -> BinaryIO:
    return path.open("rb") if path.exists() else BytesIO()
