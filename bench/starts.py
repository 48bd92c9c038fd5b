"""How long a program waits before delaylog does anything: the import, and verbs that call nobody.

Each command is a process of its own, in turns with a bare `python -c pass`; the import is what its
process takes longer than the bare one. Files are in the page cache, and modules are compiled.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tables import Column, Table, at_most, median, milliseconds

ROUNDS: Final = 15
IMPORT_MS_MAX: Final = 50
HELP_MS_MAX: Final = 150


def measure() -> Table:
    """The medians of all commands."""
    program = str(Path(sys.executable).with_name("delaylog"))
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import delaylog": [sys.executable, "-c", "import delaylog"],
        "from delaylog import Client": [sys.executable, "-c", "from delaylog import Client"],
        "delaylog --help": [program, "--help"],
        "delaylog send --help": [program, "send", "--help"],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(ROUNDS + 1):
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            # The first turn compiles and loads.
            if turn:
                taken[name].append((time.perf_counter() - begun) * 1_000)
    medians = {name: median(each) for name, each in taken.items()}
    bare = medians["python -c pass"]
    table = Table(
        "starts: wall time of one process, warm",
        [
            Column("median, ms", "median_ms", milliseconds),
            Column("beyond bare Python, ms", "beyond_ms", milliseconds),
        ],
    )
    for name, took in medians.items():
        targets = []
        if name == "import delaylog":
            targets = [at_most(took - bare, IMPORT_MS_MAX, f"{IMPORT_MS_MAX} ms beyond")]
        elif name == "delaylog --help":
            targets = [at_most(took, HELP_MS_MAX, f"{HELP_MS_MAX} ms")]
        table.add(name, {"median_ms": took, "beyond_ms": took - bare}, targets)
    return table
