"""Group commit: how far a log is safe, who waits for that, and what the end of a commit means.

Who syncs differs: the log thread for a node's loop (`log_commits`), the first thread that waits in
an embedded broker (`embedded/commits`). A full disk is waited out by all, and nothing is taken
back; any other failure is the end of the log.
"""

from __future__ import annotations

import logging
from typing import Final

from delaylog.broker.position_waiters import PositionWaiters
from delaylog.storage.errors import DiskFullError, NoDescriptorError
from delaylog.storage.physical_log import PhysicalLog

DISK_RETRY_SECONDS: Final = 0.2

log = logging.getLogger("delaylog.node")


class GroupCommit:
    """What is known of the commits of one log."""

    def __init__(self, physical_log: PhysicalLog, *, written_is_safe: bool) -> None:
        self._log = physical_log
        self.written_is_safe = written_is_safe
        """By the dial, what the operating system has is safe: nobody waits for a sync."""
        self.waiters = PositionWaiters()
        self.disk_full = False
        """Whether the log, or work that wrote elsewhere, found no space at its last try."""
        self.commits = 0
        """Commits that ended well."""
        self.failure: BaseException | None = None
        """What made an end of the log: nothing is safe from there on."""

    def ended(self, error: BaseException | None) -> None:
        """A commit has ended, well or by an error."""
        if error is None:
            self.disk_full = False
            self.commits += 1
            return
        if not isinstance(error, DiskFullError):
            self.failure = self.failure or error
            return
        if isinstance(error, NoDescriptorError):
            log.error("the log waits for a descriptor", extra={"why": str(error)})
        elif not self.disk_full:
            log.error(
                "the disk is full and the reserve is used up; everything waits for space",
                extra={"why": str(error)},
            )
        self.disk_full = True
