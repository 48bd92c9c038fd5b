"""Copies the physical log behind a checkpoint into a backup while a broker may be appending to it.

The copy ends with a whole frame, at or behind the end that the log had when this copy began. So it
has the frame of every state entry that was copied before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from delaylog.broker.backup.copying import Progress, Route, Target
from delaylog.broker.backup.hours import Vanished
from delaylog.broker.backup.manifest import FileEntry
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.log.frames import Frame, Tick
from delaylog.storage.log.log_reader import (
    Durable,
    judge_tail,
    scan_segment,
    segment_bases,
    segment_name,
)

LOOKS: Final = 40
LOOK_SECONDS: Final = 0.05
"""How often, and at which interval, an incomplete frame is read again before it counts as a torn
tail. A running broker completes any frame within these two seconds."""


@dataclass(slots=True)
class LogTail:
    """The frames that were copied."""

    end: int
    goal: int
    """The end of the log when the copy began."""
    epoch: int = 0
    """Greatest epoch of the frames (counter and node); 0 without frames."""
    tick: Tick | None = None
    """The tick of the last frame."""
    frames: int = 0
    entries: list[FileEntry] = field(default_factory=list)

    def take(self, frame: Frame) -> None:
        """Count a frame and move past it."""
        header = frame.header
        self.end = frame.end
        self.epoch = max(self.epoch, header.epoch)
        self.tick = Tick(header.tick_second, header.tick_local_index, header.tick_position)
        self.frames += 1


def log_size_from(source: FileSystem, folder: str, position: int) -> int:
    """Bytes of the log from `position` on, for progress."""
    log = f"{folder}/log"
    bases = segment_bases(source, log)
    return max(_end(source, log, bases) - position, 0)


def copy_log(
    route: Route[Target],
    *,
    position: int,
    durable: Durable,
    progress: Progress,
    sleep: Callable[[float], None],
) -> LogTail:
    """Copy all frames from `position` on.

    Raises CorruptionError for a bad frame that was durable: below `durable`, or as a later frame of
    the same node proves. Raises Vanished if a segment that is needed was removed.
    """
    source, log = route.source, f"{route.folder}/log"
    route.target.mkdir(f"{route.dest}/log")
    bases = segment_bases(source, log)
    if not bases or bases[0] > position:
        raise Vanished(f"the segment of position {position}")
    tail = LogTail(position, goal=_end(source, log, bases))
    base = max(base for base in bases if base <= position)
    while True:
        # The first segment of a backup begins at the position from which frames are needed.
        first = max(base, position)
        with (
            closing(_open(source, log, base)) as file,
            closing(route.begin(f"log/{segment_name(first)}", progress)) as copied,
        ):
            following = _scan(route, file, base, tail, durable, sleep)
            copied.copy(file, first - base, tail.end - first)
            tail.entries.append(copied.finish())
        if following is None:
            break
        base = following
    route.target.sync_folder(f"{route.dest}/log")
    return tail


def _open(source: FileSystem, log: str, base: int) -> File:
    try:
        return source.open(f"{log}/{segment_name(base)}")
    except FileNotFoundError:
        raise Vanished(segment_name(base)) from None


def _end(source: FileSystem, log: str, bases: Sequence[int]) -> int:
    if not bases:
        return 0
    with closing(_open(source, log, bases[-1])) as file:
        return bases[-1] + file.size()


def _scan(
    route: Route[Target],
    file: File,
    base: int,
    tail: LogTail,
    durable: Durable,
    sleep: Callable[[float], None],
) -> int | None:
    """Copy the whole frames of one segment; return the next base, or None at the log's end."""
    source, log = route.source, f"{route.folder}/log"
    looks = 0
    while True:
        before = tail.end
        for frame in scan_segment(file, base, tail.end):
            tail.take(frame)
        if tail.end >= tail.goal:
            return None
        later = [other for other in segment_bases(source, log) if other > base]
        if later and later[0] == tail.end:
            return later[0]
        # Either the broker is writing here just now, or the log is torn.
        looks = 0 if tail.end > before else looks + 1
        if looks == LOOKS:
            what = "a bad frame" if tail.end < base + file.size() else "a gap between segments"
            judge_tail(source, log, [base, *later], what, tail.end, durable)
            return None
        sleep(LOOK_SECONDS)
