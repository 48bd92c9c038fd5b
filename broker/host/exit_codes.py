"""How `delaylog serve` ends: an exit status for service managers, and advice for the operator."""

from __future__ import annotations

from enum import IntEnum

from delaylog.broker.cluster.members.folders import StaleFolderError
from delaylog.broker.host.settings.options import ConfigError
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


def advice(error: BaseException, *, has_peers: bool = False) -> str:
    """What the operator can do about the error that ended the node.

    `has_peers` = other nodes of a cluster may have a copy of its folder.
    """
    if isinstance(error, StaleFolderError):
        return (
            "Stop the other process if there is one, then start this node again: it moves its data "
            "to a folder damaged-TIME and fetches a copy from another node."
        )
    if isinstance(error, CorruptionError) and has_peers:
        return (
            "Start the node again: it moves its data to a folder damaged-TIME and fetches a copy "
            "from the leader. Then check the disk."
        )
    if isinstance(error, NewerFormatError):
        return "Use the release that wrote this folder, or a later one."
    if isinstance(error, NoDescriptorError):
        return "Raise the limit of open files and start again."
    if isinstance(error, DiskFullError):
        return "Free some space and start again."
    if isinstance(error, (CorruptionError, FileNotFoundError)):
        return (
            "Restore the file from a backup; `delaylog verify` lists further damage. "
            "Do not delete anything."
        )
    if isinstance(error.__cause__ or error, PermissionError):
        return "Let the user of this process own the folder and all files in it, and start again."
    if isinstance(error, (DiskFailedError, OSError)):
        return (
            "Check the kernel's log, repair or replace the disk and start again: "
            "every acknowledged change is in the log."
        )
    return "This is a bug: keep the log and report it."
