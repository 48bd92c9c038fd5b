"""tools/count_lines.py counts what must be read as code, and nothing else."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]

TOOL = runpy.run_path(str(ROOT / "tools" / "count_lines.py"))

SOURCE = '''"""A docstring
of two lines."""

# A comment.
LIMIT = (
    1,  # the first
)
"""What the limit means."""


def ends(text: str) -> bool:
    """Whether it ends."""
    return text == """a string
that is a value"""
'''


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    assert TOOL["code_lines"](SOURCE) == 6


def test_generated_modules_are_told_apart(tmp_path: Path) -> None:
    folder = tmp_path / "client"
    folder.mkdir()
    (folder / "made.py").write_text(
        '"""Calls.\n\nMade from a.py by `make twins`: change that one.\n"""\nA = 1\n'
    )
    (folder / "written.py").write_text("A = 1\nB = 2\n")
    found = list(TOOL["counted"](tmp_path, "client"))
    assert found == [("client/made.py", 1, True), ("client/written.py", 2, False)]


def test_each_leaf_has_modules() -> None:
    assert [leaf for leaf in TOOL["LEAVES"] if not any((ROOT / leaf).glob("*.py"))] == []
