"""Releases of tzdata for drills: copies of the installed one in which one zone has other clocks.

A broker that starts with such a folder on its path takes its zones from there. The newer release
differs from the older one from a moment on, as when a country changes its clocks; so its instants
are right for the whole drill, if it is in force before that moment.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import tzdata

from delaylog.broker.rules.schedules.zones import PACKAGED, Zones

ZONE: Final = "Antarctica/Vostok"
OLDER, NEWER = "2000a", "2099a"
_HEADER: Final = struct.Struct(">4sc15x6l")
_TYPE: Final = struct.Struct(">lbb")


def zone_file(offset_s: int, later: Sequence[tuple[int, int]] = ()) -> bytes:
    """A TZif file: an offset from UTC, and (Unix s, offset) of each later change."""
    offsets = [offset_s, *(offset for _, offset in later)]
    name = b"X\0"
    return b"".join(
        (
            _HEADER.pack(b"TZif", b"2", 0, 0, 0, 0, 0, 0),
            _HEADER.pack(b"TZif", b"2", 0, 0, 0, len(later), len(offsets), len(name)),
            b"".join(struct.pack(">q", at_s) for at_s, _ in later),
            bytes(range(1, len(offsets))),
            b"".join(_TYPE.pack(offset, 0, 0) for offset in offsets),
            name,
            b"\n\n",
        )
    )


def write_release(folder: Path, version: str, zone: bytes) -> None:
    """A folder for PYTHONPATH with the package tzdata of this version."""
    package = folder / "tzdata"
    if not package.exists():
        shutil.copytree(Path(tzdata.__file__).parent, package)
    (package / "__init__.py").write_text(f'IANA_VERSION = "{version}"\n')
    (package / "zoneinfo" / ZONE).write_bytes(zone)


def zones_of(folder: Path, version: str) -> Zones:
    """The zones of a release, for a judge."""

    def load(name: str) -> ZoneInfo:
        if name != ZONE:
            return PACKAGED.zone(name)
        with (folder / "tzdata" / "zoneinfo" / name).open("rb") as file:
            return ZoneInfo.from_file(file, key=name)

    return Zones(version, PACKAGED.names, load)
