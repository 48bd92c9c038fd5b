"""Notices changes of source files by their times, which needs no package and works everywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PASSED_OVER: Final = {"__pycache__", "node_modules"}


class Sources:
    """The Python files below a folder, without hidden folders and virtual environments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = dict(self._times())

    def changed(self) -> list[str]:
        """The files that were changed, added or removed since the last call, by their paths."""
        before, self._seen = self._seen, dict(self._times())
        names = before.keys() | self._seen.keys()
        return sorted(name for name in names if before.get(name) != self._seen.get(name))

    def _times(self) -> Iterator[tuple[str, int]]:
        for folder, folders, files in os.walk(self._folder):
            if "pyvenv.cfg" in files:
                folders.clear()
                continue
            folders[:] = [name for name in folders if name[0] != "." and name not in PASSED_OVER]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    try:
                        yield os.path.relpath(path, self._folder), os.stat(path).st_mtime_ns
                    except FileNotFoundError:
                        # Editors replace files.
                        continue
