"""How `delaylog serve` ends: an exit status for service managers, and advice for the operator.

`ExitCode` is the table of statuses; docs/SERVICE.md, "How a broker ends", has the same rows.
"""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import Final, NamedTuple

from delaylog.broker.cluster.copies.damaged_files import NoCopyError
from delaylog.broker.cluster.members.folders import StaleFolderError
from delaylog.broker.host.settings import ConfigError, InUseError
from delaylog.broker.host.system.folder_lock import ownership
from delaylog.replication.errors import (
    ClusterError,
    DivergedError,
    MetaDamagedError,
    TermFileDamagedError,
)
from delaylog.storage.errors import (
    DiskFullError,
    MissingPartError,
    NewerFormatError,
    NoDescriptorError,
    OlderFormatError,
    StorageError,
    damage_of,
)


class ExitCode(IntEnum):
    """Exit status of `delaylog serve`, and whether a service manager should start it again."""

    restart: bool

    def __new__(cls, status: int, restart: bool) -> ExitCode:
        code = int.__new__(cls, status)
        code._value_, code.restart = status, restart
        return code

    STOPPED = 0, False
    """A signal to stop, as asked."""
    DISK_FAILED = 1, False
    """A read, write or fsync failed. Check the disk before the next start."""
    CONFIGURATION = 2, False
    """An option, an address, the folder or its owner does not fit. It ends the same way again."""
    DAMAGED = 65, False
    """A file is damaged or missing, or the folder is an old copy."""
    COPY_NEEDED = 66, True
    """A member's folder is damaged: the next start sets it aside and fetches a copy."""
    IN_USE = 69, True
    """Another process uses an address or the data folder, perhaps one that is ending."""
    BUG = 70, True
    """An unexpected error. A restart continues from the log. Report the error."""
    DISK_FULL = 75, True
    """No disk space, not even to start."""


class End(NamedTuple):
    """How a broker ends."""

    code: ExitCode
    advice: str
    """Sentences that say what the operator can do; empty if the error says it."""

    def line(self, error: BaseException) -> str:
        """The last line of the broker."""
        return f"{error}. {self.advice}" if self.advice else str(error)


_DISK: Final = (
    "Check the kernel's log, repair or replace the disk and start again: every acknowledged change "
    "is in the log."
)
_RESTORE: Final = (
    "Restore the file from a backup; `delaylog verify` lists further damage. Do not delete "
    "anything."
)


def end_of(error: BaseException, *, has_peers: bool = False) -> End:
    """How a broker ends because of `error`.

    `has_peers` = other nodes of a cluster may have a copy of its folder.
    """
    match error:
        case InUseError():
            return End(ExitCode.IN_USE, "")
        case ClusterError() if getattr(error.__cause__, "errno", None) == errno.EADDRINUSE:
            return End(ExitCode.IN_USE, "")
        case ConfigError() | ClusterError() | OlderFormatError() | MissingPartError():
            return End(ExitCode.CONFIGURATION, "")
        case NewerFormatError():
            text = "Use the release that wrote this folder, or a later one."
            return End(ExitCode.CONFIGURATION, text)
        case NoDescriptorError():
            text = "Raise the limit of open files and start again."
            return End(ExitCode.CONFIGURATION, text)
        case DiskFullError():
            return End(ExitCode.DISK_FULL, "Free some space and start again.")
        case StaleFolderError():
            return End(
                ExitCode.DAMAGED,
                "Stop the other process if there is one, then start this node again: it moves its "
                "data to a folder damaged-TIME and fetches a copy from another node.",
            )
        case MetaDamagedError() | TermFileDamagedError():
            return End(ExitCode.DAMAGED, "")
        case DivergedError():
            return End(
                ExitCode.DAMAGED,
                "Move this node's data folder away and start it with an empty one: it gets a copy "
                "from the leader. Keep the folder and report this.",
            )
    if isinstance(error, NoCopyError) or (has_peers and damage_of(error) is not None):
        return End(
            ExitCode.COPY_NEEDED,
            "Start the node again, once other voters run: it moves its data to a folder "
            "damaged-TIME and fetches a copy from the leader. Then check the disk.",
        )
    if damage_of(error) is not None:
        return End(ExitCode.DAMAGED, _RESTORE)
    found = error if isinstance(error, OSError) else error.__cause__
    if isinstance(found, PermissionError):
        text = "Let the user of this process own the folder and all files in it, and start again"
        path = found.filename
        return End(ExitCode.CONFIGURATION, f"{text}{f': {ownership(path)}' if path else ''}.")
    if isinstance(found, OSError) and found.errno == errno.EROFS:
        return End(ExitCode.DISK_FAILED, f"The file system is read-only. {_DISK}")
    if isinstance(error, (StorageError, OSError)):
        return End(ExitCode.DISK_FAILED, _DISK)
    return End(ExitCode.BUG, "This is a bug: keep the log and report it.")
