"""Strict type checkers agree with what the pages show.

Each example is a file, with what it goes on from before it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.docs.examples import PAGES, program_files, stories
from tests.docs.pages import Kind
from tests.typecheckers import mypy, pyright

UNTYPED: Final = ("msgpack", "redis")
"""Packages whose types are missing or incomplete; what they return is unknown to pyright."""
NOT_KNOWN: Final = (
    "# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, "
    "reportUnknownMemberType=false, reportUnknownVariableType=false\n"
)


@pytest.fixture
def examples(tmp_path: Path) -> list[str]:
    """The names of the files, which are in the test's folder."""
    names = []
    # Of the web frameworks, aiohttp is installed here.
    for name, path in program_files("aiohttp").items():
        shutil.copy(path, tmp_path / name)
        names.append(name)
    for story in stories(*PAGES):
        for example in story.examples:
            if example.kind in {Kind.PYTHON, Kind.PYTEST, Kind.FILE}:
                page = Path(example.page).stem.lower()
                name = example.file or f"{page}_{example.line}.py"
                program = "\n\n".join(part.text for part in example.program)
                untyped = any(f"import {package}\n" in program for package in UNTYPED)
                head = NOT_KNOWN if untyped else ""
                (tmp_path / name).write_text(f"{head}{program}\n")
                names.append(name)
    return names


def test_mypy_agrees_with_the_examples(examples: list[str], tmp_path: Path) -> None:
    mypy(tmp_path, examples, "--ignore-missing-imports")


def test_pyright_agrees_with_the_examples(examples: list[str], tmp_path: Path) -> None:
    # What an example goes on from imports names for all that go on from it.
    pyright(tmp_path, examples, reportUnusedImport=False, useLibraryCodeForTypes=False)
