"""Every example of the pages is run as it stands, against live brokers, story by story.

A story is a section of a page; see `pages` for what a page can say about its examples and `stage`
for how they are run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.examples import LONGEST, PAGES, named, stories
from tests.docs.pages import Kind, Story
from tests.docs.stage import play

OTHERS = [page for page in PAGES if page != LONGEST]


@pytest.mark.parametrize("story", stories(*OTHERS), ids=named)
def test_examples_do_what_their_page_says(story: Story, tmp_path: Path) -> None:
    play(story, tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_only_what_needs_spark_is_not_run(page: str) -> None:
    examples = [each for story in stories(page) for each in story.examples]
    assert examples
    left = [each for each in examples if each.kind is Kind.NOT_RUN]
    assert [each.place for each in left if "needs Spark" not in each.why_not] == []
