"""The exceptions of reading a folder as a table."""

from __future__ import annotations

from delaylog.storage.errors import CorruptionError
from pyspark_delaylog.errors import DelaylogError


class SegmentError(DelaylogError):
    """A folder or file cannot be read; the text names it."""


class DamagedError(SegmentError):
    """A file is corrupt. `onCorrupt=skip` skips and counts damaged rows.

    `delaylog verify` lists all damage of a folder.
    """

    def __init__(self, path: str, position: int, what: str) -> None:
        self.path, self.position, self.what = path, position, what
        super().__init__(f"{path} at byte {position}: {what}")

    def __reduce__(self) -> tuple[type[DamagedError], tuple[str, int, str]]:
        return DamagedError, (self.path, self.position, self.what)


def damaged(error: CorruptionError) -> DamagedError:
    """The error of damage that a reader of `storage` has found."""
    return DamagedError(error.path, error.position, error.what)


class RetiredError(SegmentError):
    """An hour was deleted after its last message had ended: it has no rows."""
