"""What a program loads with an embedded broker."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.programs import run_program

PROGRAM = """
import sys
import delaylog

with delaylog.open(sys.argv[1]) as broker:
    broker.send("t", "x")
    broker.ack(broker.receive("t"))
    broker.stats("t")
print("aiohttp" in sys.modules)
"""


def test_no_http_library_is_loaded(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", PROGRAM, str(tmp_path / "data")]
    ran = run_program(*command)
    assert (ran.stdout, ran.stderr) == ("False\n", "")
