"""The pages name what is there: paths, layers, design decisions, and each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DESIGN: Final = ROOT / "docs" / "design"
PAGES: Final = [
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
DECISIONS: Final = sorted(DESIGN.glob("*/*.md"))
PATH: Final = re.compile(
    r"`((?:bench|broker|client|contract|docs|ops|replication|storage|tests|tools|wheel)/[\w./-]*\w(?:\.py|/))`"
)
"""A path from the root in code marks: a module, or a folder by its last slash."""
MEMBER: Final = re.compile(r"`([A-Z]\w*[a-z]\w*)\.(\w+)`")
"""A class and its member, in code marks."""
SOURCES: Final = ("broker", "client", "contract", "replication", "storage", "wheel")
LINK: Final = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINKING: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
HEADINGS: Final = ["Problem", "Decision", "Measured", "Rejected"]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if page.exists()], ids=name_of)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    assert [path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists()] == []


def test_the_members_that_the_tour_names_exist() -> None:
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "ARCHITECTURE.md", *DECISIONS]
    named = {pair for page in pages for pair in MEMBER.findall(page.read_text())}
    modules = [path.read_text() for name in SOURCES for path in ROOT.glob(f"{name}/**/*.py")]
    lost = [
        f"{owner}.{member}"
        for owner, member in sorted(named)
        if not any(
            re.search(rf"^class {owner}\b", text, re.MULTILINE)
            and re.search(rf"(?:def |self\.|^ +){member}\b", text, re.MULTILINE)
            for text in modules
        )
    ]
    assert lost == []


def test_the_layers_are_those_of_import_linter() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(
        each["layers"] for each in contracts["contracts"] if each.get("containers") == ["delaylog"]
    )
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    assert "```text\n" + "\n".join(layers) + "\n```" in page


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_a_design_page_has_one_form(page: Path) -> None:
    found = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    assert found == [heading for heading in HEADINGS if heading in found]
    assert found[:2] == HEADINGS[:2]


def test_the_index_lists_each_design_page_by_its_title() -> None:
    index = (DESIGN / "README.md").read_text()
    titles = [page.read_text().partition("\n")[0].removeprefix("# ") for page in DECISIONS]
    lines = [
        f"- [{title}]({page.relative_to(DESIGN)})"
        for title, page in zip(titles, DECISIONS, strict=True)
    ]
    assert [line for line in lines if line not in index] == []


def test_the_sections_of_the_benchmark_that_a_page_names_exist() -> None:
    program = (ROOT / "bench" / "run.py").read_text()
    sections = re.search(r"SECTIONS: Final = \((.*?)\)", program, re.DOTALL)
    assert sections is not None
    page = (ROOT / "docs" / "PERFORMANCE.md").read_text()
    named = {name for names in re.findall(r"--only ([\w,]+)", page) for name in names.split(",")}
    assert named <= set(re.findall(r'"(\w+)"', sections[1]))


def anchors(page: Path) -> set[str]:
    """The names of its headings, as GitHub makes them."""
    texts = HEADING.findall(FENCED.sub("", page.read_text()))
    kept = (re.sub(r"[^\w\- ]", "", text.strip().lower()) for text in texts)
    return {text.replace(" ", "-") for text in kept}


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        other = page.parent / name if name else page
        if not other.exists() or (anchor and anchor not in anchors(other)):
            lost.append(target)
    assert lost == []


def test_the_table_of_the_readme_names_every_document() -> None:
    readme = (ROOT / "README.md").read_text()
    missing = [page.name for page in ROOT.glob("docs/*.md") if f"(docs/{page.name})" not in readme]
    assert missing == []
