"""Verify the physical log: every frame of every segment, and that segments join.

The log must also have each part of a transaction that a checkpoint may still need.

Reads only. A tail that a start would cut as torn is a note; what a start would refuse is damage.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from delaylog.broker.verify.report import Report
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import decode_level
from delaylog.storage.log.log_reader import (
    Durable,
    judge_tail,
    scan_segment,
    segment_bases,
    segment_name,
)
from delaylog.storage.log.payloads import PART, PartArray

_HARMLESS: Final = (FrameKind.EPOCH_BEGIN, FrameKind.LEVEL, FrameKind.ACCESS)
"""Kinds of frames that change no row."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """The extent of the log, [first, end), and whether frames from `after` on change anything."""

    first: int
    end: int
    changed: bool
    keyspace: list[int] = field(default_factory=list)
    """Positions of KEYSPACE frames."""
    transactions: list[int] = field(default_factory=list)
    """Positions of TXN frames."""
    id_key: bytes = b""
    """The key of the id hashes, if the frame that assigned it is still in the log."""


def verify_log(
    fs: FileSystem,
    folder: str,
    report: Report,
    *,
    after: int,
    needed: int = 0,
    durable_end: int,
    node: int = 0,
) -> Generator[None, None, LogRange]:
    """Check the log below `folder`, yielding now and then.

    `after` = the newest checkpoint's position; `needed` = where a start from the kept checkpoints
    begins to read; `durable_end` = the end of what is known to be synced; `node` = the index of the
    folder's node, 0 without a cluster.
    """
    place = f"{folder}/log"
    bases = segment_bases(fs, place) if fs.exists(place) else []
    if not bases:
        if max(after, durable_end) > 0:
            report.damaged("log", 0, f"no segment exists; the log was durable up to {durable_end}")
        return LogRange(0, 0, changed=False)
    changed = False
    keyspace: list[int] = []
    transactions: list[int] = []
    id_key = b""
    first = end = bases[0]

    def is_cut(segments: list[int], what: str, note: str) -> bool:
        """Whether a start cuts the log at `end`, since nothing shows that the rest was synced."""
        name = f"log/{segment_name(segments[0])}"
        try:
            judge_tail(fs, place, segments, what, end, Durable(durable_end, node))
        except CorruptionError as error:
            report.damaged(name, end, f"{what} ({error.detail})")
            return False
        report.note(name, end, f"{note}; a start cuts it")
        return True

    for at, base in enumerate(bases):
        if base != end and base <= needed:
            # Removals are not synced: a power cut may keep those of later segments only.
            report.note(
                f"log/{segment_name(first)}",
                first,
                "a segment that is not needed: its removal was lost",
            )
            first = base
            keyspace.clear()
            transactions.clear()
        elif base != end and is_cut(bases[at:], f"a gap before {base}", "frames behind a gap"):
            break
        with closing(fs.open(f"{folder}/log/{segment_name(base)}")) as file:
            size, end = file.size(), base
            for frame in scan_segment(file, base, base):
                end = frame.end
                report.frames += 1
                report.bytes_read += end - frame.header.position
                late = frame.header.position >= after
                kind = frame.header.kind
                if kind == FrameKind.KEYSPACE:
                    keyspace.append(frame.header.position)
                else:
                    changed |= late and kind not in _HARMLESS
                if kind == FrameKind.LEVEL:
                    id_key = decode_level(frame.payload)[1] or id_key
                if kind == FrameKind.TXN:
                    transactions.append(frame.header.position)
                yield
        report.files += 1
        left = base + size - end
        report.bytes_read += left
        if left and is_cut(bases[at:], "a bad frame", f"a torn tail of {left} bytes"):
            break
        end = base + size
    if end < durable_end:
        name = f"log/{segment_name(bases[-1])}"
        report.damaged(name, end, f"the log ends here; it was durable up to {durable_end}")
    return LogRange(first, end, changed, keyspace, transactions, id_key)


def verify_staged(saved: list[Mapping[str, Any]], log: LogRange, report: Report) -> None:
    """`saved` = the transactions of each intact checkpoint."""
    there = np.array(log.transactions, np.uint64)
    missing: dict[int, str] = {}
    for members in saved:
        for name, parts in _needed(members):
            positions = parts["position"]
            for position in positions[~np.isin(positions, there)].tolist():
                missing.setdefault(position, name)
    for position, name in sorted(missing.items()):
        report.damaged("log", position, f"a part of transaction {name!r} is missing")


def _needed(members: Mapping[str, Any]) -> Iterator[tuple[str, PartArray]]:
    for _, name, _, _, _, parts in members["open"]:
        yield name, np.frombuffer(parts["parts"], PART)
    for _, name, _, _, parts, _, _, at, *_ in members["unpublished"]:
        yield name, np.frombuffer(parts, PART)[at:]
