"""Waiting for a publication, by a clock that only sleeping moves."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_delaylog import publication
from pyspark_delaylog.errors import TransactionError
from pyspark_delaylog.publication import LOOK_S, SMALL_ROWS_MAX, STALL_S, published


class Publisher:
    """Publishes rows at a rate, until it stalls."""

    def __init__(
        self, rows_per_s: float, stalls_at: float = float("inf"), rows: int = 1_000
    ) -> None:
        self.now_s = 0.0
        self._rows = rows
        self._rate = rows_per_s
        self._stalls_at = stalls_at

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s

    def shape(self) -> dict[str, Any]:
        done = int(min(self._rows, self._stalls_at, self._rate * self.now_s))
        return {"transaction": "x", "rows": self._rows, "published": done}


def clock(monkeypatch: pytest.MonkeyPatch, publisher: Publisher) -> Publisher:
    monkeypatch.setattr(publication, "time", publisher)
    return publisher


def test_a_small_load_is_seen_published(monkeypatch: pytest.MonkeyPatch) -> None:
    one = clock(monkeypatch, Publisher(100_000))
    assert published(one.shape, wait=False)["published"] == 1_000
    assert one.now_s < LOOK_S


def test_a_large_one_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = clock(monkeypatch, Publisher(100_000, rows=SMALL_ROWS_MAX + 1))
    assert published(one.shape, wait=False)["published"] == 0
    assert one.now_s == 0


def test_a_slow_one_is_left_after_a_moment_or_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    one = clock(monkeypatch, Publisher(1.5))
    assert published(one.shape, wait=False)["published"] < 1_000
    assert one.now_s < 2 * LOOK_S
    assert published(one.shape, wait=True)["published"] == 1_000
    assert one.now_s > 2 * STALL_S, "it lasts, but never stalls"


def test_a_stall_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    one = clock(monkeypatch, Publisher(100, stalls_at=40))
    with pytest.raises(TransactionError, match="only 40 of 1,000 rows and none for 300 s"):
        published(one.shape, wait=True)
