"""Links between the pages lead somewhere: to a file that is there, and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
LINK: Final = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])


def anchors(page: Path) -> set[str]:
    """The names of its headings, as GitHub makes them."""
    texts = HEADING.findall(FENCED.sub("", page.read_text()))
    kept = (re.sub(r"[^\w\- ]", "", text.strip().lower()) for text in texts)
    return {text.replace(" ", "-") for text in kept}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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
