"""The traceback of a process that died inside native code.

Files are read through memory maps. A truncated file or a failing disk may therefore end the process
by a signal. Python then writes its traceback to `DIR/crash`, and the next start logs it.
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
    """Log the last crash of a broker on this folder, and record the next one.

    The caller must hold the folder's lock. If the file cannot be written, this only logs a warning.
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
        log.warning("a crash could not be recorded", extra={"why": str(error)})
        return
    faulthandler.enable(fd, all_threads=False)
