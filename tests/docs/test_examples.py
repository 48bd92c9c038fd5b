"""Every example of the pages below is run as it stands, against live brokers, story by story.

A story is a section of a page; see `pages` for what a page can say about its examples and `stage`
for how they are run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import Kind, Story, stories_of
from tests.docs.stage import Stage

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    "README.md",
    "docs/TUTORIAL.md",
    "docs/HOWTO.md",
    "docs/SDK.md",
    "docs/TESTING_PROGRAMS.md",
    "docs/COMING-FROM.md",
)
TYPES_OF_OTHERS: Final = ("--ignore-missing-imports", "--follow-untyped-imports")
CACHE: Final = ROOT / ".mypy_cache" / "examples"
"""Apart from that of `make lint`, which has other options."""
OPTIONS: Final = ("--check-untyped-defs", *TYPES_OF_OTHERS, "--cache-dir", str(CACHE))


def all_stories() -> list[Story]:
    return [story for page in PAGES for story in stories_of(ROOT / page, ROOT)]


@pytest.mark.parametrize("story", all_stories(), ids=lambda story: f"{story.page}: {story.title}")
def test_examples_do_what_their_page_says(story: Story, tmp_path: Path) -> None:
    with Stage(story, tmp_path) as stage:
        for example in story.examples:
            stage.run(example)


@pytest.mark.parametrize("page", PAGES)
def test_only_what_needs_spark_is_not_run(page: str) -> None:
    examples = [each for story in stories_of(ROOT / page, ROOT) for each in story.examples]
    assert examples
    left = [each for each in examples if each.kind is Kind.NOT_RUN]
    assert [each.place for each in left if "needs Spark" not in each.why_not] == []


def test_examples_are_type_checked(tmp_path: Path) -> None:
    """A reader's own checker has to agree with what the pages show, without annotations of theirs.

    Each example is a file, with what it goes on from before it.
    """
    names = []
    for story in all_stories():
        for example in story.examples:
            if example.kind in {Kind.PYTHON, Kind.PYTEST, Kind.FILE}:
                page = Path(example.page).stem.lower()
                name = example.file or f"{page}_{example.line}.py"
                program = "\n\n".join(part.text for part in example.program)
                (tmp_path / name).write_text(program + "\n")
                names.append(name)
    checked = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", *OPTIONS, *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
