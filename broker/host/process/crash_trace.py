"""What is known about a process that died inside native code.

Files are read through maps: one that is cut short, or a disk that fails, may end the process by a
signal. Python writes where it was into `DIR/crash` then, and the next start says so in its log.
"""

from __future__ import annotations

import faulthandler
import logging
import os
from typing import Final

from delaylog.storage.files.file_system import FILE_MODE

_READ_BYTES: Final = 65_536

log = logging.getLogger("delaylog.crash")


def watch(folder: str) -> None:
    """Report the last crash of a broker on this folder, and stand ready for the next one.

    The caller holds the folder's lock. Nothing is done where the file cannot be written.
    """
    path = f"{folder}/crash"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        left = os.read(fd, _READ_BYTES).decode(errors="replace")
        if left.strip():
            log.error("the last process died in native code", extra={"trace": left})
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError as error:
        log.warning("a crash would leave no trace", extra={"why": str(error)})
        return
    faulthandler.enable(fd, all_threads=False)
