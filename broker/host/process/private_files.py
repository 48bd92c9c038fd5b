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


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file under another name, then rename it: no reader sees a part of it."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    new.rename(path)
