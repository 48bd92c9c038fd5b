"""`delaylog` with a wall clock that a drill can step: `stepped_node FILE serve …`.

FILE contains the offset of the clock in ms; on SIGUSR2 it is read again. The broker itself is
unchanged: its `BrokerClock` gets this wall clock as an argument, as in tests.
"""

from __future__ import annotations

import signal
import sys
import time
from functools import partial
from pathlib import Path
from types import FrameType


class SteppedWall:
    """`time.time` plus the offset in the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset_s = 0.0
        self.read()

    def read(self) -> None:
        """Read the offset."""
        text = self._path.read_text().strip() if self._path.exists() else ""
        self._offset_s = int(text or "0") / 1000

    def __call__(self) -> float:
        """This node's wall-clock time, in seconds."""
        return time.time() + self._offset_s


def main() -> int:
    """Run the `delaylog` command with this clock."""
    from delaylog.broker.cli import main as delaylog
    from delaylog.broker.host.clock import BrokerClock
    from delaylog.broker.process import parts

    wall = SteppedWall(Path(sys.argv[1]))

    def step(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (a handler's form)
        wall.read()

    signal.signal(signal.SIGUSR2, step)
    parts.__dict__["BrokerClock"] = partial(BrokerClock, wall=wall)
    return delaylog(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
