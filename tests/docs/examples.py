"""The pages whose examples are run, and their stories; the programs of examples/."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.docs.pages import Story, stories_of

ROOT: Final = Path(__file__).parents[2]
LONGEST: Final = "docs/HOWTO.md"
"""It has as many examples as the others together, so it is run beside them, by its own file."""
PAGES: Final = (
    "README.md",
    "docs/TUTORIAL.md",
    LONGEST,
    "docs/SDK.md",
    "docs/COMMANDS.md",
    "docs/DASHBOARD.md",
    "docs/SCHEDULES.md",
    "docs/STREAMS.md",
    "docs/TESTING_PROGRAMS.md",
    "docs/COMING-FROM.md",
)


FRAMEWORKS: Final = ("aiohttp", "fastapi", "flask", "django")
"""Folders of examples/ with the programs of docs/FRAMEWORKS.md."""


def program_files(example: str) -> dict[str, Path]:
    """The Python files of a folder of examples/, by their names in it."""
    folder = ROOT / "examples" / example
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*.py"))}


def stories(*pages: str) -> list[Story]:
    return [story for page in pages for story in stories_of(ROOT / page, ROOT)]


def named(story: Story) -> str:
    return f"{story.page}: {story.title}"
