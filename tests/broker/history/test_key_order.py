"""Rule G's sweep against its definition, pair by pair, and on a key with a long queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.history.keys import PLACE, Place, passed_over

TIMES = st.integers(0, 12)


@st.composite
def places(draw: st.DrawFn) -> list[Place]:
    """Messages of one key, all over a few milliseconds, so that many of their times are alike."""
    out = []
    for name in range(draw(st.integers(0, 8))):
        sent_t0, first_t0 = draw(TIMES), draw(TIMES)
        sent_t1, first_t1 = sent_t0 + draw(st.integers(0, 3)), first_t0 + draw(st.integers(0, 3))
        last_t0 = first_t0 + draw(st.integers(0, 6))
        due, rank = draw(TIMES), draw(st.integers(-1, 1))
        out.append(Place(name, due, rank, sent_t0, sent_t1, first_t0, first_t1, last_t0))
    return out


def packed(places: list[Place]) -> bytes:
    return b"".join(
        PLACE.pack(
            each.name,
            each.due,
            each.rank,
            each.sent_t0,
            each.sent_t1,
            each.first_t0,
            each.first_t1,
            each.last_t0,
        )
        for each in places
    )


def passes_over(place: Place, other: Place) -> bool:
    """The definition: `other` was there, came before `place`, and was handed out after it."""
    if other.last_t0 <= place.first_t1:
        return False
    if other.order == place.order:
        return other.sent_t1 < place.sent_t0
    ready_ms = max(place.sent_t0, min(place.due, place.first_t0))
    return other.order < place.order and other.sent_t1 < ready_ms


@given(places())
def test_it_finds_whom_every_hand_out_passed_over(places: list[Place]) -> None:
    found = list(passed_over(packed(places)))
    assert all(passes_over(place, other) for place, other in found)
    assert sorted(place.name for place, _ in found) == [
        place.name for place in places if any(passes_over(place, other) for other in places)
    ]


def test_one_that_was_passed_over_is_found_behind_a_long_queue() -> None:
    """All of them wait for each other; the very first is handed out last."""
    n = 20_000
    right = [Place(k, k, 0, 0, 1, n + k, n + k, n + k) for k in range(1, n)]
    assert list(passed_over(packed(right))) == []
    late = Place(0, 0, 0, 0, 1, 3 * n, 3 * n, 3 * n)
    found = list(passed_over(packed([*right, late])))
    assert len(found) == n - 1 - 1
    assert {other for _, other in found} == {late}
