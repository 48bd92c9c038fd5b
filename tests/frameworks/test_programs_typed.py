"""Strict type checkers agree with the programs for frameworks and of pages about job systems.

These import packages that the environment of the other pages has not; test_examples_typed.py of
tests/docs checks those pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.examples import FRAMEWORKS, program_files, stories
from tests.docs.pages import Kind
from tests.frameworks.conftest import ROOT
from tests.typecheckers import mypy, pyright

PAGES: Final = (
    "docs/JOB_SYSTEMS.md",
    "docs/REDIS.md",
    "docs/job-systems/move-celery.md",
    "docs/job-systems/redis-endpoint.md",
)
BY_SPARK: Final = ("docs/SPARK.md",)
"""Its programs need PySpark: tests/spark runs them, and checks no types."""
UNTYPED: Final = {
    "arq/connections": "has an environment of its own: it needs redis-py 5",
    "huey": "has no types, and no package of stubs",
}
"""Modules whose contents may be anything, and why."""
UNKNOWN: Final = (
    "reportUnknownArgumentType",
    "reportUnknownMemberType",
    "reportUnknownVariableType",
)
LESS_STRICT: Final = {
    # celery-types has wrong types for its arguments.
    "celery.contrib.migrate": ("reportArgumentType",),
    # These say `dict` or `Callable` without more, or return the sum of all answers.
    "django_tasks": UNKNOWN,
    "dramatiq": ("reportUnknownMemberType",),
    # Its client is a subclass of whichever HTTP library is installed.
    "fastapi.testclient": ("reportUnknownMemberType",),
    "redis": (*UNKNOWN, "reportOptionalIterable"),
}
"""What pyright does not ask of programs that import a package."""
MYPY_INI: Final = """\
[mypy]
strict = true
explicit_package_bases = true
mypy_path = typings
# Functions without types in packages that have types else.
untyped_calls_exclude = dramatiq.brokers.redis, redis

[mypy-celery.contrib.migrate]
# celery-types has wrong ones for its arguments.
follow_imports = skip
follow_imports_for_stubs = true
"""
ANYTHING: Final = "from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n"


def test_all_python_of_the_documentation_is_checked_by_one_of_the_tests() -> None:
    others = (ROOT / "tests" / "docs" / "examples.py").read_text()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = {str(page.relative_to(ROOT)) for page in pages if "\n```python" in page.read_text()}
    assert {page for page in found if f'"{page}"' not in others} == {*PAGES, *BY_SPARK}


@pytest.fixture(params=["Django", "other frameworks", "job systems"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The names of the files, which are in the test's folder: some have a module `shop` each."""
    for module in UNTYPED:
        stub = tmp_path / "typings" / f"{module}.pyi"
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(ANYTHING)
    programs = of_pages() if request.param == "job systems" else of_frameworks(request.param)
    assert programs
    for name, program in programs.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(checked(program))
    return [*programs]


def of_pages() -> dict[str, str]:
    """The programs of the pages, by the names of their files."""
    programs = {}
    for story in stories(*PAGES):
        for example in story.examples:
            if example.kind in {Kind.PYTHON, Kind.FILE}:
                place = f"{Path(story.page).stem}_{example.line}.py".replace("-", "_")
                program = "\n\n".join(part.text for part in example.program)
                programs[example.file or place] = program
    return programs


def of_frameworks(which: str) -> dict[str, str]:
    """The programs of examples/ for Django, or for the others."""
    folders = ["django"] if which == "Django" else [each for each in FRAMEWORKS if each != "django"]
    return {
        name: path.read_text() for folder in folders for name, path in program_files(folder).items()
    }


def checked(program: str) -> str:
    """A program with what pyright does not ask of it."""
    rules = [
        f"# pyright: {rule}=false\n"
        for package, rules in LESS_STRICT.items()
        if re.search(rf"^(import|from) {re.escape(package)}\b", program, re.MULTILINE)
        for rule in rules
    ]
    return "".join([*rules, program, "\n"])


def test_mypy_agrees_with_the_programs(programs: list[str], tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(MYPY_INI)
    mypy(tmp_path, programs)


def test_pyright_agrees_with_the_programs(programs: list[str], tmp_path: Path) -> None:
    # What an example goes on from imports names for all that go on from it.
    pyright(tmp_path, programs, reportUnusedImport=False)
