"""Request ids: unlike each other, and taken from a client only if they are harmless."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.calls.request_ids import RequestIds


def test_made_ids_can_be_accepted_and_differ() -> None:
    """Two processes have no id in common either."""
    mine, other = RequestIds(Random(1)), RequestIds(Random(2))
    ids = {each.new() for each in (mine, other) for _ in range(100)}
    assert len(ids) == 200
    assert all(mine.of(each) == each for each in ids)


@pytest.mark.parametrize("text", ["a", "4bf92f35-77b3:4da6/1", "~" * 128])
def test_accepted(text: str) -> None:
    assert RequestIds(Random(1)).of(text) == text


@pytest.mark.parametrize("text", [None, "", "a b", "a\n", "é", "a\r\nSet-Cookie: x", "x" * 129])
def test_refused(text: str | None) -> None:
    assert RequestIds(Random(1)).of(text) != text
