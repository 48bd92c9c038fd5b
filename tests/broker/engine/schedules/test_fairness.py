"""Turns of topics whose schedules are due, against plain lists."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.schedules import wakes
from delaylog.broker.engine.schedules.runner import SLICE_FIRINGS, DueByTopic
from delaylog.broker.engine.schedules.schedule import AHEAD_MS
from tests.broker.engine.schedules.rig import ScheduleHost
from tests.effort import tries


@settings(max_examples=tries(300), deadline=None)
@given(st.lists(st.none() | st.tuples(st.integers(1, 4), st.integers(1, 30), st.integers(0, 9))))
def test_turns_are_those_of_the_model(steps: list[tuple[int, int, int] | None]) -> None:
    """The model keeps a list of turns and one sorted list a topic. None = a schedule is taken."""
    due, lists, turns = DueByTopic(), dict[int, list[tuple[int, int]]](), list[int]()
    for step in steps:
        if step is None:
            expected = None
            if turns:
                topic = turns.pop(0)
                expected = lists[topic].pop(0)[1]
                if lists[topic]:
                    turns.append(topic)
            assert due.take() == expected
        else:
            topic, number, due_ms = step
            # A number belongs to one topic.
            number = number * 10 + topic
            due.add(topic, number, due_ms)
            entries = lists.setdefault(topic, [])
            if number not in [known for _, known in entries]:
                entries.append((due_ms, number))
                entries.sort()
            if topic not in turns:
                turns.append(topic)
        assert len(due.numbers) == sum(map(len, lists.values()))


def test_a_topic_that_is_always_behind_takes_every_second_turn() -> None:
    """393 schedules that are due again as soon as they are taken, and one of another topic."""
    due = DueByTopic()
    for number in range(393):
        due.add(1, number, 0)
    for _ in range(1_000):
        # Late by far less than the others.
        due.add(2, 1_000, 10**9)
        taken = [due.take(), due.take()]
        assert 1_000 in taken
        for number in taken:
            if number is not None and number != 1_000:
                due.add(1, number, 1)


@pytest.mark.long
def test_schedules_of_one_topic_do_not_starve_those_of_others(
    host: ScheduleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has time for one slice a millisecond, and a topic that has more than that due.

    A schedule of another topic fires in the slice in which it is due, a second ahead.
    """
    # The backlog soon reaches further back than the entries that are in order.
    monkeypatch.setattr(wakes, "WINDOW_MS", 20)
    host.topic_name = "noisy"
    for number in range(2 * SLICE_FIRINGS):
        host.put(f"each{number}", interval_ms=1)
    host.topic_name = "quiet"
    host.put("tick", interval_ms=10)
    for now_ms in range(host.now_ms, host.now_ms + 200):
        host.engine.schedules.run_due(now_ms)
        assert host.one("tick").progress.next_ms > now_ms + AHEAD_MS
    host.topic_name = "noisy"
    for number in range(2 * SLICE_FIRINGS):
        assert host.one(f"each{number}").progress.next_ms < now_ms + AHEAD_MS - 50, "it has more"
