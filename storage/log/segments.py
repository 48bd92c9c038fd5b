"""The segment files of a physical log: their list, creation, truncation and removal.

A segment is named by the position of its first frame. The name of a new segment becomes durable
with the next `sync_names`, and always before an older segment is removed. `PhysicalLog` writes the
frames, and log_reader.py reads them.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing

from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem, parent_of
from delaylog.storage.log.log_reader import segment_bases, segment_name


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
