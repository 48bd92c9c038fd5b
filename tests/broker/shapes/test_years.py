"""Ten years pass on a moved clock, under 256 descriptors: every message comes, in order, once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import delaylog
from tests.programs import run_program

SOURCE = str(Path(delaylog.__file__).parents[1])

_SCRIPT = """
import os, resource, sys
from datetime import timedelta
sys.path.insert(0, sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import delaylog
from delaylog.broker.embedded import ManualClock
from delaylog.client import NewMessage
folder, every = sys.argv[2], int(sys.argv[3])
HOUR_MS, YEARS = 3_600_000, 10
YEAR_HOURS = 8_760
hours = range(1, YEARS * YEAR_HOURS, every)
clock = ManualClock()
start_ms = clock.now_ms()
got = []
with delaylog.open(folder, clock=clock) as broker:
    for first in range(0, len(hours), 5_000):
        part = hours[first : first + 5_000]
        broker.send_many("t", [NewMessage(str(h), delay=timedelta(hours=h)) for h in part])
for year in range(1, YEARS + 1):
    with delaylog.open(folder, clock=clock) as broker:
        clock.set(start_ms + year * YEAR_HOURS * HOUR_MS)
        while messages := broker.receive("t", max=1_000):
            got += [int(message.body) for message in messages]
            broker.ack(messages)
            assert len(os.listdir("/proc/self/fd")) < 240
        due = [h for h in hours if h <= year * YEAR_HOURS]
        assert got == due, (year, len(got), len(due))
"""


@pytest.mark.parametrize("every", [97, pytest.param(5, marks=pytest.mark.drill)])
def test_a_year_at_a_time(tmp_path: Path, every: int) -> None:
    command = [sys.executable, "-c", _SCRIPT, SOURCE, str(tmp_path / "f"), str(every)]
    done = run_program(*command, timeout=1_200)
    assert done.returncode == 0, done.stderr
