"""Slices of a publication are five rows here, so that every transaction takes several."""

from __future__ import annotations

import pytest

from delaylog.broker.engine.transactions import publisher


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "SLICE_ROWS_MIN", 5)
    monkeypatch.setattr(publisher, "SLICE_ROWS_FIRST", 5)
