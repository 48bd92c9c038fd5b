"""Reads the planted faults of `faults.toml`, and plants them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final, NamedTuple

_TABLE: Final = Path(__file__).with_name("faults.toml")


class Fault(NamedTuple):
    """One edit of one file."""

    name: str
    promise: str
    """What users were promised, and do not get any more."""
    path: str
    tests: tuple[str, ...]
    """The files that find it, or single tests (`FILE::TEST`) of files that take long."""
    old: str
    new: str
    fixes: str = ""
    """The commit that mended it, if it was once in the product."""

    def planted(self, text: str) -> str:
        """The file's text with the fault. ValueError unless there is exactly one place for it."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: {found} places in {self.path}, not one")
        return text.replace(self.old, self.new)


def _read() -> tuple[Fault, ...]:
    table = tomllib.loads(_TABLE.read_text())
    return tuple(Fault(**each | {"tests": tuple(each["tests"])}) for each in table["fault"])


FAULTS: Final = _read()
