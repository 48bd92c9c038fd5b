"""What is made of modules for asyncio is what stands there, and both sides have the same names."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "unasync.py"))
FIELDS = runpy.run_path(str(ROOT / "tools" / "spark_fields.py"))
SOURCE, MADE, BY_HAND = TOOL["SOURCE"], TOOL["MADE"], TOOL["BY_HAND"]


def names_in(path: Path) -> set[str]:
    """What a module declares at its top for others."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")}


def test_twins_are_as_they_are_made() -> None:
    assert TOOL["unlike"]() == [], "change the module for asyncio, then `make twins`"


def test_the_fields_of_the_spark_connector_are_those_of_the_table() -> None:
    assert FIELDS["MADE"].read_text() == FIELDS["made"](), "`make twins`"


@pytest.mark.parametrize(("twin", "source"), TOOL["twins"]().items())
def test_nothing_of_asyncio_is_left_in_a_twin(twin: Path, source: Path) -> None:
    text = (ROOT / twin).read_text().replace(f"Made from {source} by", "")
    for word in ("await", "Async", "asyncio", "_async"):
        assert word not in text


def test_what_is_written_by_hand_is_there_on_both_sides() -> None:
    for name in BY_HAND:
        assert (ROOT / SOURCE / name).is_file()
        assert (ROOT / MADE / name).is_file()


def test_concurrency_has_the_same_names_on_both_sides() -> None:
    sides = [names_in(ROOT / side / "concurrency.py") for side in (SOURCE, MADE)]
    assert sides[0] == sides[1]


def marked(path: Path) -> bool:
    """Whether `.gitattributes` says that a file is generated: its last line about it counts."""
    found = False
    for line in (ROOT / ".gitattributes").read_text().splitlines():
        pattern, _, attribute = line.partition(" ")
        if pattern[:1] != "#" and path.match(pattern.replace("/**", "/*")):
            found = attribute == "linguist-generated"
    return found


def test_generated_files_are_marked_as_such() -> None:
    made = {*TOOL["twins"](), FIELDS["MADE"].relative_to(ROOT)}
    by_hand = {MADE / name for name in BY_HAND} | set(TOOL["twins"]().values())
    assert {path for path in made | by_hand if marked(path)} == made
