"""The exit status of `delaylog serve`: one code for each kind of end, for service managers."""

from __future__ import annotations

from enum import IntEnum

from delaylog.broker.host.config import ConfigError
from delaylog.replication.errors import ClusterError
from delaylog.storage.errors import (
    CorruptionError,
    DiskFailedError,
    DiskFullError,
    NewerFormatError,
    NoDescriptorError,
)


class ExitCode(IntEnum):
    """Exit status of `delaylog serve`."""

    STOPPED = 0
    """Stopped by a signal, as asked."""
    DISK_FAILED = 1
    """A read, write or fsync failed. Check the disk before the next start."""
    CONFIGURATION = 2
    """An option, the folder or an address cannot be used. A restart does not help."""
    DAMAGED = 65
    """A file is corrupt. Restore the file; a member of a cluster may be started again."""
    BUG = 70
    """An unexpected error. A restart continues from the log. Report the error."""
    DISK_FULL = 75
    """No disk space, not even to start. Free some and start again."""


def exit_code(error: BaseException) -> ExitCode:
    """Exit status of a broker that ended because of `error`."""
    if isinstance(error, (ConfigError, ClusterError, NewerFormatError, NoDescriptorError)):
        return ExitCode.CONFIGURATION
    if isinstance(error, DiskFullError):
        return ExitCode.DISK_FULL
    if isinstance(error, (CorruptionError, FileNotFoundError)):
        return ExitCode.DAMAGED
    if isinstance(error, (DiskFailedError, OSError)):
        return ExitCode.DISK_FAILED
    return ExitCode.BUG
