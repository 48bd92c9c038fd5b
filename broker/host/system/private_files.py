"""Reads the files that a broker is configured with: secrets, keys and certificates."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from delaylog.broker.host.settings import ConfigError
from delaylog.secret_files import exposure


def read_file(name: str, path: str | Path, bytes_max: int, *, private: bool = False) -> bytes:
    """The content of a regular file; if `private`, one that nobody else can read or change.

    `name` = the setting that names the file. Raises ConfigError, which says what to do. The file
    that is judged is the one that is read, and a FIFO does not block a broker that reads it again.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            fault = None if stat.S_ISREG(found.st_mode) else "is not a regular file"
            if private and fault is None:
                fault = exposure(path, found)
            if fault is not None:
                raise ConfigError(f"{name} {path}: {fault}")
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(bytes_max + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError(f"cannot read {name} {path}: {error.strerror}") from None
    if len(content) > bytes_max:
        raise ConfigError(f"{name} {path} is too large: it has more than {bytes_max} bytes")
    return content


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file under another name, then rename it: no reader sees a part of it."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    new.rename(path)
