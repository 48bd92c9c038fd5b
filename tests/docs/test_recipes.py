"""Each recipe of CONTRIBUTING.md works: its edits are made in a copy of the tree, then it is run.

Links stand for all that is not edited, so a copy costs little.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.recipes import Recipe, StaleRecipe, apply_edit, put_text, recipes_of
from tests.programs import run_program

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "CONTRIBUTING.md").read_text()
LINKED: Final = (
    "broker",
    "client",
    "contract",
    "pyproject.toml",
    "replication",
    "storage",
    "wheel",
)


def run(*argv: str | Path, cwd: Path) -> str:
    paths = {"PYTHONPATH": str(cwd / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = run_program(
        sys.executable, "-P", *argv, cwd=cwd, env={**os.environ, **paths}, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make_tree(folder: Path) -> None:
    """A source tree of links; what is edited becomes a copy."""
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "src", folder / "src", symlinks=True)
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "unasync.py", folder / "tools")


def make_twins(folder: Path, changed: list[Path]) -> None:
    """As `make twins`, of the changed modules."""
    tool = runpy.run_path(str(folder / "tools" / "unasync.py"))
    for twin, source in tool["twins"]().items():
        if folder / source in changed:
            put_text(folder / twin, tool["made_of"](source), folder)


@pytest.mark.parametrize("recipe", recipes_of(PAGE), ids=lambda recipe: recipe.title)
def test_a_recipe_works(recipe: Recipe, tmp_path: Path) -> None:
    make_tree(tmp_path)
    changed = [apply_edit(edit, tmp_path) for edit in recipe.edits]
    run("-m", "ruff", "check", "--quiet", *changed, cwd=tmp_path)
    run("-m", "ruff", "format", "--quiet", "--check", *changed, cwd=tmp_path)
    make_twins(tmp_path, changed)
    (tmp_path / "result.py").write_text(recipe.program)
    assert run("result.py", cwd=tmp_path) == recipe.printed


def test_there_is_a_recipe_for_each_kind_of_addition() -> None:
    titles = [recipe.title.removeprefix("Add a ") for recipe in recipes_of(PAGE)]
    assert titles == ["metric", "setting", "call", "field of a message", "frame"]


def test_an_edit_that_does_not_fit_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    apply_edit("+++ a.py\n x = 1\n+y = 2\n", tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 2\n"
    apply_edit("+++ b.py\n+z = 3\n", tmp_path)
    assert (tmp_path / "b.py").read_text() == "z = 3\n"
    with pytest.raises(StaleRecipe, match=r"a\.py holds this 0 times:\nx = 2"):
        apply_edit("+++ a.py\n-x = 2\n", tmp_path)
