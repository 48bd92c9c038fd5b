"""The delay queue by itself: head, bringing forward, ties by arrival; then against a plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from delaylog.wheel import DelayQueue


def drain(queue: DelayQueue[str], now_ms: int = 1 << 60) -> list[str]:
    out = []
    while (key := queue.pop_due(now_ms)) is not None:
        out.append(key)
    return out


def test_the_head_is_what_expires_first() -> None:
    queue: DelayQueue[str] = DelayQueue()
    assert queue.head_ms() is None
    queue.push("later", 20)
    queue.push("last", 30)
    assert queue.head_ms() == 20
    queue.push("first", 10)
    assert queue.head_ms() == 10
    assert len(queue) == 3


def test_a_key_is_only_brought_forward() -> None:
    """Pushing a key again never delays it, and it stands once."""
    queue: DelayQueue[str] = DelayQueue()
    queue.push("a", 20)
    queue.push("a", 30)
    assert queue.head_ms() == 20
    queue.push("a", 10)
    assert queue.head_ms() == 10
    assert drain(queue) == ["a"]
    assert len(queue) == 0


def test_ties_leave_in_order_of_arrival() -> None:
    """Equal expirations: first come, first served; bringing forward counts as arriving again."""
    queue: DelayQueue[str] = DelayQueue()
    queue.push("c", 9)
    for key in "ab":
        queue.push(key, 5)
    queue.push("c", 5)
    assert drain(queue) == ["a", "b", "c"]


def test_nothing_leaves_before_its_time() -> None:
    """`pop_due` gives what has expired, at its very millisecond, and nothing else."""
    queue: DelayQueue[str] = DelayQueue()
    queue.push("a", 5)
    queue.push("b", 6)
    assert queue.pop_due(4) is None
    assert queue.pop_due(5) == "a"
    assert queue.pop_due(5) is None
    queue.discard("b")
    queue.discard("unknown")
    assert queue.head_ms() is None


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["push", "discard", "pop"]), st.integers(0, 9), st.integers(0, 30))
)


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
        assert queue.head_ms() == min((t for t, _ in model.values()), default=None)


def test_a_key_that_is_brought_forward_many_times_takes_no_memory() -> None:
    """Replaced items leave the heap in time, and the order stays."""
    queue: DelayQueue[str] = DelayQueue()
    queue.push("last", 1)
    for expires_ms in range(20_000, 10, -1):
        queue.push("often", expires_ms)
    assert len(queue._heap) < 2_000
    assert drain(queue) == ["last", "often"]
