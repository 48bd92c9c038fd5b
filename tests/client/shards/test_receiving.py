"""What several shards brought and nobody took: handed out in order while fresh, else given back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.client import AnswerLost, ApiError, BadRequest, ClientError, NotReached
from delaylog.client.errors import api_error
from delaylog.client.message import LeasedMessage
from delaylog.client.shards.receives import Gathering, Wanted, verdict
from tests.client.rows import received

NOT_READY = api_error(503, {"code": "not_ready"})
BAD = api_error(400, {"code": "bad_request"})


def batch(count: int, **lease: int) -> list[LeasedMessage]:
    """Messages of one lease."""
    return received(range(count), **lease)


def test_more_than_was_wanted_goes_to_the_next() -> None:
    gathering = Gathering[Any]()
    gathering.keep(batch(3), 100.0)
    gathering.keep(batch(2, lease=2), 100.0)
    gathering.keep([], 100.0)
    assert gathering.take(4, 101.0) == (batch(3) + batch(2, lease=2)[:1], [])
    assert gathering.take(4, 101.0) == (batch(2, lease=2)[1:], [])
    assert gathering.take(4, 101.0) == ([], [])


def test_with_less_than_half_of_its_lease_it_is_given_back() -> None:
    gathering = Gathering[Any]()
    gathering.keep(batch(1, lease_ms=10_000), 100.0)
    gathering.keep(batch(1, lease=2, lease_ms=20_000), 100.0)
    assert gathering.take(0, 104.9) == ([], [])
    assert gathering.take(5, 105.0) == (batch(1, lease=2), batch(1))


def test_what_is_held_is_let_go_once() -> None:
    gathering = Gathering[Any]()
    gathering.keep(batch(2), 1.0)
    assert gathering.all_held() == batch(2)
    assert gathering.all_held() == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(2, 40)), max_size=8), st.data())
def test_each_message_ends_in_one_place(kept: list[tuple[int, int]], data: st.DataObject) -> None:
    """Whatever comes and whenever it is taken: once handed out, or once given back."""
    gathering = Gathering[Any]()
    seen: list[LeasedMessage] = []
    now_s = 0.0
    for lease, (count, lease_s) in enumerate(kept):
        gathering.keep(batch(count, lease=lease, lease_ms=1000 * lease_s), now_s)
        now_s += data.draw(st.floats(0, 20))
        most = data.draw(st.integers(0, 6))
        taken, stale = gathering.take(most, now_s)
        assert len(taken) <= most
        seen += taken + stale
    seen += gathering.all_held()
    expected = {(lease, ref) for lease, (count, _) in enumerate(kept) for ref in range(count)}
    assert len(seen) == len(expected)
    assert {(message.lease, message.ref) for message in seen} == expected


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([], None),
        ([NotReached("a")], None),
        ([NotReached("a"), AnswerLost("b")], NotReached),
        ([NOT_READY, AnswerLost("b")], ApiError),
        ([BAD], BadRequest),
        ([NotReached("a"), BAD], BadRequest),
    ],
)
def test_what_a_receive_of_nothing_says(
    errors: list[ClientError], raised: type[ClientError] | None
) -> None:
    """Of two shards."""
    said = verdict(errors, 2)
    assert said is None if raised is None else isinstance(said, raised)


def test_wishes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="tags_mode"):
        Wanted("t", tags_mode="some")
    with pytest.raises(ValueError, match="exact_tags"):
        Wanted("t", exact_tags=True)
    for call in ("receive", "peek"):
        with pytest.raises(ValueError, match="ids is empty"):
            Wanted.split("t", {"ids": []}, call)
