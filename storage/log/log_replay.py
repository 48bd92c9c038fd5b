"""Replay of a physical log at a start: yields its frames and finds its end.

It changes no file. A bad frame after the durable part of the log is a torn tail. A bad frame in the
durable part is corruption: an error with the segment and the position.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

from delaylog.storage.errors import CorruptionError
from delaylog.storage.log.frames import Frame
from delaylog.storage.log.log_reader import Durable, judge_tail, scan_segment
from delaylog.storage.log.segments import LogSegments


def replay(segments: LogSegments, start: int, durable: Durable) -> Generator[Frame, None, int]:
    """Yield the frames from `start` on; returns the end of the last intact one.

    `durable` = the known durable part of this node's log; the `synced_position` of later frames
    extends it. Raises CorruptionError if durable frames are damaged or missing.
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
            # Replayed frames may reach derived files, so they must be durable first: after a kill
            # the tail may be in the page cache only.
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
