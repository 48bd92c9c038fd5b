"""The delay queue against a plain dict: head, bringing forward, ties by arrival."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from delaylog.wheel import DelayQueue


def drain(queue: DelayQueue[str], now_ms: int = 1 << 60) -> list[str]:
    out = []
    while (key := queue.pop_due(now_ms)) is not None:
        out.append(key)
    return out


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "discard", "pop"]), st.integers(0, 4), st.integers(0, 3)
    ),
    max_size=40,
)
"""Few keys and times, so that ties and repeated keys are frequent."""


@given(ACTIONS)
def test_against_a_dict(actions: list[tuple[str, int, int]]) -> None:
    """Any sequence of calls agrees with a dict from key to (expiration, arrival)."""
    queue: DelayQueue[int] = DelayQueue()
    model: dict[int, tuple[int, int]] = {}
    for arrival, (action, key, time) in enumerate(actions):
        if action == "push":
            if key not in model or time < model[key][0]:
                model[key] = (time, arrival)
            queue.push(key, time)
        elif action == "discard":
            queue.discard(key)
            model.pop(key, None)
        else:
            due = [k for k in sorted(model, key=model.__getitem__) if model[k][0] <= time]
            assert queue.pop_due(time) == (due[0] if due else None)
            if due:
                del model[due[0]]
        assert len(queue) == len(model)
        assert queue.head_ms == min((t for t, _ in model.values()), default=None)


def test_a_key_that_is_brought_forward_many_times_takes_no_memory() -> None:
    """Replaced items leave the heap in time, and the order stays."""
    queue: DelayQueue[str] = DelayQueue()
    queue.push("last", 1)
    for expires_ms in range(20_000, 10, -1):
        queue.push("often", expires_ms)
    assert len(queue._heap) < 2_000
    assert drain(queue) == ["last", "often"]
