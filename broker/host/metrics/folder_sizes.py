"""The disk space of a data folder by part, measured at most once a minute on the asking thread."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import Final

from delaylog.broker.host.machine import Machine

EVERY_SECONDS: Final = 60.0
"""Measuring asks for the size of each file: a year of hours has thousands of them."""
FILES: Final = "files"
"""The part of files that are in no folder: checkpoints, the reserve, the tick."""
_BLOCK_BYTES: Final = 512


class FolderSizes:
    """The sizes of one data folder."""

    def __init__(self, machine: Machine) -> None:
        self._now = machine.steady_s
        self._measured_s = 0.0
        self._sizes: dict[str, int] = {}

    def of(self, folder: str) -> dict[str, int]:
        """Allocated bytes by folder in the data folder."""
        if not self._sizes or self._now() - self._measured_s > EVERY_SECONDS:
            self._measured_s = self._now()
            self._sizes = measure(folder)
        return self._sizes


def measure(folder: str) -> dict[str, int]:
    """Allocated bytes by folder in `folder`; files that are removed meanwhile do not count."""
    sizes: Counter[str] = Counter({FILES: 0})
    for path, _, names in os.walk(folder):
        part = os.path.relpath(path, folder).split(os.sep)[0]
        for name in names:
            with suppress(FileNotFoundError):
                blocks = os.stat(os.path.join(path, name), follow_symlinks=False).st_blocks
                sizes[FILES if part == os.curdir else part] += blocks * _BLOCK_BYTES
    return dict(sizes)
