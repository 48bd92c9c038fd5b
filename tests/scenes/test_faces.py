"""Which interface can play what, said once for all of them."""

from __future__ import annotations

import pytest

from tests.scenes.conftest import FACES
from tests.scenes.faces.face import ABILITIES, Face


def test_the_embedded_broker_can_play_everything() -> None:
    assert next(iter(FACES)) == "embedded"
    assert FACES["embedded"].cannot == frozenset()


@pytest.mark.parametrize("kind", FACES.values())
def test_what_a_face_cannot_is_an_ability(kind: type[Face]) -> None:
    assert kind.cannot <= ABILITIES
