"""What is known about a process that died inside native code.

LMDB reads its file through a map and trusts what stands there: a rotten pointer may end the
process by a signal. Python writes where it was into `DIR/crash` then, and the next start reads it:
it says so in its log, and has an id index that was being read set aside.
"""

from __future__ import annotations

import faulthandler
import logging
import os
from typing import Final

from delaylog.storage.file_system import FILE_MODE
from delaylog.storage.id_index import mark_damaged

_READ_BYTES: Final = 65_536
_IN_ID_INDEX: Final = "id_index.py"

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
            what = "the last process died in native code"
            if _IN_ID_INDEX in left:
                what += f" while it used the id index, {folder}/ids/data.mdb, which is made anew"
                mark_damaged(f"{folder}/ids")
            log.error(what, extra={"trace": left})
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError as error:
        log.warning("a crash would leave no trace", extra={"why": str(error)})
        return
    faulthandler.enable(fd, all_threads=False)
