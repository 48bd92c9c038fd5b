"""A wait is covered by its parts without gaps, each with the first cause that holds there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.late.causes import PARTS_MAX, Held, Wait, explain
from delaylog.broker.engine.late.timeline import CAUSES, Span
from tests.effort import tries


def finished(work: Any) -> Any:
    """The result of a generator."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


STEP = 40
TIMES = st.integers(0, 12).map(lambda steps: steps * STEP)
SPANS = st.lists(
    st.builds(
        lambda first, size, cause: Span(first, None if size is None else first + size, cause),
        TIMES,
        st.none() | st.integers(1, 8).map(lambda steps: steps * STEP),
        st.sampled_from(CAUSES[:-1]),
    ),
    max_size=6,
)
HELD = st.lists(st.builds(lambda a, b, o: Held(a, a + b, o), TIMES, TIMES, st.integers(1, 2)))


def parts_of(*args: Any) -> list[Wait]:
    """What `explain` returns."""
    return finished(explain(*args))


def plain(moment: int, spans: list[Span], held: list[Held]) -> str:
    """The cause at a moment, looked up one by one."""
    found = [s.cause for s in spans if s.from_ms <= moment < (s.until_ms or 10**9)]
    found += ["key" for h in held if h.until_ms is not None and h.from_ms <= moment < h.until_ms]
    return min(found, key=CAUSES.index, default="unknown")


@settings(max_examples=tries(300), deadline=None)
@given(spans=SPANS, held=HELD, first=TIMES, size=TIMES)
def test_each_moment_has_its_cause(
    spans: list[Span], held: list[Held], first: int, size: int
) -> None:
    """Unknown moments next to known ones may have the cause of these, as they are short."""
    parts = parts_of(first, first + size, spans, held)
    ends = [part.until_ms for part in parts]
    assert [part.from_ms for part in parts] == ([first, *ends[:-1]] if size else [])
    assert not parts or ends[-1] == first + size
    for moment in range(first + STEP // 2, first + size, STEP):
        (cause,) = [p.cause for p in parts if p.from_ms <= moment < p.until_ms]
        right = plain(moment, spans, held)
        near = {plain(moment + k * 10, spans, held) for k in range(-10, 11)}
        assert cause == right or (right == "unknown" and cause in near)


def test_what_no_span_covers_is_unknown() -> None:
    """Without evidence nothing is blamed on consumers."""
    assert parts_of(0, 200, [Span(100, 200, "paused")]) == [
        Wait(0, 100, "unknown"),
        Wait(100, 200, "paused"),
    ]
    assert parts_of(0, 200, [Span(99, 200, "paused")]) == [Wait(0, 200, "paused")]
    assert parts_of(0, 90, []) == [Wait(0, 90, "unknown")]


def test_the_holder_of_a_key_is_named() -> None:
    parts = parts_of(0, 100, [Span(60, 100, "paused")], [Held(-5, 80, 7)])
    assert parts == [Wait(0, 60, "key", 7), Wait(60, 100, "paused")]


def test_crumbs_count_to_their_neighbours() -> None:
    spans = [Span(0, 50, "paused"), Span(53, 100, "down")]
    assert parts_of(0, 100, spans) == [Wait(0, 53, "paused"), Wait(53, 100, "down")]


@pytest.mark.parametrize("count", [2_000, 20_000])
def test_many_holders(count: int) -> None:
    """One holder after another: few parts, made in slices whose work does not grow with them."""
    held = [Held(at * 1_000, at * 1_000 + 1_000, at + 1) for at in range(count)]
    work = explain(0, count * 1_000, [], held)
    slices = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            parts = end.value
            break
        slices += 1
    assert slices >= count // 256
    assert len(parts) <= 2 * PARTS_MAX
    assert (parts[0].from_ms, parts[-1].until_ms) == (0, count * 1_000)
    assert {part.cause for part in parts} == {"key"}


def test_a_long_holder_among_short_ones_keeps_its_name() -> None:
    """Short ones that are joined have none, unless one of them held most of the time."""
    held = [Held(at, at + 1, 5) for at in range(0, 100, 2)]
    held += [Held(at, at + 1, 6) for at in range(1, 100, 2)]
    held.append(Held(100, 10_000, 7))
    assert parts_of(0, 10_000, [], held) == [Wait(0, 100, "key", 0), Wait(100, 10_000, "key", 7)]
    crumb = [Held(0, 8, 1), Held(8, 10, 2), Held(10, 10_000, 7)]
    assert parts_of(0, 10_000, [], crumb) == [Wait(0, 10_000, "key", 7)]
