"""The state of group commit that a node and an embedded broker share, and the effect of a commit.

They differ in the thread that syncs. On a node it is the log thread (`log_commits`), in an
embedded broker the first thread that waits (`embedded/waits/commits`). On a full disk all waiters
keep waiting, and nothing is rolled back. Any other error is permanent: the log is not written
again.
"""

from __future__ import annotations

import logging
from typing import Final

from delaylog.broker.host.commits.position_waiters import PositionWaiters
from delaylog.storage.errors import DiskFullError, NoDescriptorError
from delaylog.storage.log.physical_log import PhysicalLog

DISK_RETRY_SECONDS: Final = 0.2

log = logging.getLogger("delaylog.node")


class GroupCommit:
    """The state of the commits of one log."""

    def __init__(self, physical_log: PhysicalLog, *, written_is_safe: bool) -> None:
        self._log = physical_log
        self.written_is_safe = written_is_safe
        """Whether the fsync setting counts written bytes as safe: then no caller waits for a sync.
        """
        self.waiters = PositionWaiters()
        self.disk_full = False
        """Whether the last write of the log or of background work failed for lack of space."""
        self.commits = 0
        """The number of successful commits."""
        self.failure: BaseException | None = None
        """The permanent error of the log: after it, no further frames become safe."""

    def ended(self, error: BaseException | None) -> None:
        """Record the end of a commit; `error` is None if it succeeded."""
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
