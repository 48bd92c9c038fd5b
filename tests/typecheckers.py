"""mypy and pyright, both strict, as a reader's editor runs them on a program of theirs.

Both come from the environment of `make venv`; they look for packages in that of the test.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.programs import run_program

ROOT: Final = Path(__file__).parents[1]
CHECKERS: Final = ROOT / ".venv" / "bin" / "python"
LIMIT_S: Final = 300


def mypy(folder: Path, names: Sequence[str], *options: str) -> None:
    """Check files of a folder. Fails with what mypy says."""
    # Apart from the cache of `make lint`, which has other options.
    cache = ROOT / ".mypy_cache" / "strict"
    words = ["-m", "mypy", "--strict", "--python-executable", sys.executable, "--cache-dir", cache]
    done = run_program(CHECKERS, "-P", *words, *options, *names, cwd=folder, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr


def pyright(folder: Path, names: Sequence[str], **settings: Any) -> None:
    """Check files of a folder, to which its configuration is written. Fails with its complaints."""
    assert shutil.which("node"), "pyright needs Node.js on the PATH: apt-get install nodejs"
    settings = {"typeCheckingMode": "strict", "include": [*names], **settings}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = run_program(
        *(CHECKERS, "-P", "-m", "pyright", "--pythonpath", sys.executable),
        cwd=folder,
        timeout=LIMIT_S,
        # A newer release is no matter of a test.
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors" in done.stdout, done.stdout
