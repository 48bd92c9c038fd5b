"""A wait is covered by its parts without gaps, each with the first cause that holds there."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.late.explaining import Held, Wait, explain
from delaylog.broker.engine.late.timeline import CAUSES, Span
from tests.effort import tries

TENS = st.integers(0, 12).map(lambda tens: tens * 10)
SPANS = st.lists(
    st.builds(
        lambda first, size, cause: Span(first, None if size is None else first + size, cause),
        TENS,
        st.none() | st.integers(1, 8).map(lambda tens: tens * 10),
        st.sampled_from(CAUSES[:-1]),
    ),
    max_size=6,
)
HELD = st.lists(st.builds(lambda a, b, o: Held(a, a + b, o), TENS, TENS, st.integers(1, 2)))


def plain(moment: int, spans: list[Span], held: list[Held], known_ms: int) -> str:
    """The cause at a moment, looked up one by one."""
    found = [s.cause for s in spans if s.from_ms <= moment < (s.until_ms or 10**9)]
    found += ["key" for h in held if h.until_ms is not None and h.from_ms <= moment < h.until_ms]
    if found:
        return min(found, key=CAUSES.index)
    return "unknown" if moment < known_ms else "slow_consumers"


@settings(max_examples=tries(300), deadline=None)
@given(spans=SPANS, held=HELD, first=TENS, size=TENS, known_ms=TENS)
def test_each_moment_has_its_cause(
    spans: list[Span], held: list[Held], first: int, size: int, known_ms: int
) -> None:
    parts = explain(first, first + size, spans, held, known_ms=known_ms)
    ends = [part.until_ms for part in parts]
    assert [part.from_ms for part in parts] == ([first, *ends[:-1]] if size else [])
    assert not parts or ends[-1] == first + size
    for moment in range(first + 5, first + size, 10):
        (cause,) = [p.cause for p in parts if p.from_ms <= moment < p.until_ms]
        assert cause == plain(moment, spans, held, known_ms)


def test_the_holder_of_a_key_is_named() -> None:
    parts = explain(0, 100, [Span(60, 100, "paused")], [Held(-5, 80, 7)], known_ms=0)
    assert parts == [Wait(0, 60, "key", 7), Wait(60, 100, "paused")]


def test_crumbs_count_to_their_neighbours() -> None:
    spans = [Span(0, 50, "paused"), Span(53, 100, "down")]
    assert explain(0, 100, spans, known_ms=0) == [Wait(0, 53, "paused"), Wait(53, 100, "down")]
