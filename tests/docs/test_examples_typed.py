"""A reader's own type checker agrees with what the pages show, without annotations of theirs.

Each example is a file, with what it goes on from before it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.docs.examples import PAGES, ROOT, stories
from tests.docs.pages import Kind
from tests.programs import run_program

TYPES_OF_OTHERS: Final = ("--ignore-missing-imports", "--follow-untyped-imports")
CACHE: Final = ROOT / ".mypy_cache" / "examples"
"""Apart from that of `make lint`, which has other options."""
OPTIONS: Final = ("--check-untyped-defs", *TYPES_OF_OTHERS, "--cache-dir", str(CACHE))


def test_examples_are_type_checked(tmp_path: Path) -> None:
    names = []
    for story in stories(*PAGES):
        for example in story.examples:
            if example.kind in {Kind.PYTHON, Kind.PYTEST, Kind.FILE}:
                page = Path(example.page).stem.lower()
                name = example.file or f"{page}_{example.line}.py"
                program = "\n\n".join(part.text for part in example.program)
                (tmp_path / name).write_text(program + "\n")
                names.append(name)
    checked = run_program(
        sys.executable, "-P", "-m", "mypy", *OPTIONS, *names, cwd=tmp_path, timeout=300
    )
    assert checked.returncode == 0, checked.stdout
