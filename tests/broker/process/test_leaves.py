"""The core without each leaf: a program and some of its tests run where the leaf is missing.

The package is a tree of links to the one that is tested, in which the leaf's folders are missing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import delaylog
from delaylog.broker.process.leaves import FOLDERS, MissingLeafError, leaves, needed
from tests.programs import run_program

ROOT = Path(__file__).parents[3]
PACKAGE = Path(delaylog.__file__).parent
LEAVES = {
    "camellia": ("broker/camellia",),
    "dashboard": ("broker/ui",),
    "drills": ("broker/drills",),
    "history": ("broker/history", "broker/drills"),
}
"""The folders that are missing without each leaf. The drills check the histories they record."""
TESTS = (
    "tests/wheel/test_few_entries.py",
    "tests/storage/test_checkpoint.py",
    "tests/broker/engine/test_hold.py",
    "tests/broker/embedded/test_queue.py",
)


def link(source: Path, place: Path, missing: tuple[str, ...]) -> None:
    """Make a folder like `source`, with links, but for what is missing below it."""
    place.mkdir()
    for each in source.iterdir():
        within = [path for path in missing if f"{path}/".startswith(f"{each.name}/")]
        if each.name in within:
            continue
        if within:
            link(each, place / each.name, tuple(path.partition("/")[2] for path in within))
        else:
            (place / each.name).symlink_to(each.resolve())


@pytest.fixture
def without(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a program that sees a package without a leaf."""
    link(PACKAGE, tmp_path / "delaylog", LEAVES[request.param])
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "DELAYLOG_EFFORT": "0.02"}


def test_every_leaf_is_tested() -> None:
    assert {leaf.name for leaf in leaves()} == LEAVES.keys()
    assert {path.removeprefix("broker/") for paths in LEAVES.values() for path in paths} == set(
        FOLDERS
    )


def test_an_error_names_the_leaf_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaylog.broker.process.leaves.leaves", lambda: ())
    with pytest.raises(MissingLeafError, match="has no dashboard; run: pip install"):
        needed("dashboard")


@pytest.mark.processes
@pytest.mark.parametrize("without", LEAVES, indirect=True)
def test_core_serves_without_a_leaf(without: dict[str, str], tmp_path: Path) -> None:
    program = Path(__file__).with_name("without_a_leaf.py")
    done = run_program(sys.executable, "-P", program, tmp_path, env=without)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 500


@pytest.mark.processes
@pytest.mark.parametrize("without", LEAVES, indirect=True)
def test_tests_of_the_core_pass_without_a_leaf(without: dict[str, str]) -> None:
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS)
    done = run_program(sys.executable, *words, env=without, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout
