"""`delaylog` with a wall clock that a drill can step: `stepped_node FILE serve …`.

FILE holds by how many ms the clock is off; SIGUSR2 has it read again. Nothing of the broker knows
of this: its clock is given another wall to look at, which is what tests do too.
"""

from __future__ import annotations

import signal
import sys
import time
from functools import partial
from pathlib import Path
from types import FrameType


class SteppedWall:
    """`time.time`, off by what the file says."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset_s = 0.0
        self.read()

    def read(self) -> None:
        """See how far it is off now."""
        text = self._path.read_text().strip() if self._path.exists() else ""
        self._offset_s = int(text or "0") / 1000

    def __call__(self) -> float:
        """The wall clock of this node."""
        return time.time() + self._offset_s


def main() -> int:
    """Run the command on that clock."""
    from delaylog.broker.cli import main as delaylog
    from delaylog.broker.host import serve
    from delaylog.broker.host.clock import BrokerClock

    wall = SteppedWall(Path(sys.argv[1]))

    def step(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (a handler's form)
        wall.read()

    signal.signal(signal.SIGUSR2, step)
    serve.__dict__["BrokerClock"] = partial(BrokerClock, wall=wall)
    return delaylog(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
