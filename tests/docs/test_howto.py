"""The examples of the longest page are run as they stand, like those in `test_examples`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.examples import LONGEST, named, stories
from tests.docs.pages import Story
from tests.docs.stage import play


@pytest.mark.parametrize("story", stories(LONGEST), ids=named)
def test_examples_do_what_their_page_says(story: Story, tmp_path: Path) -> None:
    play(story, tmp_path)
