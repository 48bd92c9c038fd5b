"""Judges the files of secrets: tokens, keys, and the secret of a cluster.

Every file of a secret, of a broker or of a client, is judged here. This module imports only the
standard library, because `make twins` copies it into `pyspark_delaylog`.

Made from src/delaylog/secret_files.py by `make twins`: change that one.
"""

from __future__ import annotations

import os
import stat


def exposure(path: str | os.PathLike[str], found: os.stat_result) -> str | None:
    """Why a file is unfit for a secret; None if nobody else can read or change it.

    `found` is the state of the file behind all links. The text says what to do.

    Its owner may read and change it. A group of this process may read it, as in a volume of
    Kubernetes with `fsGroup`, which belongs to root and is mounted read-only.
    """
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    mode = stat.S_IMODE(found.st_mode)
    if os.name != "posix" or not mode & 0o077:
        return None
    groups = {os.getegid(), *os.getgroups()}
    if mode & 0o077 == 0o040 and found.st_gid in groups:
        return None
    return (
        f"others than its owner may read or change it (mode {mode:o}); run: chmod 600 "
        f"{os.fspath(path)} (or 440, if its group, now {found.st_gid}, is one of this process: "
        f"{', '.join(map(str, sorted(groups)))})"
    )
