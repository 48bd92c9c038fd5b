"""Plants faults (`tests/planted/faults.toml`) and says how many seeds of the simulation each needs.

    python tests/simulation/planted.py [SEEDS=60] [NAME …]

Each fault is planted in a copy of the tree. What comes of it goes to
tests/planted/seeds_needed.txt, where other faults stay as they are. Not every fault can be found
here: some are of parts that no actor reaches.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.planted.faults import FAULTS, Fault  # noqa: E402 (it is a program of the tree)
from tests.planted.run import copy_of_tree  # noqa: E402

REACHED: Final = ("storage/", "wheel/", "broker/engine/", "broker/host/", "broker/calls/turn/")
"""Where the actors of the simulation can meet a fault."""
TABLE: Final = ROOT / "tests/planted/seeds_needed.txt"
HEAD: Final = """\
# How many seeds of the simulation each planted fault needs, and what finds it; made by
# tests/simulation/planted.py. Faults that are not named were not tried.
"""
MINUTES_MAX: Final = 5


def main(arguments: Sequence[str]) -> int:
    """Plant the named faults, or all that may be reached."""
    seeds = next((int(each[6:]) for each in arguments if each.startswith("SEEDS=")), 60)
    names = [each for each in arguments if "=" not in each]
    faults = (
        [each for each in FAULTS if each.name in names]
        if names
        else [each for each in FAULTS if each.path.startswith(REACHED)]
    )
    table = _table()
    with copy_of_tree() as tree:
        for fault in faults:
            began_s = time.monotonic()
            table[fault.name] = found = _seeds_needed(tree, fault, seeds)
            print(f"{fault.name:32} {found}  ({time.monotonic() - began_s:.0f} s)", flush=True)
            _write(table)
    return 0


def _table() -> dict[str, str]:
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    pairs = (line.split(maxsplit=1) for line in lines if not line.startswith("#"))
    return {name: found.strip() for name, found in pairs}


def _write(table: dict[str, str]) -> None:
    known = {fault.name for fault in FAULTS}
    lines = [f"{name:32} {found}\n" for name, found in sorted(table.items()) if name in known]
    TABLE.write_text(HEAD + "".join(lines))


def _seeds_needed(tree: Path, fault: Fault, seeds: int) -> str:
    path = tree / fault.path
    sound = path.read_text()
    path.write_text(fault.planted(sound))
    command = [sys.executable, "tests/simulation/run.py", f"SEEDS={seeds}", "STOP=1"]
    command.append(f"MINUTES={MINUTES_MAX}")
    try:
        run = subprocess.run(
            command,
            cwd=tree,
            check=False,
            env=os.environ | {"PYTHONPATH": str(tree / "src")},
            capture_output=True,
            text=True,
            timeout=180 * MINUTES_MAX,
        )
    except subprocess.TimeoutExpired:
        return "no end: found"
    finally:
        path.write_text(sound)
    found = re.search(r"^seed (\d+): (\S+ ?\S*):", run.stdout, re.MULTILINE)
    if found is not None:
        return f"{int(found[1]) + 1}  {found[2]}"
    if run.returncode not in (0, 2):
        return f"1  the run ends: {run.stderr.strip().splitlines()[-1][:80]}"
    done = re.search(r"^(\d+) seeds", run.stdout, re.MULTILINE)
    return f"-  not in {done[1] if done else 0} seeds"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
