"""What is made of the asyncio client's modules is what stands there."""

from __future__ import annotations

import pytest

from tests.client.twins import FOLDER, TWINS, made_of


@pytest.mark.parametrize(("source", "twin"), TWINS.items())
def test_a_twin_is_as_it_is_made(source: str, twin: str) -> None:
    made = made_of(FOLDER / source)
    assert (FOLDER / twin).read_text() == made, f"change {source}, then `make twins`"
    assert "await" not in made
    assert "Async" not in made
