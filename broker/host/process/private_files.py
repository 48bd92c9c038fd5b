"""Files of secrets that a broker is configured with."""

from __future__ import annotations

import os
from pathlib import Path

from delaylog.secret_files import exposure


def private_file_fault(path: str | Path, name: str) -> str | None:
    """Why a file cannot hold a secret; None if nobody else can read or change it.

    `name` = the setting that names the file. The text says what to do.
    """
    try:
        fault = exposure(path, os.stat(path))
    except OSError as error:
        return f"{name}: cannot read {path}: {error.strerror}"
    return None if fault is None else f"{name} {path}: {fault}"
