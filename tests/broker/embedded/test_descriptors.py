"""Many hours under a small limit of descriptors: the broker serves, ends and comes back.

Method: a process of its own, limited as `ulimit -n` does it, opens a folder, spreads messages over
more hours than it could keep open, and counts what is there after each restart.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import delaylog
from tests.programs import run_program

SOURCE = str(Path(delaylog.__file__).parents[1])

_BEGIN = """
import resource, sys
from datetime import timedelta
sys.path.insert(0, sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import delaylog
from delaylog.client import NewMessage
folder, hours = sys.argv[2], int(sys.argv[3])

def descriptors():
    import os
    return len(os.listdir("/proc/self/fd"))

def spread(name):
    spans = {k: timedelta(hours=k) for k in range(2, hours + 2)}
    return [NewMessage(name, id=f"{name}{k}", delay=span) for k, span in spans.items()]
"""


def run_limited(tmp_path: Path, hours: int, script: str) -> None:
    """Run `script` behind the common beginning; its assertions are the test's."""
    command = [sys.executable, "-c", _BEGIN + script, SOURCE, str(tmp_path / "f"), str(hours)]
    done = run_program(*command, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("hours", [400, pytest.param(2_000, marks=pytest.mark.drill)])
def test_a_message_an_hour_needs_no_descriptor_an_hour(tmp_path: Path, hours: int) -> None:
    """One flush reaches all hours; so do the restart behind it and the look-ups behind that."""
    run_limited(
        tmp_path,
        hours,
        """
for name in ("a", "b"):
    with delaylog.open(folder) as broker:
        broker.send_many("t", spread(name))
        assert descriptors() < 200
for _ in range(2):
    with delaylog.open(folder) as broker:
        assert sum(1 for _ in broker.browse("t")) == 2 * hours
        assert broker.get("t", f"b{hours}").body == b"b"
        assert descriptors() < 200
""",
    )


def test_states_of_many_hours_and_groups_need_no_descriptor_each(tmp_path: Path) -> None:
    """A cancel writes a state for each group of its hour; all are there after a restart."""
    run_limited(
        tmp_path,
        150,
        """
def resident_mib():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() >> 20

with delaylog.open(folder) as broker:
    broker.put_topic("t", {})
    for group in ("g1", "g2", "g3"):
        broker.put_group("t", group)
    broker.send_many("t", spread("a"))
    before = resident_mib()
    for k in range(2, hours + 2):
        assert broker.cancel("t", f"a{k}")
        assert descriptors() < 200
    assert resident_mib() < before + 100
for _ in range(2):
    with delaylog.open(folder) as broker:
        for group in (None, "g1", "g2", "g3"):
            chosen = {"group": group} if group else {}
            states = [each.state for each in broker.browse("t", **chosen)]
            assert states == ["cancelled"] * hours, (group, states[:3])
        assert descriptors() < 200
""",
    )
