"""The timeline finds gaps between calls of consumers, joins spans, and stays small."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.late import timeline as module
from delaylog.broker.engine.late.demand import EVERYTHING
from delaylog.broker.engine.late.timeline import WHOLE, Span, Timeline

KEY, PLACE = ("default", "t", "default"), (1, 1)
TOPIC = ("default", "t", WHOLE)


def spans(timeline: Timeline, now_ms: int, leased: int = 0) -> list[Span]:
    return timeline.spans(KEY, PLACE, leased, now_ms)


def test_nobody_ever_asked() -> None:
    assert spans(Timeline(1_000), 5_000) == [Span(1_000, 5_000, "no_consumers")]


def test_a_gap_between_two_calls() -> None:
    """Busy until their leases ended, then gone; a call that lasts is no gap."""
    timeline = Timeline(0)
    timeline.begin_asking(KEY, PLACE, 0, 1_000)
    timeline.begin_asking(KEY, PLACE, 0, 1_500)
    timeline.end_asking(KEY, 2_000)
    assert [span.cause for span in spans(timeline, 4_000)] == ["no_consumers"]
    timeline.end_asking(KEY, 5_000)
    timeline.settled(KEY, PLACE, 6_000)
    timeline.begin_asking(KEY, PLACE, 0, 9_000)
    assert spans(timeline, 9_500) == [
        Span(0, 1_000, "no_consumers"),
        Span(5_000, 6_000, "slow_consumers"),
        Span(6_000, 9_000, "no_consumers"),
    ]
    timeline.end_asking(KEY, 9_500)
    assert spans(timeline, 9_900, leased=1)[-1] == Span(9_500, 9_900, "slow_consumers")
    assert timeline.asking(KEY) == 0


MASKS = st.sampled_from([EVERYTHING, (1,)])
STEPS = st.lists(st.tuples(st.sampled_from([0, 1, 19, 20, 21, 1_000]), MASKS, st.booleans()))


@given(STEPS)
def test_the_short_count_of_a_call_leaves_the_same_spans(steps: list[Any]) -> None:
    """A call that asks soon after another, or beside it, is counted in a shorter way."""
    short, general = Timeline(0), Timeline(0)
    asked, now_ms = list[Any](), 5
    for wait_ms, masks, ends in steps:
        now_ms += wait_ms
        if ends and asked:
            last = asked.pop()
            short.end_asking(KEY, now_ms, last)
            general.end_asking(KEY, now_ms, last)
            continue
        asked.append(masks)
        if not short.ask_too(KEY, masks, now_ms):
            short.begin_asking(KEY, PLACE, 0, now_ms, masks=masks)
        general.begin_asking(KEY, PLACE, 0, now_ms, masks=masks)
        assert short.saved() == general.saved()
        assert spans(short, now_ms + 30) == spans(general, now_ms + 30)
        assert short.asking(KEY) == general.asking(KEY) == len(asked)


def test_spans_are_joined_and_short_ones_left_out() -> None:
    timeline = Timeline(0)
    timeline.begin_asking(KEY, PLACE, 0, 0)
    timeline.node("stall", 10, 15)
    timeline.group(KEY, "rate_limit", 100, 200)
    timeline.group(KEY, "rate_limit", 210, 300)
    timeline.last(TOPIC, "paused", 300)
    timeline.last(TOPIC, "paused", 350)
    assert spans(timeline, 400) == [Span(100, 300, "rate_limit"), Span(300, None, "paused")]
    timeline.end(TOPIC, "paused", 390)
    timeline.end(TOPIC, "paused", 500)
    assert spans(timeline, 600)[0] == Span(300, 390, "paused")


def test_bounded(monkeypatch: Any) -> None:
    """The newest spans and groups stay, and all that last."""
    monkeypatch.setattr(module, "GROUPS_MAX", 5)
    timeline = Timeline(0)
    timeline.last(TOPIC, "paused", 70)
    timeline.last(KEY, "leased_max", 80)
    for number in range(2_000):
        timeline.node("stall", number * 1_000, number * 1_000 + 50)
        timeline.group(("n", f"{number}", "g"), "paused", 0, 100)
        timeline.group(KEY, "rate_limit", number * 1_000, number * 1_000 + 50)
    node, saved = timeline.saved()
    groups = saved[:5]
    assert [each[3] for each in saved[5:]] == [[[70, None, "paused"]], [[80, None, "leased_max"]]]
    assert len(node) == module.NODE_SPANS_MAX
    assert node[-1][0] == 1_999_000
    again = Timeline(0)
    again.restore(timeline.saved())
    assert again.saved() == timeline.saved()
    assert len({tuple(each[:3]): each[3] for each in groups}[KEY]) == module.GROUP_SPANS_MAX


def test_groups_that_ask_are_never_forgotten(monkeypatch: Any) -> None:
    """Purpose: memory stays small over the topics of years, and a consumer that waits is no
    missing one. Method: more groups than are remembered, of which the first one asks."""
    monkeypatch.setattr(module, "REMEMBERED_MAX", 8)
    timeline = Timeline(0)
    timeline.begin_asking(KEY, PLACE, 0, 0)
    for number in range(100):
        key, place = ("n", f"{number}", "g"), (number, 1)
        timeline.begin_asking(key, place, 0, 0)
        timeline.end_asking(key, 1_000)
        timeline.settled(key, place, 1_000)
        timeline.noted[place] = 1_000
    assert timeline.asking(KEY) == 1
    assert "no_consumers" not in [span.cause for span in spans(timeline, 9_000)]
    for table in (timeline._asked, timeline._settled, timeline.noted):
        assert len(table) == 8
    newest = timeline.spans(("n", "99", "g"), (99, 1), 0, 9_000)
    assert newest[-1] == Span(1_000, 9_000, "no_consumers")


def test_a_take_over() -> None:
    """The other node's refusals are over, its pauses are not; its consumers are not known."""
    timeline = Timeline(0)
    timeline.follow()
    assert spans(timeline, 1_000) == []
    timeline.last(TOPIC, "paused", 100)
    timeline.last(KEY, "leased_max", 200)
    timeline.begin("take_over", 3_000, 5_000)
    assert spans(timeline, 6_000) == [
        Span(3_000, 5_000, "take_over"),
        Span(200, 3_000, "leased_max"),
        Span(100, None, "paused"),
        Span(5_000, 6_000, "no_consumers"),
    ]


def test_polls_without_messages_leave_no_spans() -> None:
    """Purpose: idle consumers far away do not push out what matters. A longer gap is kept, since a
    message may have ended in it, and so is a short one if a message waits at its end."""
    timeline = Timeline(0)
    now_ms = 0
    for _ in range(50):
        timeline.begin_asking(KEY, PLACE, 0, now_ms, ready=False)
        timeline.end_asking(KEY, now_ms + 30_000)
        now_ms += 30_080
    assert timeline.saved() == [[], []]
    timeline.begin_asking(KEY, PLACE, 0, now_ms)
    timeline.end_asking(KEY, now_ms)
    timeline.begin_asking(KEY, PLACE, 0, now_ms + 4_000, ready=False)
    assert spans(timeline, now_ms + 9_000) == [Span(now_ms - 80, now_ms + 4_000, "no_consumers")]
