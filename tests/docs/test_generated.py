"""The generated parts of the pages are those of the code's tables."""

from __future__ import annotations

import pytest

from tests.docs.generated import DOCS, PARTS, put_in


@pytest.mark.parametrize("name", PARTS)
def test_a_generated_part_is_that_of_its_table(name: str) -> None:
    page = (DOCS / PARTS[name][0]).read_text()
    assert put_in(page, name) == page, "run `.venv/bin/python -m tests.docs.generated`"
