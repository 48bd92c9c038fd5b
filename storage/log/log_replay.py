"""Replay of a physical log at a start: yields its frames and finds where it ends.

Nothing is changed. A bad frame behind everything that was durable is a torn tail; below that
position it is corruption, and an error that names segment and position.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

from delaylog.storage.errors import CorruptionError
from delaylog.storage.log.frames import Frame
from delaylog.storage.log.log_reader import Durable, judge_tail, scan_segment
from delaylog.storage.log.segments import LogSegments


def replay(segments: LogSegments, start: int, durable: Durable) -> Generator[Frame, None, int]:
    """Yield the frames from `start` on; returns where the last good one ends.

    `durable` = what this node is known to have synced; frames that follow raise that bound by
    their `synced_position`. Raises CorruptionError when durable frames are damaged or missing.
    """
    bases = segments.bases
    if not bases:
        if start > 0 or durable.end > start:
            raise CorruptionError(
                "the physical log is missing",
                path=segments.folder,
                position=start,
                detail=f"durable to {max(start, durable.end)}",
            )
        return start
    if bases[0] > start:
        raise CorruptionError(
            "the first segment begins behind the checkpoint",
            path=segments.path(bases[0]),
            position=start,
        )
    position = start
    bad: str | None = None
    first = max(i for i, base in enumerate(bases) if base <= start)
    at = first
    for at in range(first, len(bases)):
        base = bases[at]
        if base > position:
            bad = bad or "a gap between segments"
            break
        with closing(segments.open(base)) as file:
            if base + file.size() < position:
                raise CorruptionError(
                    "the log ends before the checkpoint",
                    path=segments.path(base),
                    position=base + file.size(),
                    detail=f"durable to {position}",
                )
            # What is replayed may reach derived files, so it must be durable itself: after a
            # kill the tail may be in the page cache only.
            file.fdatasync()
            position = yield from scan_segment(file, base, position)
            left = file.size() - (position - base)
        if left > 0:
            bad = "a bad frame"
            break
    if bad is not None:
        judge_tail(segments.fs, segments.folder, bases[at:], bad, position, durable)
    elif position < durable.end:
        raise CorruptionError(
            "durable frames are missing",
            path=segments.path(bases[at]),
            position=position,
            detail=f"durable to {durable.end}",
        )
    return position
