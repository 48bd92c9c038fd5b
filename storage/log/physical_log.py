"""The physical log: one append-only sequence of checksummed frames in segments.

A position is a byte offset since the beginning of the log. Frames are appended in memory
(`append`), written in order (`write_pending`) and made durable (`sync`). A lock covers only the
writing, so the loop may write a small frame itself while the log thread waits in fdatasync. When
the log is opened, log_replay.py finds its end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing

from delaylog.storage.errors import CorruptionError, DiskFailedError
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import Frame, Tick, encode_frame
from delaylog.storage.log.log_reader import Durable, FrameHops, read_frame, read_frames
from delaylog.storage.log.log_replay import replay
from delaylog.storage.log.recent_frames import RecentFrames
from delaylog.storage.log.segments import LogSegments
from delaylog.storage.log.sizes import SEGMENT_BYTES_MAX
from delaylog.storage.messages.batch import Block


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

        For a node whose log has diverged from that of its cluster. The caller discards all state
        that it derived from these frames. Waits for a sync that is under way.
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
            self.write_pending()
        assert self.first_position <= start < self.written_position, "there is a frame to read"
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
