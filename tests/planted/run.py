"""Plant faults (`faults.toml`), each in a copy of the tree, and say which test finds each.

    python tests/planted/run.py [NAME …]

Prints a line for each fault: the first test that fails, and after how many seconds. Ends with 1 if
a fault was not found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.planted.faults import FAULTS, Fault  # noqa: E402 (it is a program of the tree)

SECONDS_MAX: Final = 900
"""A fault may make tests wait for ever: that finds it too."""


def main(names: Sequence[str]) -> int:
    """Plant the named faults, or all."""
    if unknown := set(names) - {each.name for each in FAULTS}:
        print(f"no fault is named {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    missed = 0
    with _copy() as tree:
        for fault in FAULTS:
            if names and fault.name not in names:
                continue
            began_s = time.monotonic()
            test = _found_by(tree, fault)
            missed += test is None
            print(
                f"{fault.name:32} {time.monotonic() - began_s:6.0f} s  {test or 'NOT FOUND'}",
                flush=True,
            )
    print(f"{missed} faults were not found" if missed else "all were found")
    return 1 if missed else 0


@contextmanager
def _copy() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    with TemporaryDirectory(prefix="planted-") as folder:
        for name in filter(None, listed.split("\0")):
            there = Path(folder, name)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, there, follow_symlinks=False)
        yield Path(folder)


def _found_by(tree: Path, fault: Fault) -> str | None:
    """The first test that fails with the fault; None if none of its tests does."""
    path = tree / fault.path
    sound = path.read_text()
    path.write_text(fault.planted(sound))
    try:
        for tests in fault.tests:
            if (test := _first_failure(tree, tests)) is not None:
                return test
    finally:
        path.write_text(sound)
    return None


def _first_failure(tree: Path, tests: str) -> str | None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider"]
    paths = {"PYTHONPATH": str(tree / "src"), "DELAYLOG_EFFORT": "0.5"}
    try:
        run = subprocess.run(
            [*command, tests],
            cwd=tree,
            check=False,
            env=os.environ | paths,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return f"{tests} (does not end)"
    if run.returncode == 0:
        return None
    if run.returncode not in (1, 2):
        raise RuntimeError(f"pytest ended with {run.returncode}:\n{run.stdout}{run.stderr}")
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    return found[1] if found else f"{tests} (pytest ended with {run.returncode})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
