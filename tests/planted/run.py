"""Plant faults (`faults.toml`), each in a copy of the tree, and check that its test finds it.

    python tests/planted/run.py [NAME …]

First runs all of their tests without a fault. Then prints for each fault the seconds it took, and
the test that failed with its reason. Ends with 1 if a fault was not found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.planted.faults import FAULTS, Fault  # noqa: E402 (it is a program of the tree)

SECONDS_MAX: Final = 300
"""A fault may make tests wait for ever: that finds it too."""


def main(names: Sequence[str]) -> int:
    """Plant the named faults, or all."""
    if unknown := set(names) - {each.name for each in FAULTS}:
        print(f"no fault is named {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    faults = [each for each in FAULTS if not names or each.name in names]
    missed = []
    with copy_of_tree() as tree:
        tests = dict.fromkeys(test for each in faults for test in each.tests)
        if (failure := _first_failure(tree, tests, seconds_max=None)) is not None:
            print(f"a test fails without any fault: {failure}", file=sys.stderr)
            return 2
        for fault in faults:
            began_s = time.monotonic()
            failure = _found_by(tree, fault)
            if failure is None:
                missed.append(fault.name)
            seconds = time.monotonic() - began_s
            print(f"{fault.name:28}{seconds:4.0f} s  {failure or 'NOT FOUND'}", flush=True)
    print(f"{len(faults) - len(missed)} of {len(faults)} faults were found", *missed, sep="\n  ")
    return 1 if missed else 0


@contextmanager
def copy_of_tree() -> Iterator[Path]:
    """The files of git, in a folder of their own."""
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
    """The first test that fails with the fault, and why; None if none of its tests does."""
    path = tree / fault.path
    sound = path.read_text()
    path.write_text(fault.planted(sound))
    try:
        return _first_failure(tree, fault.tests, seconds_max=SECONDS_MAX)
    finally:
        path.write_text(sound)


def _first_failure(tree: Path, tests: Iterable[str], *, seconds_max: int | None) -> str | None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    # The reason is cut at the width of the terminal.
    variables = {"PYTHONPATH": str(tree / "src"), "DELAYLOG_EFFORT": "0.5", "COLUMNS": "200"}
    try:
        run = subprocess.run(
            command,
            cwd=tree,
            check=False,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=seconds_max,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {seconds_max} s"
    if run.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.+)", run.stdout, re.MULTILINE)
    if run.returncode not in (1, 2) or found is None:
        raise RuntimeError(f"pytest ended with {run.returncode}:\n{run.stdout}{run.stderr}")
    return found[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
