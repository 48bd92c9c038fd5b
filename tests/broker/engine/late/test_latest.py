"""The latest messages of real hand-outs: one a group, of the latest groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.late.latest import (
    LATE_MS_MIN,
    LATEST_MAX,
    STEP,
    HandOut,
    LatestMessages,
)
from delaylog.storage.layout import INDEX_ENTRY


def latest(host: Any) -> list[tuple[str, int]]:
    return [(each.id, each.late_ms) for each in host.engine.state.latest.take().values()]


def test_the_latest_message_of_a_batch(host: Any) -> None:
    host.send(3, ids=["a", "b", "c"], at=[host.now_ms + ms for ms in (300, 100, 200)])
    host.advance(1_000)
    host.receive()
    assert latest(host) == [("b", 900)]
    assert latest(host) == []


def test_what_is_in_time_or_given_back_is_not_late(host: Any) -> None:
    host.send(1, ids=["a"])
    host.advance(LATE_MS_MIN - 1)
    got = host.receive()
    host.advance(20_000)
    host.nack(got, delay=0)
    assert [message.id for message in host.receive()] == ["a"]
    assert latest(host) == []


def test_a_message_without_an_own_id_has_the_id_of_its_origin(host: Any) -> None:
    sent = host.send(1)
    host.advance(50)
    host.receive()
    assert latest(host) == [(host.ids_of(sent)[0], 50)]


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.lists(st.integers(0, 5_000), min_size=1, max_size=4)),
        max_size=30,
    )
)
def test_it_is_about_the_latest_of_all(hand_outs: list[tuple[int, list[int]]]) -> None:
    """Model: the greatest lateness of each group, and of those the greatest; exact to a 64th."""
    found, now_ms = LatestMessages(), 1_000_000
    model: dict[int, int] = {}
    for group, late in hand_outs:
        rows = np.zeros(len(late), INDEX_ENTRY)
        rows["deliver_at"] = now_ms - np.array(late)
        ones = np.ones(len(late), np.int64)
        out = HandOut(now_ms, ones, rows, ones, b"", ())
        found.note((1, group), now_ms - max(late), out)
        model[group] = max(model.get(group, 0), *late)
    kept = sorted((each.late_ms for each in found.take().values()), reverse=True)
    late_ones = sorted((each for each in model.values() if each >= LATE_MS_MIN), reverse=True)
    assert len(kept) == min(len(late_ones), LATEST_MAX)
    for mine, latest in zip(kept, late_ones, strict=False):
        assert mine <= latest <= mine + mine // STEP
