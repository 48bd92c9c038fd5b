"""The recipes of CONTRIBUTING.md: the edits that each describes, and the program that shows them.

A recipe is a section of level 3; one without blocks is a list of places. Its blocks of ```diff name
a file after `+++ ` and hold hunks between `@@` lines; its one block of ```python is run after all
edits, and prints the ```text block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SECTION: Final = re.compile(r"^### (?P<title>.+)\n(?P<text>(?:(?!^##).*\n)*)", re.MULTILINE)
BLOCK: Final = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One recipe."""

    title: str
    edits: tuple[str, ...]
    program: str
    printed: str


class StaleRecipe(Exception):
    """An edit does not fit the file that it names; says which."""


def recipes_of(page: str) -> list[Recipe]:
    """The recipes of a page that can be run."""
    found = []
    for section in SECTION.finditer(page):
        blocks: dict[str, list[str]] = {"diff": [], "python": [], "text": []}
        for block in BLOCK.finditer(section["text"]):
            blocks[block["language"]].append(block["text"])
        if not any(blocks.values()):
            continue
        (program,), (printed,) = blocks["python"], blocks["text"]
        found.append(Recipe(section["title"], tuple(blocks["diff"]), program, printed))
    return found


def apply_edit(edit: str, root: Path) -> Path:
    """Make one block's changes below `root`; returns the file. Raises StaleRecipe."""
    head, _, body = edit.partition("\n")
    path = root / head.removeprefix("+++ ")
    make_own(path, root)
    text = path.read_text() if path.exists() else ""
    for hunk in re.split(r"^@@\n", body, flags=re.MULTILINE):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        if not before and not text:
            text = after
        elif not before or text.count(before) != 1:
            raise StaleRecipe(
                f"{path.relative_to(root)} holds this {text.count(before)} times:\n{before}"
            )
        else:
            text = text.replace(before, after)
    put_text(path, text, root)
    return path


def make_own(path: Path, root: Path) -> None:
    """Let the folders of a file below `root` be folders, of links to what they hold elsewhere."""
    for folder in reversed(path.relative_to(root).parents):
        own = root / folder
        if own.is_symlink():
            other = own.readlink()
            own.unlink()
            own.mkdir()
            for each in other.iterdir():
                if each.name != "__pycache__":
                    (own / each.name).symlink_to(each)


def put_text(path: Path, text: str, root: Path) -> None:
    """Write a file below `root`, and nowhere else: a link is replaced."""
    make_own(path, root)
    path.unlink(missing_ok=True)
    path.write_text(text)
