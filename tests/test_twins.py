"""What is made of modules for asyncio is what stands there."""

from __future__ import annotations

import pytest

from tests.twins import ROOT, TWINS, made_of


@pytest.mark.parametrize(("source", "twin"), TWINS.items())
def test_a_twin_is_as_it_is_made(source: str, twin: str) -> None:
    made = made_of(source)
    assert (ROOT / twin).read_text() == made, f"change {source}, then `make twins`"
    assert "await" not in made
    assert "Async" not in made
