"""The bench of elections: what counts as a line, and that the adapter fits where raftos does."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from typing import Any

from delaylog.broker.cluster.member_oracle import Election

BENCH = Path(__file__).parents[2] / "bench"
SOURCE = '''"""Text
over two lines."""

# A comment.
VALUE = (
    1  # and one behind code
)
"""What it is."""


def double(value):
    """More text."""
    text = """one
two"""
    return text * value
'''


def elections() -> Any:
    """The module, whose neighbours are imported by bare name."""
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module("elections")
    finally:
        sys.path.remove(str(BENCH))


def test_comments_docstrings_and_blank_lines_are_no_code() -> None:
    """Three lines of the value, two of the text, and the two around it."""
    assert elections().code_lines(SOURCE) == 7


def test_the_adapter_has_all_that_a_member_asks_of_its_oracle() -> None:
    """Read from its source, since PySyncObj need not be installed."""
    tree = ast.parse((BENCH / "pysyncobj_oracle.py").read_text())
    (adapter,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    names = {node.name for node in ast.walk(adapter) if hasattr(node, "name")}
    names |= {node.target.id for node in adapter.body if isinstance(node, ast.AnnAssign)}
    asked = {name for name in dir(Election) if not name.startswith("_")}
    # What the adapter leaves out: members that change, and the ages of datagrams.
    assert asked - names == {"ages_ms", "change_members"}
