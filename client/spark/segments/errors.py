"""What is wrong with a folder that is to be read as a table."""

from __future__ import annotations

from pyspark_delaylog.errors import DelaylogError


class SegmentError(DelaylogError):
    """A folder or one of its files cannot be read; the text names it."""


class DamagedError(SegmentError):
    """Bytes that are not the ones written. `onCorrupt=skip` leaves such rows out and counts them;
    `delaylog verify` tells all that is wrong.
    """

    def __init__(self, path: str, position: int, what: str) -> None:
        self.path, self.position, self.what = path, position, what
        super().__init__(f"{path} at byte {position}: {what}")

    def __reduce__(self) -> tuple[type[DamagedError], tuple[str, int, str]]:
        return DamagedError, (self.path, self.position, self.what)


class RetiredError(SegmentError):
    """An hour is gone because nothing lived in it any more: it has no rows to read."""
