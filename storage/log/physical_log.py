"""The physical log: one append-only sequence of checksummed frames in segments.

A position is a byte offset since the beginning of the log. Frames are appended in memory
(`append`), written in order (`write_pending`) and made durable (`sync`). A lock covers only the
writing, so the loop may write a small frame itself while the log thread waits in fdatasync.

A segment is a file named by the position of its first frame. The name of a new segment becomes
durable with the next `sync_names`, and always before an older segment is removed.

`replay` yields the frames at a start and finds the end of the log. It changes no file. A bad frame
after the durable part of the log is a torn tail. A bad frame in the durable part is corruption: an
error with the segment and the position.

`LogThread` runs one job of write + fdatasync for everything appended so far (group commit): while
one job runs, frames of many turns pile up and go out together in the next. After each job the
thread calls `done`, with the error if there was one.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from queue import SimpleQueue
from typing import NamedTuple

from delaylog.storage.errors import CorruptionError, DiskFailedError, DiskFullError
from delaylog.storage.files.file_system import File, FileSystem, parent_of
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import Frame, Tick, encode_frame
from delaylog.storage.log.log_reader import (
    Durable,
    FrameHops,
    judge_tail,
    read_frame,
    read_frames,
    scan_segment,
    segment_bases,
    segment_name,
)
from delaylog.storage.log.sizes import SEGMENT_BYTES_MAX
from delaylog.storage.messages.batch import Block

# -------------------------------------------------------------------------------- segment files


class LogSegments:
    """The segments in one folder, oldest first."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.fs = fs
        self.folder = folder
        fs.mkdir(folder)
        # An earlier process may have died before the name of this folder was durable.
        fs.sync_folder(parent_of(folder))
        self.bases = segment_bases(fs, folder)
        """First position of each segment."""
        self._begun = self._named = 0
        """Numbers of segments created since the start, and of those with durable names."""

    @property
    def first_position(self) -> int:
        """First position that is still on disk."""
        return self.bases[0] if self.bases else 0

    def files_end(self) -> int:
        """End of the last file; its bytes may be damaged."""
        if not self.bases:
            return 0
        with closing(self.open(self.bases[-1])) as file:
            return self.bases[-1] + file.size()

    def path(self, base: int) -> str:
        """The file of the segment that begins at `base`."""
        return f"{self.folder}/{segment_name(base)}"

    def open(self, base: int) -> File:
        """Open the segment that begins at `base`."""
        return self.fs.open(self.path(base))

    def span(self, position: int) -> tuple[int, int | None]:
        """(base, end) of the segment with a position; the end of the last segment is None.

        Any thread. Raises CorruptionError if all segments begin after the position.
        """
        bases = list(self.bases)
        at = bisect_right(bases, position) - 1
        if at < 0:
            path = self.path(bases[0]) if bases else self.folder
            raise CorruptionError("the log begins behind a frame", path=path, position=position)
        return bases[at], bases[at + 1] if at + 1 < len(bases) else None

    def begin(self, base: int) -> File:
        """Create the next segment."""
        file = self.fs.open(self.path(base), create=True)
        self.bases.append(base)
        self._begun += 1
        return file

    def sync_names(self) -> None:
        """Make the names of new segments durable."""
        begun = self._begun
        if begun != self._named:
            self.fs.sync_folder(self.folder)
            self._named = begun

    def cut(self, position: int) -> File:
        """Remove everything from `position` on, durably; returns the last segment, open."""
        # In place: another thread may drop old segments meanwhile.
        while self.bases[-1] > position:
            self.fs.unlink(self.path(self.bases[-1]))
            self.bases.pop()
        base = self.bases[-1]
        file = self.open(base)
        if file.size() != position - base:
            file.truncate(position - base)
        file.fdatasync()
        self.fs.sync_folder(self.folder)
        return file

    def drop_below(self, position: int) -> int:
        """Remove segments that end at or below `position`; returns their number."""
        dropped = 0
        if len(self.bases) > 1 and self.bases[1] <= position:
            # Otherwise a crash could leave neither the old segment nor the name of the new one.
            self.sync_names()
        while len(self.bases) > 1 and self.bases[1] <= position:
            self.fs.unlink(self.path(self.bases.pop(0)))
            dropped += 1
        return dropped


# ---------------------------------------------------------------------------- replay at a start


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


# ----------------------- a cache of the newest frames: shipping and applying them reads no file


class _Piece(NamedTuple):
    """Frames that were appended together: one frame, or several from another node."""

    blocks: Sequence[Block]
    size: int
    one_frame: bool


class RecentFrames:
    """The newest frames, up to a number of bytes. For one thread."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` = 0: nothing is kept."""
        self.bytes_max = bytes_max
        self._pieces: OrderedDict[int, _Piece] = OrderedDict()
        self._size = 0

    def add(self, position: int, blocks: Sequence[Block], size: int, *, one_frame: bool) -> None:
        """Add frames that were appended at `position`; drop the oldest ones beyond the limit."""
        self._pieces[position] = _Piece(blocks, size, one_frame)
        self._size += size
        while self._size > self.bytes_max:
            _, oldest = self._pieces.popitem(last=False)
            self._size -= oldest.size

    def read(self, start: int, bytes_max: int) -> bytes | None:
        """Whole frames from `start` on, as many as fit and at least one; None = read the file."""
        piece = self._pieces.get(start)
        if piece is None or not (piece.size <= bytes_max or piece.one_frame):
            return None
        out: list[Block] = []
        at = start
        while piece is not None and (not out or at + piece.size - start <= bytes_max):
            out += piece.blocks
            at += piece.size
            piece = self._pieces.get(at)
        return b"".join(out)

    def clear(self) -> None:
        """Forget all frames, after the log was cut."""
        self._pieces.clear()
        self._size = 0


# -------------------------------------------------------------------------------------- the log


class PhysicalLog:
    """Segments of frames under one folder."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        *,
        segment_bytes_max: int | None = None,
        node: int = 0,
        recent_bytes_max: int = 0,
    ) -> None:
        """`segment_bytes_max`: None = `SEGMENT_BYTES_MAX`. `node` = the index of this node in a
        cluster, which is part of each epoch that it leads.

        `recent_bytes_max` = bytes of the newest frames that are kept in memory for `read`.
        """
        self.segments = LogSegments(fs, folder)
        self._segment_bytes_max = segment_bytes_max or SEGMENT_BYTES_MAX
        self._node = node
        self._file: File | None = None
        self._pending: list[Block] = []
        self.pending_size = 0
        """Bytes that were appended and not yet written."""
        self._recent = RecentFrames(recent_bytes_max)
        self._write_lock = threading.Lock()
        self._queue_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._old_files: list[File] = []
        self._failure: DiskFailedError | None = None
        self.end_position = 0
        self.written_position = 0
        self.durable_position = 0
        self.found_end = 0
        """End of the log when it was opened: earlier processes wrote the frames below it."""

    # ------------------------------------------------------------------ opening

    def recover(self, start: int, durable_end: int) -> Iterator[Frame]:
        """Replay frames from `start`, then get ready to append after the last one.

        `durable_end` is the greatest position this node is known to have synced; frames that
        follow raise that bound by their `synced_position`. Must be run to its end before the
        first append. Raises CorruptionError when durable frames are damaged or missing.
        """
        segments = self.segments
        position = yield from replay(segments, start, Durable(durable_end, self._node))
        if segments.bases:
            self._file = segments.cut(position)
        else:
            self._file = segments.begin(position)
            segments.sync_names()
        self.end_position = self.written_position = self.durable_position = position
        self.found_end = position

    # ------------------------------------------------------------------ appending

    def append(
        self,
        kind: FrameKind,
        payload: Sequence[Block],
        *,
        epoch: int,
        leader_time_ms: int,
        tick: Tick,
    ) -> int:
        """Queue one frame after all others; returns its position. Nothing is written yet."""
        position = self.end_position
        buffers, size = encode_frame(
            kind,
            payload,
            (epoch, leader_time_ms, tick),
            position=position,
            synced_position=self.durable_position,
        )
        with self._queue_lock:
            self._pending += buffers
            self.pending_size += size
            self.end_position = position + size
        if self._recent.bytes_max:
            self._recent.add(position, buffers, size, one_frame=True)
        return position

    def append_raw(self, frames: Block) -> int:
        """Queue whole frames that another node made for `end_position`; returns that position."""
        position = self.end_position
        with self._queue_lock:
            self._pending.append(frames)
            self.pending_size += len(frames)
            self.end_position = position + len(frames)
        self._recent.add(position, [frames], len(frames), one_frame=False)
        return position

    def write_pending(self, *, wait: bool = True) -> bool:
        """Write all queued frames in order; False if another thread writes and `wait` is off."""
        if not self._write_lock.acquire(blocking=wait):
            return False
        try:
            self._refuse_if_failed()
            buffers: list[Block] = []
            size = 0
            try:
                with self._queue_lock:
                    buffers, self._pending = self._pending, []
                    size, self.pending_size = self.pending_size, 0
                if not buffers:
                    return True
                file = self._file
                assert file is not None, "recover() runs before the first write"
                at = self.written_position - self.segments.bases[-1]
                if at > 0 and at + size > self._segment_bytes_max:
                    file = self._next_segment(file)
                    at = 0
                file.pwritev(buffers, at)
            except DiskFailedError as error:
                self._failure = error
                raise
            except BaseException:
                # No space, or Ctrl-C in the thread of a program: the frames stay queued in order,
                # and the next write overwrites the torn part.
                with self._queue_lock:
                    self._pending = buffers + self._pending
                    self.pending_size += size
                raise
            self.written_position += size
            return True
        finally:
            self._write_lock.release()

    def sync(self) -> int:
        """fdatasync the written frames; returns (and remembers) the new durable position.

        After a failure every later write and sync fails too: the kernel may have dropped the dirty
        pages, and a second fdatasync would report success for them.
        """
        with self._sync_lock:
            return self._sync()

    def _sync(self) -> int:
        with self._write_lock:
            self._refuse_if_failed()
            target = self.written_position
            file, old = self._file, self._old_files
            self._old_files = []
        if file is None:
            raise DiskFailedError("the physical log is closed")
        try:
            self.segments.sync_names()
            for sealed in old:
                sealed.fdatasync()
            file.fdatasync()
        except DiskFailedError as error:
            self._failure = error
            raise
        except BaseException:
            # Interrupted: the next sync repeats all of them.
            with self._write_lock:
                self._old_files = old + self._old_files
            raise
        self.durable_position = target
        for sealed in old:
            sealed.close()
        return target

    def cut(self, position: int) -> None:
        """Drop every frame from the one at `position` on; durable when it returns.

        For a node whose log has diverged from that of its cluster, or whose last frame cannot be
        applied. The caller discards all state that it derived from these frames. Waits for a sync
        that is under way.
        """
        assert self.first_position <= position <= self.end_position, "there is a frame to cut at"
        with self._sync_lock:
            if position > self.written_position:
                self.write_pending()
            with self._write_lock:
                with self._queue_lock:
                    self._pending, self.pending_size = [], 0
                for file in self._old_files:
                    file.fdatasync()
                    file.close()
                self._old_files = []
                if self._file is not None:
                    self._file.close()
                self._recent.clear()
                self._file = self.segments.cut(position)
                self.end_position = self.written_position = self.durable_position = position

    def rewrite_last(
        self, position: int, kind: FrameKind, *, epoch: int, leader_time_ms: int, tick: Tick
    ) -> None:
        """Overwrite the last frame, which begins at `position` and has no payload, by another one
        without payload; durable when it returns. A kill leaves the old frame or the new one.

        For a node that has not joined yet: no other node has that frame.
        """
        stamp = epoch, leader_time_ms, tick
        frame, size = encode_frame(kind, [], stamp, position=position, synced_position=position)
        assert position + size == self.end_position == self.durable_position, "it is the last one"
        base, _ = self.segments.span(position)
        with closing(self.segments.open(base)) as file:
            file.pwritev(frame, position - base)
            file.fdatasync()
        self._recent.clear()

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise DiskFailedError(f"the physical log has failed: {self._failure}")

    def roll(self) -> None:
        """Begin a new segment, so that the present one can be dropped once it is not needed.

        The present one is closed by the next `sync`; see `sealed`.
        """
        with self._write_lock:
            self._refuse_if_failed()
            file = self._file
            if file is not None and self.written_position > self.segments.bases[-1]:
                self._next_segment(file)
                self.segments.sync_names()

    @property
    def sealed(self) -> bool:
        """Whether a finished segment still has to be synced."""
        return bool(self._old_files)

    def _next_segment(self, file: File) -> File:
        """Truncate the segment in `file` to the written frames, and begin the next one.

        A write that found no space may have left a part of its frames after them. These frames are
        written again into the next segment, so the remains here would look like corruption.
        """
        end = self.written_position - self.segments.bases[-1]
        if file.size() > end:
            file.truncate(end)
        fresh = self._file = self.segments.begin(self.written_position)
        self._old_files.append(file)
        return fresh

    def read(self, start: int, bytes_max: int) -> bytes:
        """The bytes of whole frames from `start` on: as many as fit, and at least one.

        Recent frames come from memory. Raises CorruptionError if no frame begins at `start`.
        """
        recent = self._recent.read(start, bytes_max)
        if recent is not None:
            return recent
        if start >= self.written_position or self.pending_size:
            try:
                self.write_pending()
            except DiskFullError:
                if start >= self.written_position:
                    raise
        assert start < self.written_position, "there is a frame to read"
        base, end = self.segments.span(start)
        with closing(self.segments.open(base)) as file:
            last = self.written_position if end is None else end
            return read_frames(file, base, start, last, bytes_max)

    def frame_at(self, position: int) -> Frame:
        """The verified frame that begins at `position`. Any thread, also during recovery.

        Raises CorruptionError when it is damaged or missing.
        """
        if position >= self.written_position and self.pending_size:
            self.write_pending()
        base, _ = self.segments.span(position)
        with closing(self.segments.open(base)) as file:
            frame = read_frame(file, base, position)
        if frame is None:
            path = self.segments.path(base)
            raise CorruptionError("a bad frame", path=path, position=position)
        return frame

    def hops(self, start: int) -> FrameHops:
        """A reader of written frames, from `start` or the first one on disk."""
        return FrameHops(
            self.segments.fs,
            self.segments.folder,
            start=max(start, self.first_position),
            end=self.written_position,
        )

    # ------------------------------------------------------------------ retention

    def drop_below(self, position: int) -> int:
        """Remove segments that end at or below `position`; returns their number."""
        return self.segments.drop_below(position)

    @property
    def first_position(self) -> int:
        """First position that is still on disk."""
        return self.segments.first_position

    def close(self) -> None:
        """Close the files. Appended frames that were not written are lost."""
        with self._write_lock:
            for file in [*self._old_files, *([self._file] if self._file else [])]:
                file.close()
            self._old_files, self._file = [], None


# ------------------------------------------------------------------------------- the log thread


class LogThread:
    """Runs `write_pending` + `sync` of a log whenever it is kicked."""

    def __init__(self, log: PhysicalLog, done: Callable[[BaseException | None], None]) -> None:
        self._log = log
        self._done = done
        # A SimpleQueue wakes the thread in a fifth of the time that a semaphore takes.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="delaylog-log", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def kick(self) -> None:
        """Ask for one job. The host asks again only after `done`."""
        self._wake.put(None)

    def stop(self) -> None:
        """End the thread after the job that runs."""
        self._stopping = True
        self._wake.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.get()
            if self._stopping:
                return
            error: BaseException | None = None
            try:
                self._log.write_pending()
                self._log.sync()
            except BaseException as failure:
                error = failure
            self._done(error)
