"""What a program loads with an embedded broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("False\n", "")
