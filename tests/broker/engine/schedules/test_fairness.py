"""Turns of topics whose schedules are due, against plain lists."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.schedules.fairness import DueByTopic
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
        assert len(due) == sum(map(len, lists.values()))


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
