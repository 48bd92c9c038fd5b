"""The checks of `delaylog doctor broker --folder`: the machine under a broker, seen from itself.

`look` measures, the checks are pure.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from delaylog.broker.cli.doctor.findings import Checks, Finding, Found, Mark, run_checks
from delaylog.broker.cli.watching.scrapes import seconds_text

SYNCS: Final = 32
SYNC_BYTES: Final = 4_096
SYNC_S_WARN: Final = 0.02
"""Median of syncs: each answered send waits for at least one."""
LONGEST_S_WARN: Final = 0.1
INODES_WARN: Final = 10_000
_TIME_ERROR: Final = 5
"""Result of adjtimex(2) while nothing disciplines the clock."""
_TIMEX_BYTES: Final = 256
"""More than `struct timex` has; zeros ask for no change."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What was measured."""

    syncs_s: Sequence[float]
    """Times of writing and syncing a few kilobytes in the data folder."""
    free_inodes: int | None
    """None: its file system does not count them."""
    clock_synchronised: bool | None
    """None: this system does not tell."""


def look(folder: str) -> Machine:
    """Measure the file system of a folder, and ask for the clock. Raises OSError."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(SYNC_BYTES))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    found = os.statvfs(folder)
    return Machine(times, found.f_favail if found.f_files else None, _synchronised())


def _synchronised() -> bool | None:
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (AttributeError, OSError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def examine_machine(machine: Machine) -> list[Finding]:
    """The findings of all checks."""
    return run_checks(CHECKS, machine)


def _disk(machine: Machine) -> Found:
    usual_s, longest_s = median(machine.syncs_s), max(machine.syncs_s)
    if usual_s > SYNC_S_WARN or longest_s > LONGEST_S_WARN:
        text = (
            f"a sync takes {seconds_text(usual_s)}, the longest of {len(machine.syncs_s)} took "
            f"{seconds_text(longest_s)}"
        )
        yield Mark.WARN, text, "give the data folder a disk of its own, or a faster one"


def _inodes(machine: Machine) -> Found:
    if machine.free_inodes is not None and machine.free_inodes < INODES_WARN:
        text = f"its file system has room for {machine.free_inodes} more files"
        yield Mark.WARN, text, "remove files, or give the data folder a file system of its own"


def _clock(machine: Machine) -> Found:
    if machine.clock_synchronised is False:
        yield Mark.WARN, "nothing synchronises this machine's clock", "run an NTP client"


CHECKS: Final[Checks[Machine]] = (
    ("machine disk", "syncs in the data folder are quick", _disk),
    ("machine files", "the file system has room for files", _inodes),
    ("machine clock", "this machine's clock is synchronised, as far as it tells", _clock),
)
