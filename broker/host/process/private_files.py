"""Files of secrets: a file that others than its owner may use is refused."""

from __future__ import annotations

import stat
from pathlib import Path


def private_file_fault(path: str | Path, name: str) -> str | None:
    """Why a file cannot hold a secret; None if only its owner may read or change it.

    `name` = the setting that names the file. The text says what to do.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        return f"{name}: cannot read {path}: {error.strerror}"
    if not stat.S_ISREG(mode):
        return f"{name}: {path} is not a regular file"
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return (
            f"{name}: others than its owner may read or change {path} (mode {mode & 0o777:o}); "
            f"run: chmod 600 {path}"
        )
    return None
