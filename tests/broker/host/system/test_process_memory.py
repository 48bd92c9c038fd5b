"""Freed memory leaves the process: what a load needed is not kept once it is over."""

from __future__ import annotations

import sys

from tests.programs import run_program

# A heap with holes: every second block is freed, so that nothing can go back from its end.
PROGRAM = """
import time
from delaylog.broker.host.system import process_memory
process_memory.tune()
blocks = [bytearray(200_000) for _ in range(1_000)]
small = [bytearray(2_000) for _ in range(1_000)]
full = process_memory.anonymous_bytes()
process_memory.start_keeper()
time.sleep(process_memory.LOOK_SECONDS * 1.5)
del blocks[::2]
deadline = time.monotonic() + 30
while process_memory.anonymous_bytes() > full - 80_000_000 and time.monotonic() < deadline:
    time.sleep(0.1)
print(full - process_memory.anonymous_bytes())
"""


def test_freed_blocks_go_back_although_others_lie_behind_them() -> None:
    done = run_program(sys.executable, "-c", PROGRAM, check=True)
    assert int(done.stdout) > 80_000_000
