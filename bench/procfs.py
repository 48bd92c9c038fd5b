"""What the kernel knows: processor time and resident size of a process, and how busy the rest is.

Read-only and Linux only. The one rule: processor time is utime + stime of all threads of the
process itself, so what a server spends on its helpers is never left out. The kernel counts it in
ticks (10 ms nearly everywhere), so only windows of some tenths of a second mean anything.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")

# Shares of /proc/stat's first line that are somebody's work: user, nice, system, irq, softirq,
# steal. Idle and iowait (fields 3 and 4) are not.
_BUSY_FIELDS: Final = (0, 1, 2, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class Resident:
    """Resident sizes of a process in bytes: now, its peak, and its anonymous and file parts."""

    total: int
    peak: int
    anonymous: int
    file: int


def cpu_seconds(process_id: int) -> float:
    """Processor time of a living process so far."""
    return sum(cpu_times(process_id))


def cpu_times(process_id: int) -> tuple[float, float]:
    """Seconds of user and of system time of a living process so far."""
    # The command's name may hold blanks and brackets: fields count from behind its last bracket.
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / TICKS_PER_SECOND, int(fields[12]) / TICKS_PER_SECOND


def loop_ns(process_id: int) -> int:
    """Processor time of the first thread of a living process, which is a broker's loop, in ns:
    `cpu_seconds` counts ticks, which are much of a short window.
    """
    return int(Path(f"/proc/{process_id}/task/{process_id}/schedstat").read_text().split()[0])


def tree_cpu_seconds(process_id: int, *, but: int) -> float:
    """Processor time of all that descends from a process, ended ones too, `but` one branch."""
    total = 0.0
    for child in _children(process_id):
        if child == but:
            continue
        try:
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        total += sum(map(int, fields[11:15])) / TICKS_PER_SECOND
        total += tree_cpu_seconds(child, but=but)
    return total


def _children(process_id: int) -> list[int]:
    """Of all its threads: the JVM starts processes from many."""
    found: list[int] = []
    for path in Path(f"/proc/{process_id}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def resident(process_id: int) -> Resident:
    """VmRSS and its parts, and VmHWM, the kernel's own high-water mark of it."""
    sizes = {"VmRSS": 0, "VmHWM": 0, "RssAnon": 0, "RssFile": 0}
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in sizes:
            sizes[name] = int(rest.split()[0]) * 1024
    return Resident(sizes["VmRSS"], sizes["VmHWM"], sizes["RssAnon"], sizes["RssFile"])


def file_system_of(folder: Path) -> str:
    """Kind of the file system that holds a folder: `ext4`, `tmpfs`, …"""
    best, kind = "", "unknown"
    target = str(folder.resolve())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        mount, mount_kind = line.split()[1:3]
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, mount_kind
    return kind


def tree_bytes(folder: Path) -> int:
    """Disk space that the files below a folder occupy (holes count as nothing)."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


class OthersMeter:
    """How much of the machine's processors went to work that is not ours, over a window.

    Two shared cores are often not ours alone; a figure is only worth what this share allows. Ours
    is this process and its children, those that have ended and those that still run.
    """

    def __init__(self) -> None:
        self._ticks = _machine_ticks()
        self._own_s = _own_seconds()

    @classmethod
    def started(cls) -> Self:
        """A meter that counts from now."""
        return cls()

    def share(self) -> float:
        """The others' share of all processors since the start, 0 to 1."""
        busy, total = (now - then for now, then in zip(_machine_ticks(), self._ticks, strict=True))
        own = (_own_seconds() - self._own_s) * TICKS_PER_SECOND
        return max(0.0, (busy - own) / total) if total else 0.0


def _machine_ticks() -> tuple[int, int]:
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields[index] for index in _BUSY_FIELDS), sum(fields)


def _own_seconds() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    alive = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    children_s = ended.ru_utime + ended.ru_stime + sum(cpu_seconds(int(child)) for child in alive)
    return own.ru_utime + own.ru_stime + children_s
