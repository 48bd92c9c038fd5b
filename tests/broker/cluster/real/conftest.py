"""Members whose files are so small that everything happens all the time."""

from __future__ import annotations

import pytest

from tests.broker.cluster.real.members import CONSTANTS


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CONSTANTS.items():
        monkeypatch.setattr(f"delaylog.{name}", value)
