"""The errors of the storage layer: one base, few subclasses, facts as attributes.

Each docstring says what the caller can do now.
"""

from __future__ import annotations

import errno
from typing import Final

from delaylog.extras import missing_part


class StorageError(Exception):
    """Base of all errors that the storage layer raises on purpose."""


class CorruptionError(StorageError):
    """Bytes on disk differ from those written. Stop, and repair the named range from a copy.

    Attributes: `what` is damaged, `path` of the file, `position` in it, `detail` or "".
    """

    def __init__(self, what: str, *, path: str, position: int, detail: str = "") -> None:
        self.what = what
        self.path = path
        self.position = position
        self.detail = detail
        super().__init__(f"{what} in {path} at {position}" + (f": {detail}" if detail else ""))


class NewerFormatError(StorageError):
    """A newer release wrote this. Nothing is damaged and nothing was changed: run that release."""


class OlderFormatError(StorageError):
    """Release 0.1.0 wrote this. Nothing is damaged and nothing was changed: use an empty folder."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was written by delaylog 0.1.0, or by a build before 0.2.0, and no later "
            "release reads it: start with an empty data folder, there is no way to upgrade this one"
        )


class MissingPartError(StorageError):
    """The folder has what only a part of the package reads, which is missing. Nothing is damaged or
    lost: install the part.
    """

    def __init__(self, what: str, part: str) -> None:
        super().__init__(f"{what}, and {missing_part(part)}")


class DiskFullError(StorageError):
    """The file system has no space. Nothing was half written; try again once there is space."""


class NoDescriptorError(DiskFullError):
    """No file descriptor is free. As with a full disk, nothing was half done: try again later."""


class DiskFailedError(StorageError):
    """A write or fsync failed with an I/O error. The node must stop: its disk cannot be trusted."""


DISTRUSTED: Final = (CorruptionError, DiskFailedError)
"""Errors after which nothing may be answered from this disk: code that catches one stops the
node."""


_MISSING: Final = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP)
"""What the system says of a file that was removed, or replaced by one of another kind."""


def damage_of(error: BaseException) -> CorruptionError | None:
    """The damage that ended an operation on a file; None for any other fault.

    A file that is missing, or is a folder, is damage too: no disk has failed.
    """
    if isinstance(error, CorruptionError):
        return error
    found = error if isinstance(error, OSError) else error.__cause__
    if isinstance(found, OSError) and found.errno in _MISSING and found.filename is not None:
        detail = found.strerror or ""
        return CorruptionError(
            "a missing file", path=str(found.filename), position=0, detail=detail
        )
    return None


class UnknownRefError(StorageError):
    """A ref names no row of this folder: the row never existed, or its hour was removed."""
